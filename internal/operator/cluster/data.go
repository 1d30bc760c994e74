package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// owner is who files are given to. A gid of -1 leaves the group.
type owner struct{ uid, gid int }

// made tells whether the directory target is there. Then its name is made sure of, because whatever is built on
// it must not outlive it in a power cut.
func (op *Operator) made(target string) (bool, error) {
	_, err := op.disk.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, op.disk.Sync(filepath.Dir(target))
}

// fill makes the directory target, whole or not at all: tmp is emptied, filled, synced, renamed, and the
// parent synced. A target that exists is never touched.
func (op *Operator) fill(ctx context.Context, target, tmp string, put func(tmp string) error) error {
	home := filepath.Dir(target)
	if done, err := op.made(target); done || err != nil {
		return err
	}
	// Members of other users must reach their directories, so these may be passed through; the daemon's own
	// directory above them is private.
	for _, dir := range []string{op.dir, home} {
		if err := op.disk.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := op.disk.Sync(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := op.disk.RemoveAll(tmp); err != nil {
		return err
	}
	if err := op.disk.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	if err := put(tmp); err != nil {
		return err
	}
	if err := op.disk.Sync(tmp); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := op.disk.Rename(tmp, target); err != nil {
		return err
	}
	return op.disk.Sync(home)
}

// clear removes a Cluster's home for good: a power cut must not bring it back when the Cluster is gone.
func (op *Operator) clear(home string) error {
	if err := op.disk.RemoveAll(home); err != nil {
		return err
	}
	if err := op.disk.Sync(op.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyTree copies what is in the directory from into the directory to, which exists: files and directories with
// their permissions (a directory's owner may always write), links as links. Everything but to itself is synced.
func (op *Operator) copyTree(ctx context.Context, from, to string, who *owner) error {
	entries, err := op.disk.ReadDir(from)
	if err != nil {
		return &sourceError{err}
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		src, dst := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return &sourceError{err}
		}
		switch {
		case info.IsDir():
			if err := op.disk.Mkdir(dst, info.Mode().Perm()|0o700); err != nil {
				return err
			}
			if err := op.copyTree(ctx, src, dst, who); err != nil {
				return err
			}
			if err := op.disk.Sync(dst); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if err := op.disk.Copy(ctx, src, dst, info.Mode().Perm()); err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := op.disk.Readlink(src)
			if err != nil {
				return &sourceError{err}
			}
			if err := op.disk.Symlink(target, dst); err != nil {
				return err
			}
		default:
			return &sourceError{fmt.Errorf("%s is neither a file, a directory nor a link (%s)", src, info.Mode().Type())}
		}
		if err := op.give(dst, who); err != nil {
			return err
		}
	}
	return nil
}

// give makes who the owner of path, which is not followed.
func (op *Operator) give(path string, who *owner) error {
	if who == nil {
		return nil
	}
	return op.disk.Chown(path, who.uid, who.gid)
}
