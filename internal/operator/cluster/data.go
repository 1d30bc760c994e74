package cluster

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// owner is who files are given to. A gid of -1 leaves the group.
type owner struct{ uid, gid int }

// removedSuffix ends the name that a Cluster's home has while it is removed.
const removedSuffix = ".removed"

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
func (op *Operator) fill(step func() error, target, tmp string, put func(tmp string) error) error {
	home := filepath.Dir(target)
	if done, err := op.made(target); done || err != nil {
		return err
	}
	if err := op.settleIn(step, home); err != nil {
		return err
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
	if err := step(); err != nil {
		return err
	}
	if err := op.disk.Rename(tmp, target); err != nil {
		return err
	}
	return op.disk.Sync(home)
}

// settleIn makes a Cluster's home. Under homes, so that what is cancelled because the home is removed doesn't make it
// again, however long it hung: after this everything is done below a name that is gone then.
func (op *Operator) settleIn(step func() error, home string) error {
	op.homes.Lock()
	defer op.homes.Unlock()
	if err := step(); err != nil {
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
	return nil
}

// clear removes a Cluster's home for good: a power cut must not bring it back when the Cluster is gone. It is renamed
// first, so that nothing that still goes on in it finds it.
func (op *Operator) clear(home string) error {
	trash := home + removedSuffix
	err := op.renameHome(home, trash)
	if errors.Is(err, fs.ErrExist) { // what an earlier try has left
		if err := op.disk.RemoveAll(trash); err != nil {
			return err
		}
		err = op.renameHome(home, trash)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := op.disk.RemoveAll(trash); err != nil {
		return err
	}
	if err := op.disk.Sync(op.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (op *Operator) renameHome(home, trash string) error {
	op.homes.Lock()
	defer op.homes.Unlock()
	return op.disk.Rename(home, trash)
}

// sweep removes the homes that were being removed when the daemon ended, and whose Cluster nobody may know any more.
func (op *Operator) sweep(step func() error) error {
	entries, err := op.disk.ReadDir(op.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), removedSuffix) {
			continue
		}
		if err := step(); err != nil {
			return err
		}
		if err := op.disk.RemoveAll(filepath.Join(op.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// begin removes what the last daemon had begun to remove.
func (op *Operator) begin() {
	op.jobs.launch(func() {
		err := op.sweep(func() error { return op.jobs.ctx.Err() })
		if err != nil && !errors.Is(err, context.Canceled) {
			op.log.Warn("removed Clusters' data is left behind, and removed at the next start", "dir", op.dir, "cause", err)
		}
	})
}
