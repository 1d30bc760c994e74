package cluster

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path/filepath"
	"syscall"
)

// copying is the copy of one directory into another, which exists: files and directories with their permissions (a
// directory's owner may always write), links as links. Everything but the directory itself is synced.
type copying struct {
	disk disk
	step func() error // between any two things that may take long
	who  *owner       // of what is made; nil: the daemon's user
}

// changedError is that of a backup that is written to while it is copied.
type changedError struct{ path string }

func (e *changedError) Error() string {
	return e.path + " changed while it was copied: keep the backup still, or name a snapshot of it"
}

// still copies a directory that must not change meanwhile: what was a file's or directory's size, mode, time, inode
// and place before is compared when all is copied.
func (c *copying) still(from, to string) error {
	before, err := c.survey(from)
	if err != nil {
		return err
	}
	if err := c.tree(from, to); err != nil {
		return before.changed(err, from)
	}
	return before.compare(c, from)
}

func (c *copying) tree(from, to string) error {
	entries, err := c.disk.ReadDir(from)
	if err != nil {
		return &sourceError{err}
	}
	for _, entry := range entries {
		if err := c.step(); err != nil {
			return err
		}
		src, dst := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return &sourceError{err}
		}
		switch {
		case info.IsDir():
			if err := c.disk.Mkdir(dst, info.Mode().Perm()|0o700); err != nil {
				return err
			}
			if err := c.tree(src, dst); err != nil {
				return err
			}
			if err := c.disk.Sync(dst); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if err := c.disk.Copy(c.step, src, dst, info.Mode().Perm()); err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := c.disk.Readlink(src)
			if err != nil {
				return &sourceError{err}
			}
			if err := c.disk.Symlink(target, dst); err != nil {
				return err
			}
		default:
			return &sourceError{fmt.Errorf("%s is neither a file, a directory nor a link (%s)", src, info.Mode().Type())}
		}
		if err := c.give(dst); err != nil {
			return err
		}
	}
	return nil
}

// give makes who the owner of path, which is not followed.
func (c *copying) give(path string) error {
	if c.who == nil {
		return nil
	}
	return c.disk.Chown(path, c.who.uid, c.who.gid)
}

// survey is what a directory tree looked like, a digest for each entry in the order of a walk: what is below ten million
// files takes 80 MB.
type survey struct {
	seed    maphash.Seed
	digests []uint64
}

// mark is what tells whether an entry is as it was.
type mark struct {
	path                    string
	mode                    fs.FileMode
	size, modified, changed int64 // times in ns
	device, inode           uint64
}

func (c *copying) survey(root string) (*survey, error) {
	s := &survey{seed: maphash.MakeSeed()}
	err := c.walk(root, func(path string, info fs.FileInfo) error {
		s.digests = append(s.digests, s.digest(path, info))
		return nil
	})
	return s, err
}

func (s *survey) digest(path string, info fs.FileInfo) uint64 {
	m := mark{path: path, mode: info.Mode(), size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.changed, m.device, m.inode = st.Ctim.Nano(), st.Dev, st.Ino
	}
	return maphash.Comparable(s.seed, m)
}

// compare walks again and stops at the first entry that isn't as it was.
func (s *survey) compare(c *copying, root string) error {
	n := 0
	err := c.walk(root, func(path string, info fs.FileInfo) error {
		if n++; n > len(s.digests) || s.digests[n-1] != s.digest(path, info) {
			return &changedError{s.culprit(c, path, info)}
		}
		return nil
	})
	if err != nil {
		return s.changed(err, root)
	}
	if n < len(s.digests) {
		return &changedError{root}
	}
	return nil
}

// culprit is, of a directory that isn't as it was, the entry that is new or changed, however deep; the directory itself
// if one has gone from it.
func (s *survey) culprit(c *copying, path string, info fs.FileInfo) string {
	known := make(map[uint64]bool, len(s.digests))
	for _, d := range s.digests {
		known[d] = true
	}
	for info.IsDir() {
		entries, err := c.disk.ReadDir(path)
		if err != nil {
			return path
		}
		parent := path
		for _, entry := range entries {
			at := filepath.Join(parent, entry.Name())
			if next, err := entry.Info(); err == nil && !known[s.digest(at, next)] {
				path, info = at, next
				break
			}
		}
		if path == parent {
			return path
		}
	}
	return path
}

// changed makes of the absence of what was there when the survey was made that it changed.
func (s *survey) changed(err error, root string) error {
	var path *fs.PathError
	var source *sourceError
	if errors.As(err, &source) && errors.Is(err, fs.ErrNotExist) && errors.As(err, &path) && path.Path != root {
		return &changedError{path.Path}
	}
	return err
}

// walk visits a directory and all that is in it, each before what is in it, by name.
func (c *copying) walk(root string, visit func(path string, info fs.FileInfo) error) error {
	info, err := c.disk.Lstat(root)
	if err != nil {
		return &sourceError{err}
	}
	return c.walkFrom(root, info, visit)
}

func (c *copying) walkFrom(at string, info fs.FileInfo, visit func(path string, info fs.FileInfo) error) error {
	if err := c.step(); err != nil {
		return err
	}
	if err := visit(at, info); err != nil || !info.IsDir() {
		return err
	}
	entries, err := c.disk.ReadDir(at)
	if err != nil {
		return &sourceError{err}
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return &sourceError{err}
		}
		if err := c.walkFrom(filepath.Join(at, entry.Name()), info, visit); err != nil {
			return err
		}
	}
	return nil
}
