package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// file is what the log needs of a file. Tests put faults in between.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Datasync returns when everything written is on the disk.
	Datasync() error
	// Forget drops what the page cache holds of the file, so that reads come from the disk.
	Forget()
	Size() (int64, error)
	Truncate(int64) error
	// Linked says whether the file still has a name.
	Linked() bool
	// Replaced says whether another file has the name that it was opened by, or none.
	Replaced() bool
}

type osFile struct{ *os.File }

// openOS opens a file for reading and writing; create says that it must not exist.
func openOS(path string, create bool) (file, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (f osFile) Datasync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
			}
			return nil
		}
	}
}

func (f osFile) Forget() {
	// Advice: where a file system does not take it (tmpfs), there is no disk to differ from the cache.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func (f osFile) Linked() bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink > 0
}

func (f osFile) Replaced() bool {
	found, err := os.Stat(f.Name())
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	ours, err := f.Stat()
	return err == nil && !os.SameFile(ours, found)
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// warm reads a file from the disk, once and in sequence, so that what maps it afterwards finds it in
// memory: bbolt maps with MADV_RANDOM, which makes a cold open forty times slower.
func warm(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	of := osFile{f}
	if err := of.Datasync(); err != nil {
		return err
	}
	of.Forget()
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL)
	buf := make([]byte, 1<<20)
	for {
		if _, err := f.Read(buf); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// onDisk is what a file takes, holes left out.
func onDisk(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// isFull says that an error means no room, which may end, and not a broken disk. A sync that reports
// it has lost data already and is not among them.
func isFull(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) { // of what the present's file has blocks for
		return true
	}
	var p *os.PathError
	if !errors.As(err, &p) || p.Op == "fdatasync" || p.Op == "sync" {
		return false
	}
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
