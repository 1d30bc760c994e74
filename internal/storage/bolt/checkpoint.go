package bolt

import (
	"context"
	"slices"
	"sync"
	"time"

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
func (s *Store) publish(h header, events []storage.Event) {
	b := &s.behind
	b.mu.Lock()
	s.mirror.Publish(events)
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
// store closes. It does not wait for room on the disk: what may still be written is another question.
func (s *Store) waitForCheckpoint() bool {
	for {
		s.behind.mu.Lock()
		over := s.behind.tail+s.behind.writing > 4*s.options.CheckpointBytes
		s.behind.mu.Unlock()
		if !over || s.failure() != nil || s.noRoom.get() != nil {
			return true
		}
		select {
		case <-s.checkpointed:
		case <-s.closing:
			return false
		}
	}
}

// checkpointer writes checkpoints when they are due, until the store closes. While there is no room
// for one, it tries by the clock.
func (s *Store) checkpointer() {
	for {
		due, retry := s.checkpointDue, (<-chan time.Time)(nil)
		if s.noRoom.get() != nil {
			due, retry = nil, time.After(roomRetry)
		}
		select {
		case <-due:
		case <-retry:
		case <-s.closing:
			return
		}
		compact := storage.Rev(0)
		if s.tight.Swap(false) {
			compact = s.log.beforeActive()
		}
		if compact > s.mirror.Compacted() {
			s.options.Log.Warn("history is given up for room", "up to", compact)
		}
		err := s.checkpoint(compact)
		switch {
		case err == nil:
			if s.noRoom.clear() {
				s.roomChanged(nil)
			}
		case isFull(err):
			if s.noRoom.set(err) {
				s.roomChanged(err)
			}
		default:
			s.options.Log.Error("checkpoint failed", "err", err)
		}
		signal(s.checkpointed)
	}
}

// writePresent writes the changed keys, or the whole file where that makes it much smaller.
func (s *Store) writePresent(view storage.View, changed []string, m meta) (meta, error) {
	if s.present.mostlyFree() {
		written, err := s.present.rewrite(view, m)
		if err == nil {
			return written, nil
		}
		if !isFull(err) {
			return m, err
		}
		s.options.Log.Warn("no room to make the store's file smaller", "file", s.present.path, "err", err)
	}
	return s.present.write(view, changed, m)
}

// roomChanged reports that the disk has filled up, or with nil that it has room again.
func (s *Store) roomChanged(err error) {
	if err != nil {
		s.options.Log.Error("no room: creates and larger values are refused", "err", err)
		s.options.Listener.Failed(err)
	} else if s.full() == nil {
		s.options.Log.Info("there is room again")
		s.options.Listener.Failed(s.failure())
	}
}

// full says why the store has no room, nil if it has.
func (s *Store) full() error {
	if err := s.noRoom.get(); err != nil {
		return err
	}
	return s.log.full()
}

// checkpoint brings the present's file up to what is visible, forgets history up to compact or what
// the window says, and lets go of the log that is then needed for neither.
func (s *Store) checkpoint(compact storage.Rev) error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.failure(); err != nil {
		return readOnly(err)
	}
	start := time.Now()
	b := &s.behind
	b.mu.Lock()
	view, err := s.mirror.View(context.Background(), storage.Any())
	if err != nil {
		b.mu.Unlock()
		return err
	}
	changed, sequence := b.changed, b.sequence
	b.changed = make(map[string]struct{})
	b.writing, b.tail = b.tail, 0
	b.mu.Unlock()

	m, before := s.durable, s.durable.compacted
	m.sequence, m.rev = sequence, view.Rev()
	m.compacted = max(m.compacted, compact, s.mirror.Compacted(), s.log.beyond(s.options.HistoryBytes))
	keys := make([]string, 0, len(changed))
	for key := range changed {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	m, err = s.writePresent(view, keys, m)
	if err != nil {
		b.mu.Lock()
		for key := range changed {
			b.changed[key] = struct{}{}
		}
		b.tail += b.writing
		b.writing = 0
		b.mu.Unlock()
		if !isFull(err) {
			s.fail(err)
		}
		return err
	}
	s.durable = m
	s.mirror.Compact(m.compacted)
	s.log.reclaim(m.sequence, m.compacted)
	b.mu.Lock()
	b.writing = 0
	b.mu.Unlock()
	signal(s.checkpointed)
	s.options.Listener.Checkpointed(len(keys), time.Since(start))
	if m.compacted > before {
		s.options.Listener.Compacted(m.compacted)
	}
	return nil
}
