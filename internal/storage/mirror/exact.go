package mirror

import (
	"context"
	"sync"

	"operatord.io/operatord/internal/storage"
)

// maxExact is how many old views are kept. Each keeps alive what was replaced since, so they are few;
// pages of one list ask for the same one again and again.
const maxExact = 8

// exactViews are the old views asked for last, the most recent first.
type exactViews struct {
	mu    sync.Mutex
	views []*view
}

func (x *exactViews) get(r storage.Rev) (*view, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, v := range x.views {
		if v.rev == r {
			copy(x.views[1:i+1], x.views[:i])
			x.views[0] = v
			return v, true
		}
	}
	return nil, false
}

// above is the kept view nearest to r that is newer.
func (x *exactViews) above(r storage.Rev) (best *view) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.views {
		if v.rev > r && (best == nil || v.rev < best.rev) {
			best = v
		}
	}
	return best
}

func (x *exactViews) put(v *view) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.views) < maxExact {
		x.views = append(x.views, nil)
	}
	copy(x.views[1:], x.views)
	x.views[0] = v
}

// forget drops views below r.
func (x *exactViews) forget(r storage.Rev) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.views[:0]
	for _, v := range x.views {
		if v.rev >= r {
			kept = append(kept, v)
		}
	}
	clear(x.views[len(kept):])
	x.views = kept
}

// exactly is the view at r: the one at hand, a kept one, or the nearest newer one with what came after
// r undone.
func (m *Mirror) exactly(ctx context.Context, r storage.Rev) (storage.View, error) {
	now := m.latest()
	switch {
	case r > now.rev:
		return nil, storage.ErrFuture
	case r < m.Compacted():
		return nil, storage.ErrCompacted
	case r == now.rev:
		return now, nil
	}
	if v, ok := m.exact.get(r); ok {
		return v, nil
	}
	base := now
	if v := m.exact.above(r); v != nil && v.rev < base.rev {
		base = v
	}
	v, err := m.undo(ctx, base, r)
	if err != nil {
		return nil, err
	}
	m.exact.put(v)
	return v, nil
}

// undo makes the view at r of a newer one. Going forward, the first event of a key after r says what
// the key was at r; later ones don't matter.
func (m *Mirror) undo(ctx context.Context, base *view, r storage.Rev) (*view, error) {
	before := make(map[string]*storage.KV)
	for at := r; at < base.rev; {
		batches, reached, err := m.read(ctx, "", at)
		if err != nil {
			return nil, err
		}
		for _, events := range batches {
			for _, e := range events {
				if e.Rev > base.rev {
					break
				}
				if _, seen := before[e.Key()]; !seen {
					before[e.Key()] = e.Old
				}
			}
		}
		at = reached
	}
	base.mu.Lock() // Clone marks both sides as sharing their nodes
	t := base.tree.Clone()
	base.mu.Unlock()
	for key, old := range before {
		if old != nil {
			t.ReplaceOrInsert(old)
		} else {
			t.Delete(&storage.KV{Key: key})
		}
	}
	return &view{rev: r, tree: t}, nil
}

// readBatches and readEvents bound what one read of the past returns.
const (
	readBatches = 256
	readEvents  = 1024
)

// read gives what follows a revision, from the ring or else from the backend's history, and the
// revision up to which that is everything. The ring's events are not filtered by prefix; history's
// are.
func (m *Mirror) read(ctx context.Context, prefix string, after storage.Rev) ([][]storage.Event, storage.Rev, error) {
	m.ringMu.RLock()
	batches, reached, ok := m.ring.after(after, readBatches)
	if now := m.Rev(); ok && reached >= m.ring.newest() {
		reached = max(after, now) // a revision need not have an event
	}
	m.ringMu.RUnlock()
	if ok {
		return batches, reached, nil
	}
	if m.history == nil {
		return nil, 0, storage.ErrCompacted
	}
	events, reached, err := m.history.Read(ctx, prefix, after, readEvents)
	if err != nil {
		return nil, 0, err
	}
	if len(events) == 0 {
		return nil, reached, nil
	}
	return [][]storage.Event{events}, reached, nil
}
