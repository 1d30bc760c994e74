package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// hangs is how long the committer may be at one batch before the store says that it can't be written.
const hangs = 5 * time.Second

// stopwatch knows since when the committer has been at something. It is asked by others, and costs it no
// more than an atomic store.
type stopwatch struct {
	epoch time.Time
	since atomic.Int64 // of epoch, nanoseconds; 0 while the committer is idle
}

func (w *stopwatch) start() { w.since.Store(max(1, int64(time.Since(w.epoch)))) }
func (w *stopwatch) stop()  { w.since.Store(0) }

// running is for how long; 0 while the committer is idle.
func (w *stopwatch) running() time.Duration {
	since := w.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(w.epoch) - time.Duration(since)
}

// hanging is an error if the disk has not answered the committer for long.
func (s *Store) hanging() error {
	if d := s.committing.running(); d > hangs {
		return fmt.Errorf("storage: a write to %s has been waiting for the disk for %v", s.options.Dir, d.Round(time.Second))
	}
	return nil
}

// lost is an error if the store's files aren't what is found under their names any more: somebody has
// removed or replaced them, and what is written goes nowhere.
func (s *Store) lost() error {
	if err := s.present.reserve.lost(s.present.path); err != nil {
		return err
	}
	if g := s.log.active(); g != nil && g.f.Replaced() {
		return gone(g.path)
	}
	return nil
}

func gone(path string) error {
	return fmt.Errorf("storage: %s was removed or replaced while it was in use. Put the last good copy of %s in its place, and restart", path, filepath.Dir(path))
}

// lost says whether the present's file has another name than its own. It doesn't wait for whoever changes
// the files.
func (r *reserve) lost(presentPath string) error {
	if !r.mu.TryLock() {
		return nil
	}
	defer r.mu.Unlock()
	ours, err := r.present.Stat()
	if err != nil {
		return nil
	}
	found, err := os.Stat(presentPath)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(ours, found) {
		return gone(presentPath)
	}
	return nil
}
