package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// reserve is a file as large as the present needs to be written anew, with blocks that are its own. It
// takes the present's place when that has no page left for a checkpoint, and what was the present becomes
// the reserve: so a checkpoint never depends on what others leave of the disk. What is in it means nothing.
//
// Both files only grow here, ahead of what is in them, and bbolt is kept from growing its own.
type reserve struct {
	path string
	room func(dir string, n int64) error

	mu      sync.Mutex
	file    *os.File     // nil until it is made or opened
	size    atomic.Int64 // of the reserve, bytes with blocks; 0 if there is none
	present *os.File     // bbolt's
	held    atomic.Int64 // of the present's file, bytes with blocks
	synced  bool         // the sizes are durable

	admitted atomic.Int64 // what the committer counts on, bytes of both files
}

// bytes is how much may be in the present for both files to hold it.
func (r *reserve) bytes() int64 { return min(r.size.Load(), r.held.Load()) }

// grow makes both files at least n bytes large.
func (r *reserve) grow(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return err
	}
	if err := r.growFile(r.file, &r.size, n); err != nil {
		return err
	}
	return r.growFile(r.present, &r.held, n)
}

// growReserve makes the reserve alone larger.
func (r *reserve) growReserve(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return err
	}
	return r.growFile(r.file, &r.size, n)
}

// growPresent makes the present's file alone larger.
func (r *reserve) growPresent(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.growFile(r.present, &r.held, n)
}

func (r *reserve) growFile(f *os.File, size *atomic.Int64, n int64) error {
	before := size.Load()
	if n = aligned(int(n)); n <= before {
		return nil
	}
	if err := r.room(filepath.Dir(r.path), n-before); err != nil {
		return err
	}
	if err := allocate(f, before, n); err != nil {
		return errors.Join(err, f.Truncate(before))
	}
	size.Store(n)
	r.synced = false
	return nil
}

// open has the reserve's file at hand. The caller holds mu.
func (r *reserve) open() error {
	if r.file != nil {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("storage: open the reserve: %w", err)
	}
	r.file = f
	r.size.Store(withBlocks(f))
	return nil
}

// hold takes over the file that bbolt has opened as the present.
func (r *reserve) hold(f *os.File) {
	r.present = f
	r.held.Store(withBlocks(f))
}

// sync makes the sizes durable.
func (r *reserve) sync() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced || r.file == nil {
		return nil
	}
	err := osFile{r.file}.Datasync()
	r.synced = err == nil
	return err
}

// shrink gives back what the reserve has above n bytes, unless more has been counted on meanwhile.
func (r *reserve) shrink(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.size.Load()
	if n = aligned(int(n)); r.file == nil || before <= n {
		return nil
	}
	r.size.Store(n)
	if r.admitted.Load() > n { // the committer sets it before it looks at size
		r.size.Store(before)
		return nil
	}
	if err := r.file.Truncate(n); err != nil {
		r.size.Store(before)
		return err
	}
	return nil
}

// begin makes the reserve an empty bbolt file with room.
func (r *reserve) begin(empty []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return err
	}
	if r.size.Load() < int64(len(empty)) {
		return &os.PathError{Op: "write", Path: r.path, Err: unix.ENOSPC}
	}
	_, err := r.file.WriteAt(empty, 0)
	return err
}

// exchange has the reserve, which bbolt has open as f, and the present's file change places. Either holds a
// present that the log goes on from, so it doesn't matter which a power cut leaves; settle makes it last.
func (r *reserve) exchange(presentPath string, f *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	size, held := r.held.Load(), r.size.Load()
	err := unix.Renameat2(unix.AT_FDCWD, r.path, unix.AT_FDCWD, presentPath, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system can't
		size, err = 0, os.Rename(r.path, presentPath)
	}
	if err != nil {
		return fmt.Errorf("storage: put %s in the place of %s: %w", r.path, presentPath, err)
	}
	_ = r.file.Close() // what was written was written through f
	r.file, r.present, r.synced = nil, f, false
	r.size.Store(size)
	r.held.Store(held)
	return nil
}

// settle makes an exchange last, and opens the reserve that it left.
func (r *reserve) settle() error {
	if err := syncDir(filepath.Dir(r.path)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Without a descriptor for it, its blocks are there all the same: whoever needs the file opens it.
	_ = r.open()
	return nil
}

func (r *reserve) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// allocate gives a file blocks of its own from one offset to another, which is its size then.
func allocate(f *os.File, from, to int64) error {
	const step = 16 << 20 // a signal takes a whole call back on some file systems: it may not last
	for off := from; off < to; {
		n := min(step, to-off)
		err := unix.Fallocate(int(f.Fd()), 0, off, n)
		switch {
		case err == nil:
			off += n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			return fillZeros(f, off, to)
		default:
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// fillZeros is allocate where the file system has no call for it.
func fillZeros(f *os.File, from, to int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if from < info.Size() {
		return nil // those are in use
	}
	zeros := make([]byte, 256<<10)
	for off := from; off < to; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-off)], off); err != nil {
			return err
		}
	}
	return osFile{f}.Datasync()
}

// withBlocks gives a file that was there blocks for its holes, and says how many bytes have some. A file
// system that is full leaves it as it is.
func withBlocks(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	if onDisk(info) >= info.Size() || allocate(f, 0, info.Size()) == nil {
		return info.Size()
	}
	return onDisk(info)
}

// emptyBolt is what bbolt writes into an empty file: with it a reserve becomes a bbolt file that has its
// blocks already. It is made in memory, for there may be no room.
func emptyBolt() ([]byte, error) {
	fd, err := unix.MemfdCreate("operatord-empty", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("storage: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	o := boltOptions()
	o.InitialMmapSize = 0
	o.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return f, nil }
	db, err := bbolt.Open(f.Name(), 0o600, o)
	if err != nil {
		return nil, fmt.Errorf("storage: make an empty bbolt file: %w", err)
	}
	empty := make([]byte, 4*os.Getpagesize())
	_, err = f.ReadAt(empty, 0)
	return empty, errors.Join(err, db.Close())
}
