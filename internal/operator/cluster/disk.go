package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
		for left := before.Size(); left > 0; {
			if err := step(); err != nil {
				return err
			}
			n, err := io.CopyN(dst, src, min(left, copyChunk))
			left -= n
			var read *fs.PathError
			switch {
			case errors.Is(err, io.EOF):
				return &changedError{from}
			case errors.As(err, &read) && read.Path == from:
				return &sourceError{err}
			case err != nil:
				return err
			}
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
