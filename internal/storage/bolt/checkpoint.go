package bolt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"operatord.io/operatord/internal/storage"
)

// behind is what the present's file does not hold yet.
type behind struct {
	mu       sync.Mutex          // held while a batch is published: what is read under it is of one moment
	changed  map[string]struct{} // keys
	tail     int64               // bytes of log
	writing  int64               // bytes of log that the checkpoint in progress will make history of
	sequence uint64              // of the newest published batch
}

// publish makes a durable batch visible.
func (s *Store) publish(h header, events []storage.Event, grown int64) {
	b := &s.behind
	b.mu.Lock()
	s.mirror.Publish(events)
	s.present.reserve.admitted.Store(fileNeeds(s.footprints.Add(grown)))
	for _, e := range events {
		b.changed[e.Key()] = struct{}{}
	}
	b.sequence = h.sequence
	b.tail += h.size()
	due := b.tail >= s.options.CheckpointBytes
	b.mu.Unlock()
	if window := storage.Rev(s.options.HistoryRevisions); h.last() > window {
		s.mirror.Compact(h.last() - window)
	}
	if due {
		signal(s.checkpointDue)
	}
}

// waitForCheckpoint holds the committer while the log is too far ahead of the present; false when the
// store closes. It does not wait for a checkpoint that fails: then nothing more is written, and the error
// says why. For want of room that is not so: deletes make some, and the disk bounds the log.
func (s *Store) waitForCheckpoint() (bool, error) {
	for {
		s.behind.mu.Lock()
		over := s.behind.tail+s.behind.writing > 4*s.options.CheckpointBytes
		s.behind.mu.Unlock()
		if !over || s.failure() != nil {
			return true, nil
		}
		if err := s.stalled.get(); isFull(err) {
			return true, nil
		} else if err != nil {
			return true, err
		}
		select {
		case <-s.checkpointed:
		case <-s.closing:
			return false, nil
		}
	}
}

// checkpointer writes checkpoints when they are due, until the store closes. After one that failed, it
// tries again by the clock.
func (s *Store) checkpointer() {
	again := time.NewTicker(roomRetry)
	defer again.Stop()
	for {
		due, retry := s.checkpointDue, (<-chan time.Time)(nil)
		if s.stalled.get() != nil {
			due, retry = nil, again.C
		}
		if s.refusing.get() != nil {
			retry = again.C
		}
		select {
		case <-due:
		case <-retry:
			s.lookForRoom()
			if s.stalled.get() == nil {
				continue
			}
		case <-s.closing:
			return
		}
		compact := storage.Rev(0)
		if s.tight.Swap(false) {
			compact = s.log.oldestEnd(0)
		}
		_ = s.checkpoint(compact) // it has said what went wrong
	}
}

// lookForRoom ends the refusal of what grows when there is room for it again.
func (s *Store) lookForRoom() {
	footprints, r := s.footprints.Load(), &s.present.reserve
	if r.grow(s.options.reserveAhead(footprints)) == nil || fileNeeds(footprints)+smallest <= r.bytes() {
		s.roomAgain()
	}
}

// writePresent brings the file to a view: it writes the changed keys, which came from so many bytes of log; or the whole file where it
// has no room for them, where that makes it much smaller, or where it is in doubt.
func (s *Store) writePresent(view storage.View, footprints int64, changed []string, tail int64, m meta) (meta, error) {
	p := s.present
	limit := 3*s.options.reserveAhead(footprints) + rewriteSlack
	large := p.reserve.held.Load() > limit
	if large {
		if written, err := s.writeAnew(view, footprints, m); err == nil || p.doubtful {
			return written, err
		}
	}
	if !p.doubtful {
		want := 2*tail + fileFloor // a changed key brings its neighbours along
		if free, known := p.free(); known && free < want {
			s.growPresent(want-free, limit)
		}
		written, err := p.write(view, changed, m)
		if errors.Is(err, berrors.ErrMaxSizeReached) && s.growPresent(want, limit) {
			written, err = p.write(view, changed, m)
		}
		if err == nil {
			return written, nil
		}
		if !isFull(err) {
			p.doubtful = true
			return m, err
		}
	}
	return s.writeAnew(view, footprints, m)
}

// writeAnew writes all of the present into the reserve, and has that take its place.
func (s *Store) writeAnew(view storage.View, footprints int64, m meta) (meta, error) {
	p, needs := s.present, s.options.reserveAhead(footprints)
	if err := p.reserve.shrink(needs); err != nil {
		s.options.Log.Warn("the store's reserve could not be made smaller", "file", p.reserve.path, "err", err)
	}
	// Where it stays too small, rewrite says so.
	_ = p.reserve.grow(fileNeeds(footprints))
	written, err := p.rewrite(view, m)
	for errors.Is(err, berrors.ErrMaxSizeReached) && p.reserve.growReserve(2*p.reserve.size.Load()) == nil {
		written, err = p.rewrite(view, m) // keys take more than is foreseen, and there is room for it
	}
	if err != nil {
		p.doubtful = p.doubtful || !isFull(err)
		return m, err
	}
	if err := p.reserve.shrink(needs); err != nil {
		s.options.Log.Warn("the store's reserve could not be made smaller", "file", p.reserve.path, "err", err)
	}
	return written, nil
}

// rewriteSlack is how many bytes more than it needs are never worth writing a file anew.
const rewriteSlack = 3 << 20

// growPresent gives the present's file n bytes more, unless it is large enough to be written anew instead,
// and says whether it has.
func (s *Store) growPresent(n, limit int64) bool {
	n += s.present.reserve.held.Load()
	return n <= limit && s.present.reserve.growPresent(n) == nil
}

// checkpoint brings the present's file up to what is visible, forgets history up to compact or what
// the window says, and lets go of the log that is then needed for neither. What goes wrong stalls the store
// until a later one succeeds; only the log's own writes and syncs are final.
func (s *Store) checkpoint(compact storage.Rev) error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.failure(); err != nil {
		return readOnly(err)
	}
	if err := s.lost(); err != nil {
		s.fail(err)
		return readOnly(err)
	}
	err := s.tryCheckpoint(compact)
	if err == nil {
		if s.stalled.clear() {
			s.roomChanged(nil)
		}
	} else if s.stalled.set(fmt.Errorf("the checkpoint failed and is tried again: %w", err)) {
		s.roomChanged(s.stalled.get())
	}
	signal(s.checkpointed)
	return err
}

func (s *Store) tryCheckpoint(compact storage.Rev) error {
	start := time.Now()
	b := &s.behind
	b.mu.Lock()
	view, err := s.mirror.View(context.Background(), storage.Any())
	if err != nil {
		b.mu.Unlock()
		return err
	}
	changed, sequence, footprints := b.changed, b.sequence, s.footprints.Load()
	b.changed = make(map[string]struct{})
	b.writing, b.tail = b.tail, 0
	tail := b.writing
	b.mu.Unlock()

	m, before := s.durable, s.durable.compacted
	m.sequence, m.rev = sequence, view.Rev()
	m.compacted = max(m.compacted, compact, s.mirror.Compacted(), s.log.beyond(s.options.HistoryBytes))
	keys := make([]string, 0, len(changed))
	for key := range changed {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	m, err = s.writePresent(view, footprints, keys, tail, m)
	if err != nil {
		b.mu.Lock()
		for key := range changed {
			b.changed[key] = struct{}{}
		}
		b.tail += b.writing
		b.writing = 0
		b.mu.Unlock()
		return err
	}
	s.durable = m
	if err := s.present.reserve.sync(); err != nil {
		s.options.Log.Warn("the store's reserve is not durable", "err", err)
	}
	s.mirror.Compact(m.compacted)
	s.log.reclaim(m.sequence, m.compacted)
	b.mu.Lock()
	b.writing = 0
	b.mu.Unlock()
	s.options.Listener.Checkpointed(len(keys), time.Since(start))
	if m.compacted > before {
		s.options.Listener.Compacted(m.compacted)
	}
	return nil
}
