package mirror

import (
	"context"
	"sync"
	"sync/atomic"

	"operatord.io/operatord/internal/storage"
)

// hub knows who waits for what. Watchers of one prefix are one group. A single goroutine (notify)
// looks at each published event once and wakes the groups it concerns; the publisher only kicks it.
type hub struct {
	kicked chan struct{} // of capacity 1: there is something new
	closed chan struct{}

	scanned atomic.Uint64 // notify has looked at all events up to this revision; written with mu held

	mu      sync.Mutex
	isDone  bool
	groups  map[string]*group
	lengths map[int]int // how many groups have a prefix of that length
	views   map[*viewWait]struct{}
}

// group is all watchers of one prefix.
type group struct {
	prefix   string
	watchers int
	wake     chan struct{} // closed at the next matching event; nil while nobody waits
	hit      bool          // there was one in this round of notify

	// No event in (last, hub.scanned] has the prefix: a watcher at last or later has nothing to read.
	last storage.Rev
	// Neither has one in (quietFrom, quietTo], the latest such gap: a watcher in it may skip its rest.
	quietFrom, quietTo storage.Rev
}

type viewWait struct {
	rev   storage.Rev
	ready chan struct{}
}

func (h *hub) init(rev storage.Rev) {
	h.kicked = make(chan struct{}, 1)
	h.closed = make(chan struct{})
	h.scanned.Store(uint64(rev))
	h.groups = make(map[string]*group)
	h.lengths = make(map[int]int)
	h.views = make(map[*viewWait]struct{})
}

func (h *hub) kick() {
	select {
	case h.kicked <- struct{}{}:
	default: // it will see this batch too
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isDone {
		h.isDone = true
		close(h.closed)
	}
}

func (h *hub) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// wait blocks until now() is at r.
func (h *hub) wait(ctx context.Context, r storage.Rev, now func() storage.Rev) error {
	if now() >= r {
		return nil
	}
	w := &viewWait{rev: r, ready: make(chan struct{})}
	h.mu.Lock()
	h.views[w] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.views, w)
		h.mu.Unlock()
	}()
	if now() >= r { // it was published before notify could know of us
		return nil
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.closed:
		return storage.ErrClosed
	}
}

// join puts a watcher into the group of its prefix.
func (h *hub) join(prefix string, now func() storage.Rev) (*group, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDone {
		return nil, storage.ErrClosed
	}
	g, ok := h.groups[prefix]
	if !ok {
		// What was published before is unknown to the group: assume that it matches.
		rev := now()
		g = &group{prefix: prefix, last: rev, quietFrom: rev, quietTo: rev}
		h.groups[prefix] = g
		h.lengths[len(prefix)]++
	}
	g.watchers++
	return g, nil
}

func (h *hub) leave(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.watchers--; g.watchers > 0 {
		return
	}
	delete(h.groups, g.prefix)
	if h.lengths[len(g.prefix)]--; h.lengths[len(g.prefix)] == 0 {
		delete(h.lengths, len(g.prefix))
	}
}

// advance says how far a watcher of the group at pos has come without reading anything, and whether
// there may be something to read. If not, wake tells when there is.
func (h *hub) advance(g *group, pos storage.Rev) (to storage.Rev, pending bool, wake <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pos >= g.last {
		if g.wake == nil {
			g.wake = make(chan struct{})
		}
		return max(pos, storage.Rev(h.scanned.Load())), false, g.wake
	}
	if pos >= g.quietFrom && pos < g.quietTo {
		pos = g.quietTo
	}
	return pos, true, nil
}

// notify tells groups and waiting views what was published, until the context ends.
func (m *Mirror) notify(ctx context.Context) {
	h := &m.hub
	for {
		select {
		case <-h.kicked:
		case <-ctx.Done():
			return
		}
		for m.notifyOnce() {
		}
	}
}

// notifyOnce looks at the next part of the ring and says whether there may be more.
func (m *Mirror) notifyOnce() bool {
	h := &m.hub
	from := storage.Rev(h.scanned.Load())
	m.ringMu.RLock()
	now := m.Rev()
	batches, reached, ok := m.ring.after(from, readBatches)
	if !ok || reached >= m.ring.newest() {
		reached = max(from, now)
	}
	m.ringMu.RUnlock()
	if reached == from {
		return false
	}

	var hit []*group
	var woken []chan struct{} // closed without the lock: a thousand sleepers take a while to ready
	h.mu.Lock()
	if ok {
		for _, events := range batches {
			for _, e := range events {
				hit = h.match(e, hit)
			}
		}
	} else {
		// The ring has run away: what left it may have matched anyone.
		for _, g := range h.groups {
			hit = g.saw(now, from, hit)
		}
	}
	h.scanned.Store(uint64(reached))
	for _, g := range hit {
		g.hit = false
		if g.wake != nil {
			woken = append(woken, g.wake)
			g.wake = nil
		}
	}
	for w := range h.views {
		if w.rev <= now {
			woken = append(woken, w.ready)
			delete(h.views, w)
		}
	}
	h.mu.Unlock()
	for _, wake := range woken {
		close(wake)
	}
	return true
}

// match marks every group whose prefix the event's key has.
func (h *hub) match(e storage.Event, hit []*group) []*group {
	key := e.Key()
	for n := range h.lengths {
		if n > len(key) {
			continue
		}
		if g, ok := h.groups[key[:n]]; ok {
			hit = g.saw(e.Rev, e.Rev-1, hit)
		}
	}
	return hit
}

// saw notes an event at rev, none other being in (last, quiet].
func (g *group) saw(rev, quiet storage.Rev, hit []*group) []*group {
	if rev <= g.last {
		return hit // it was published before the group came into being
	}
	if quiet > g.last {
		g.quietFrom, g.quietTo = g.last, quiet
	}
	g.last = rev
	if !g.hit {
		g.hit = true
		hit = append(hit, g)
	}
	return hit
}
