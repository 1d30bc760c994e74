// Package watchcache is what is Kubernetes about reading and watching: lists and watches of one kind, with
// selectors, resourceVersion rules, pages, bookmarks and streaming lists, over a storage.Store.
//
// The store holds bytes at revisions; this package hands them out as Objects: one stored object at one
// revision, immutable, shared by every reader, whose other forms (decoded, another version, JSON with the
// revision in it) are made when somebody asks, once, and may be dropped again.
//
// One goroutine, the feed, reads one storage watcher for everything and appends each event to the bounded
// ring of its kind. A Watch is a cursor in that ring: it costs the writer nothing, and a slow one delays
// nobody. What lies before the ring is read through the store's own watch until the ring is reached, so a
// watch can be resumed at any revision that the store still has, across restarts.
package watchcache

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// Options of a Cache. The zero value is what a server uses.
type Options struct {
	// RingSize and RingBytes bound the recent events of a watched kind that are held in memory, by number
	// and by the size of their values; 0 means 4096 and 8 MiB. A watch further behind reads the store's
	// history.
	RingSize  int
	RingBytes int64
	// BookmarkEvery is how often a watch that allows bookmarks gets one; 0 means one minute.
	BookmarkEvery time.Duration
	Listener      Listener
	Log           *slog.Logger // nil discards
}

// Listener is told what happens; every func may be nil, and none may block.
type Listener struct {
	// Watches reports a kind's number of open watches, after each change.
	Watches func(k *resource.Kind, open int)
	// CutOff reports a watch that had fallen out of the history and was ended with 410.
	CutOff func(k *resource.Kind)
}

// Cache serves lists and watches from one store. All methods may be called concurrently.
type Cache struct {
	store storage.Store
	reg   *resource.Registry
	opts  Options

	cancel context.CancelFunc
	done   chan struct{} // closed when the feed has ended

	mu       sync.Mutex // rings; and no ring is made while a batch is being distributed
	rings    map[string]*ring
	progress atomic.Uint64 // every event at or below it is in its ring
	moved    broadcast     // progress has grown

	seed   maphash.Seed
	recent [recentSlots]atomic.Pointer[weak.Pointer[Object]]
}

// recentSlots is how many objects the cache remembers, one for each hash of a key, so that a decoded form
// outlives one request. It keeps none of them alive. Must be a power of two.
const recentSlots = 4096

// New starts a cache over store. Close ends it.
func New(store storage.Store, reg *resource.Registry, opts Options) *Cache {
	if opts.RingSize <= 0 {
		opts.RingSize = 4096
	}
	if opts.RingBytes <= 0 {
		opts.RingBytes = 8 << 20
	}
	if opts.BookmarkEvery <= 0 {
		opts.BookmarkEvery = time.Minute
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cache{
		store:  store,
		reg:    reg,
		opts:   opts,
		cancel: cancel,
		done:   make(chan struct{}),
		rings:  map[string]*ring{},
		seed:   maphash.MakeSeed(),
	}
	start := store.Status().Rev
	c.progress.Store(uint64(start))
	go c.feed(ctx, start)
	return c
}

// Close ends all watches and waits for the cache's own goroutine. The store stays open.
func (c *Cache) Close() {
	c.cancel()
	<-c.done
}

// Get finds one object in a view.
func (c *Cache) Get(view storage.View, k *resource.Kind, namespace, name string) (*Object, bool) {
	kv, ok := view.Get(resource.Key(k, namespace, name))
	if !ok {
		return nil, false
	}
	return c.Object(k, kv), true
}

// Object is the shared Object of a present value: two calls with the same kind and value give the same one
// while it is remembered.
func (c *Cache) Object(k *resource.Kind, kv *storage.KV) *Object {
	slot := c.slot(kv.Key)
	if o := remembered(slot, k, kv); o != nil {
		return o
	}
	o := newObject(k, kv, kv.Rev, storage.Rev(k.Declared))
	p := weak.Make(o)
	slot.Store(&p)
	return o
}

// remembered is what a slot has of a value; nil if that isn't it.
func remembered(slot *atomic.Pointer[weak.Pointer[Object]], k *resource.Kind, kv *storage.KV) *Object {
	p := slot.Load()
	if p == nil {
		return nil
	}
	o := p.Value()
	if o == nil || o.kv != kv || o.kind != k {
		return nil
	}
	return o
}

// peek is Object for readers of many: it doesn't push others out. born is the kind's.
func (c *Cache) peek(k *resource.Kind, kv *storage.KV, born storage.Rev) *Object {
	if o := remembered(c.slot(kv.Key), k, kv); o != nil {
		return o
	}
	return newObject(k, kv, kv.Rev, born)
}

func (c *Cache) slot(key string) *atomic.Pointer[weak.Pointer[Object]] {
	return &c.recent[maphash.String(c.seed, key)&(recentSlots-1)]
}

// join counts a watch of a kind and gives its ring, which begins at the present if it is the first.
func (c *Cache) join(k *resource.Kind) *ring {
	prefix := resource.Prefix(k, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rings[prefix]
	if r == nil {
		r = &ring{prefix: prefix, events: c.opts.RingSize, bytes: c.opts.RingBytes, floor: storage.Rev(c.progress.Load())}
		c.rings[prefix] = r
	}
	r.open++
	if f := c.opts.Listener.Watches; f != nil {
		f(k, r.open)
	}
	return r
}

// leave is join's opposite.
func (c *Cache) leave(k *resource.Kind, r *ring) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.open--
	if r.open == 0 {
		delete(c.rings, r.prefix)
	}
	if f := c.opts.Listener.Watches; f != nil {
		f(k, r.open)
	}
}

// feed distributes the store's events until the cache or the store is closed.
func (c *Cache) feed(ctx context.Context, after storage.Rev) {
	defer c.finish()
	w, err := c.store.Watch(ctx, "", after)
	for {
		var events []storage.Event
		if err == nil {
			events, err = w.Next(ctx)
		}
		switch {
		case err == nil:
			c.distribute(events, w.Progress())
		case errors.Is(err, storage.ErrCompacted):
			// The feed itself has lost its place: every ring starts again at the present, and watches
			// read what they miss from the store's history, or are told that it is gone.
			if w != nil {
				w.Close()
			}
			after = c.restart()
			c.opts.Log.Warn("watch cache fell behind the store and starts again", "revision", after)
			w, err = c.store.Watch(ctx, "", after)
		default:
			if w != nil {
				w.Close()
			}
			if ctx.Err() == nil && !errors.Is(err, storage.ErrClosed) {
				c.opts.Log.Error("watch cache ends: the store can't be watched", "err", err)
			}
			return
		}
	}
}

// distribute appends events to the rings of their kinds.
func (c *Cache) distribute(events []storage.Event, progress storage.Rev) {
	var touched []*ring
	add := func(r *ring, e *entry) {
		r.append(e)
		if !slices.Contains(touched, r) {
			touched = append(touched, r)
		}
	}
	c.mu.Lock()
	for _, e := range events {
		key := e.Key()
		if r := c.rings[kindPrefix(key)]; r != nil {
			add(r, &entry{event: e})
		}
		if prefix, ok := declared(key); ok {
			if r := c.rings[prefix]; r != nil {
				add(r, &entry{event: storage.Event{Rev: e.Rev}, fence: true, gone: e.New == nil})
			}
		}
	}
	c.progress.Store(uint64(max(progress, events[len(events)-1].Rev)))
	c.mu.Unlock()
	// Watches wake once a batch, and when progress is there too.
	for _, r := range touched {
		r.waiters.wake()
	}
	c.moved.wake()
}

// restart empties all rings and puts them at the present.
func (c *Cache) restart() storage.Rev {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.store.Status().Rev
	for _, r := range c.rings {
		r.reset(now)
		r.waiters.wake()
	}
	c.progress.Store(uint64(now))
	return now
}

// finish ends the watches.
func (c *Cache) finish() {
	close(c.done)
}
