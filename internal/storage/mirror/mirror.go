// Package mirror holds a store's present and its recent past in memory, for any backend.
//
// A backend loads it with the keys it found and then publishes every batch of events, in order of
// revision, once it is durable. The present is a copy-on-write tree: a view is a clone of it, made when
// a reader asks and the last one is stale, so at most once a batch. The past is one bounded ring of
// events; a watcher is a revision in it and nothing else, so a thousand watchers cost no more memory
// than one. One goroutine, not the publisher, finds out which watchers a batch concerns and wakes only
// those. What has left the ring is read from the backend's History, while that still has it.
package mirror

import (
	"context"
	"sync"
	"sync/atomic"

	"operatord.io/operatord/internal/storage"
)

// History is the backend's durable past, for what has left the ring. It may be called concurrently.
type History interface {
	// Read returns events of keys with the prefix after a revision, oldest first, and the revision up
	// to which these are all there are: at least one event's worth of progress if the history holds
	// anything after the revision, and not much more than max events. ErrCompacted when history no
	// longer reaches back to after.
	Read(ctx context.Context, prefix string, after storage.Rev, max int) (events []storage.Event, reached storage.Rev, err error)
}

// Options bound the ring. The zero value of each is a default.
type Options struct {
	RingEvents int   // events kept in memory; 8192
	RingBytes  int64 // bytes their keys and values may hold; 16 MiB
	History    History
	Listener   storage.Listener
}

// Mirror is a store's present and recent past. All methods may be called concurrently, but there is
// one publisher.
type Mirror struct {
	history  History
	listener storage.Listener

	// rev is written with treeMu and ringMu held, after tree and ring have the batch: who reads r here
	// finds r in both.
	rev       atomic.Uint64
	compacted atomic.Uint64
	last      atomic.Pointer[view] // the last view that was taken

	treeMu sync.Mutex
	tree   *tree

	ringMu sync.RWMutex
	ring   ring

	exact   exactViews
	hub     hub
	closing context.CancelFunc
	done    sync.WaitGroup
}

// New makes a mirror at a revision. Keys are those present at it; history at or below compacted is
// gone, and what lies between is History's. Close it to end its goroutine.
func New(rev, compacted storage.Rev, keys []*storage.KV, o Options) *Mirror {
	if o.RingEvents == 0 {
		o.RingEvents = 8192
	}
	if o.RingBytes == 0 {
		o.RingBytes = 16 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Mirror{
		history:  o.History,
		listener: o.Listener.OrSilent(),
		tree:     newTree(),
		ring:     newRing(rev, o.RingEvents, o.RingBytes),
		closing:  cancel,
	}
	for _, kv := range keys {
		m.tree.ReplaceOrInsert(kv)
	}
	m.rev.Store(uint64(rev))
	m.compacted.Store(uint64(compacted))
	m.hub.init(rev)
	m.done.Go(func() { m.notify(ctx) })
	return m
}

// Close ends every watcher and waiting view with ErrClosed. Views that were taken stay good.
func (m *Mirror) Close() {
	m.hub.close()
	m.closing()
	m.done.Wait()
}

// Rev is the newest visible revision, Compacted the one up to which history is gone, Len the number of
// present keys.
func (m *Mirror) Rev() storage.Rev       { return storage.Rev(m.rev.Load()) }
func (m *Mirror) Compacted() storage.Rev { return storage.Rev(m.compacted.Load()) }

func (m *Mirror) Len() int {
	m.treeMu.Lock()
	defer m.treeMu.Unlock()
	return m.tree.Len()
}

// Get is a key's present state. It takes no view, so that the publisher's own reads cost no clone.
func (m *Mirror) Get(key string) (*storage.KV, bool) {
	m.treeMu.Lock()
	defer m.treeMu.Unlock()
	return m.tree.Get(&storage.KV{Key: key})
}

// Publish makes the next batch visible, all of it at once. The events and their slice belong to the
// mirror from now on.
func (m *Mirror) Publish(events []storage.Event) {
	if len(events) == 0 {
		return
	}
	m.treeMu.Lock()
	for _, e := range events {
		if e.New != nil {
			m.tree.ReplaceOrInsert(e.New)
		} else {
			m.tree.Delete(e.Old)
		}
	}
	m.ringMu.Lock()
	m.ring.push(events, storage.Rev(m.hub.scanned.Load()))
	m.rev.Store(uint64(events[len(events)-1].Rev))
	m.ringMu.Unlock()
	m.treeMu.Unlock()
	m.hub.kick()
}

// Compact forgets history up to and including r, which is not above Rev. It never goes back.
func (m *Mirror) Compact(r storage.Rev) {
	for {
		old := m.compacted.Load()
		if uint64(r) <= old {
			return
		}
		if m.compacted.CompareAndSwap(old, uint64(r)) {
			m.exact.forget(r)
			return
		}
	}
}

// latest is the view of the newest revision.
func (m *Mirror) latest() *view {
	if v := m.last.Load(); v != nil && uint64(v.rev) == m.rev.Load() {
		return v
	}
	m.treeMu.Lock()
	defer m.treeMu.Unlock()
	v := m.last.Load()
	if v == nil || uint64(v.rev) != m.rev.Load() {
		v = &view{rev: m.Rev(), tree: m.tree.Clone()}
		m.last.Store(v)
	}
	return v
}

// View is the store at one revision. Latest, and Any, is the newest that was published: a backend
// whose truth lies elsewhere makes sure first that it has been.
func (m *Mirror) View(ctx context.Context, at storage.At) (storage.View, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.hub.isClosed() {
		return nil, storage.ErrClosed
	}
	if r, ok := at.ExactRev(); ok {
		return m.exactly(ctx, r)
	}
	if r, ok := at.NotOlderRev(); ok {
		if err := m.hub.wait(ctx, r, m.Rev); err != nil {
			return nil, err
		}
	}
	return m.latest(), nil
}
