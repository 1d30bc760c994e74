package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is what the operator does with files. A test puts one in that forgets, at a power cut, what wasn't
// synced, and that fails where it is told to.
type disk interface {
	Lstat(path string) (fs.FileInfo, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	Readlink(path string) (string, error)
	Resolve(path string) (string, error)       // absolute, without links
	Mkdir(path string, mode fs.FileMode) error // with exactly these permissions
	Symlink(target, path string) error
	Write(path string, data []byte, mode fs.FileMode) error          // a new file, synced
	Copy(step func() error, from, to string, mode fs.FileMode) error // a new file, synced; from is no link
	Chown(path string, uid, gid int) error                           // of a link itself; -1 leaves it
	Sync(dir string) error
	Rename(from, to string) error // to is no directory that holds anything
	RemoveAll(path string) error
}

// copyChunk is how much is copied between two looks at whether the copy is still wanted.
const copyChunk = 16 << 20

// osDisk is the machine's.
type osDisk struct{}

func (osDisk) Lstat(path string) (fs.FileInfo, error)     { return os.Lstat(path) }
func (osDisk) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osDisk) Readlink(path string) (string, error)       { return os.Readlink(path) }
func (osDisk) Resolve(path string) (string, error)        { return filepath.EvalSymlinks(path) }
func (osDisk) Symlink(target, path string) error          { return os.Symlink(target, path) }
func (osDisk) Chown(path string, uid, gid int) error      { return os.Lchown(path, uid, gid) }
func (osDisk) Rename(from, to string) error               { return os.Rename(from, to) }

func (osDisk) Mkdir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask
}

func (osDisk) Write(path string, data []byte, mode fs.FileMode) error {
	return create(path, mode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// Copy takes as much as the file holds when it is opened: one that grows for ever ends too.
func (osDisk) Copy(step func() error, from, to string, mode fs.FileMode) error {
	// Never wait for the other end of a pipe that stands where a file stood.
	src, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return &sourceError{err}
	}
	defer src.Close()
	before, err := src.Stat()
	if err != nil || !before.Mode().IsRegular() {
		return &sourceError{fmt.Errorf("%s is no regular file any more", from)}
	}
	return create(to, mode, func(dst *os.File) error {
		if err := copyData(step, dst, src, before.Size()); err != nil {
			return err
		}
		after, err := src.Stat()
		if err != nil {
			return &sourceError{err}
		}
		if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
			return &changedError{from}
		}
		return nil
	})
}

// copyData copies what stands in a file of a size. Holes stay holes: they may be larger than the disk.
func copyData(step func() error, dst, src *os.File, size int64) error {
	for at := int64(0); at < size; {
		from, to, err := nextData(src, at, size)
		if err != nil {
			return &sourceError{err}
		}
		for _, f := range []*os.File{src, dst} {
			if _, err := f.Seek(from, io.SeekStart); err != nil {
				return err
			}
		}
		for left := to - from; left > 0; {
			if err := step(); err != nil {
				return err
			}
			n, err := io.CopyN(dst, src, min(left, copyChunk))
			left -= n
			var read *fs.PathError
			switch {
			case errors.Is(err, io.EOF):
				return &changedError{src.Name()}
			case errors.As(err, &read) && read.Path == src.Name():
				return &sourceError{err}
			case err != nil:
				return err
			}
		}
		at = to
	}
	return dst.Truncate(size)
}

// nextData is where the next data of a file lies, from an offset on; an empty range at its end if there is none. A
// file system that doesn't know holes has none.
func nextData(f *os.File, at, size int64) (from, to int64, err error) {
	from, err = f.Seek(at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	to, err = f.Seek(from, unix.SEEK_HOLE)
	return min(from, size), min(to, size), err
}

// RemoveAll also removes what a member has made unwritable for itself.
func (osDisk) RemoveAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700) // what still can't be removed is told below
		}
		return nil
	})
	return os.RemoveAll(path)
}

func (osDisk) Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// create makes a new file, fills it and syncs it.
func create(path string, mode fs.FileMode, fill func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
