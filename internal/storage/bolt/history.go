package bolt

import (
	"bytes"
	"context"

	"operatord.io/operatord/internal/storage"
)

// readBytes bounds how much of the log one read of history goes through.
const readBytes = 4 << 20

// read returns events after a revision from the log; see mirror.History. Nothing above upTo is
// returned: it may be durable but not visible yet.
func (l *log) read(ctx context.Context, prefix string, after, upTo storage.Rev, max int) ([]storage.Event, storage.Rev, error) {
	start := []byte(prefix)
	wanted := func(key []byte) bool { return bytes.HasPrefix(key, start) }
	var events []storage.Event
	reached := after
	for gone := int64(0); reached < upTo && len(events) < max && gone < readBytes; {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		g, end, err := l.acquire(reached + 1)
		if err != nil {
			return nil, 0, err
		}
		s := scanner{f: g.f, salt: l.salt, size: end}
		off := g.from(reached + 1)
		for off < end && reached < upTo && len(events) < max && gone < readBytes {
			h, body, ok, err := s.batch(off)
			if err == nil && !ok {
				err = &CorruptError{Path: g.path, Offset: off, What: "a batch of history does not verify"}
			}
			if err != nil {
				l.release(g)
				return nil, 0, err
			}
			off += h.size()
			gone += h.size()
			if h.last() <= reached {
				continue
			}
			bare := false
			err = h.records(body, wanted, func(r record) bool {
				if r.event.Rev > reached && r.event.Rev <= upTo {
					events = append(events, r.event)
					bare = bare || r.bare
				}
				return true
			})
			if bare {
				err = storage.ErrCompacted
			}
			if err != nil {
				l.release(g)
				return nil, 0, err
			}
			reached = min(h.last(), upTo)
		}
		l.release(g)
	}
	return events, reached, nil
}

// acquire finds the segment that holds a revision and keeps it from being reclaimed until release. It
// returns the end of the batches that may be read.
func (l *log) acquire(rev storage.Rev) (*segment, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segments) - 1; i >= 0; i-- {
		g := l.segments[i]
		if g.first > rev {
			continue
		}
		g.readers++
		if !g.marked {
			next := l.segments[i+1].sequence // the active segment is always marked
			l.mu.Unlock()
			err := l.walk(g, next)
			if err != nil {
				l.release(g)
			}
			l.mu.Lock()
			if err != nil {
				return nil, 0, err
			}
		}
		return g, g.end, nil
	}
	return nil, 0, storage.ErrCompacted
}

func (l *log) release(g *segment) {
	l.mu.Lock()
	g.readers--
	last := g.dead && g.readers == 0
	l.mu.Unlock()
	if last {
		l.giveBack(g)
	}
}

// walk finds the places and the end of the batches of a segment that was there at open and has not
// been read yet. The segment behind it starts with the sequence next.
func (l *log) walk(g *segment, next uint64) error {
	g.walking.Lock()
	defer g.walking.Unlock()
	l.mu.Lock()
	done, w := g.marked, segment{size: g.size}
	l.mu.Unlock()
	if done {
		return nil
	}
	s := scanner{f: g.f, salt: l.salt, size: g.size}
	for sequence := g.sequence; sequence < next; sequence++ {
		h, ok, err := s.header(w.end)
		if err != nil {
			return err
		}
		if !ok || h.sequence != sequence {
			return &CorruptError{Path: g.path, Offset: w.end, Sequence: sequence, What: "a batch of history does not verify"}
		}
		w.note(h)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g.end, g.marks, g.marked = w.end, w.marks, true
	return nil
}
