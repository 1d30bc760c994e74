package watchcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

const (
	// batch is how many events a watch takes from its ring at once.
	batch = 64
	// initialBatch is how many initial events one Next returns.
	initialBatch = 500
	// fenceWait is how long a watch whose kind is gone waits for the event that made it so. It comes at
	// once when the CRD's own event closed the kind.
	fenceWait = time.Second
)

// Watch is one open watch. Next is for one goroutine; the other methods may be called from any.
type Watch struct {
	cache *Cache
	ring  *ring
	m     *matcher
	opts  ListOptions

	initial  []*Object // still to be sent as ADDED
	endMark  bool      // then a bookmark that ends them
	history  storage.Watcher
	rev      storage.Rev   // everything up to here was returned
	failed   error         // what Next returns after the initial events
	told     storage.Rev   // the last revision that the client knows
	bookmark time.Time     // when the next is due; zero: never
	deadline time.Time     // zero: none
	goneAt   time.Time     // when the kind was seen to be gone
	patience time.Duration // how long a read of the history isn't interrupted

	events []Event
	timer  *time.Timer

	reached atomic.Uint64 // rev, for other goroutines
	wanted  atomic.Uint64 // a bookmark is asked for as soon as rev is there
	poke    chan struct{}

	close  sync.Once
	closed chan struct{}
	mu     sync.Mutex // history, between Next and Close
}

// Watch opens a watch. Errors are API errors about the options; whatever else goes wrong (the revision is
// gone, or isn't reached within 3 s) is Next's first error, because it belongs into the stream.
//
// It starts after opts.ResourceVersion. Without one, and at "0", what is there comes first as ADDED events,
// unless SendInitialEvents is false. With SendInitialEvents it comes first at any resourceVersion, from a
// state not older than that, and, if AllowBookmarks is set, a Bookmark with InitialEventsEnd ends it.
func (c *Cache) Watch(ctx context.Context, k *resource.Kind, opts ListOptions) (*Watch, error) {
	if err := opts.validate(true); err != nil {
		return nil, err
	}
	m, err := newMatcher(k, &opts)
	if err != nil {
		return nil, err
	}
	rev, err := ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	m.born = storage.Rev(k.Declared)
	w := &Watch{
		cache:  c,
		ring:   c.join(k),
		m:      m,
		opts:   opts,
		poke:   make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	w.start(ctx, rev)
	now := time.Now()
	if opts.Timeout > 0 {
		w.deadline = now.Add(opts.Timeout)
	}
	if opts.AllowBookmarks {
		if w.opts.BookmarkEvery <= 0 {
			w.opts.BookmarkEvery = c.opts.BookmarkEvery
		}
		w.bookmark = now.Add(w.opts.BookmarkEvery)
	}
	return w, nil
}

// start finds out where the watch begins and what it sends first.
func (w *Watch) start(ctx context.Context, rev storage.Rev) {
	send := w.opts.SendInitialEvents
	if send == nil && rev > 0 || send != nil && !*send {
		if rev == 0 {
			view, err := w.cache.View(ctx, w.opts.ResourceVersion)
			if err != nil {
				w.failed = err
				return
			}
			rev = view.Rev()
		}
		if w.failed = w.cache.beforeKind(ctx, w.m.kind, rev); w.failed != nil {
			return
		}
		w.at(rev)
		w.told = rev
		return
	}
	view, err := w.cache.View(ctx, w.opts.ResourceVersion)
	if err != nil {
		w.failed = err
		return
	}
	list, err := w.cache.list(view, w.m, page{from: w.m.prefix()})
	if err != nil {
		w.failed = err
		return
	}
	w.initial = list.Objects
	w.endMark = send != nil && w.opts.AllowBookmarks
	w.at(view.Rev())
}

// beforeKind is a 410 for a revision at which a declared kind didn't exist.
func (c *Cache) beforeKind(ctx context.Context, k *resource.Kind, rev storage.Rev) error {
	if !k.Custom {
		return nil
	}
	view, err := c.view(ctx, storage.Any())
	if err != nil {
		return err
	}
	crd, ok := view.Get(crdPrefix + k.Plural + "." + k.Group)
	if !ok || rev >= crd.Created {
		return nil
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, crd.Created))
}

func (w *Watch) at(rev storage.Rev) {
	w.rev = rev
	w.reached.Store(uint64(rev))
}

// Kind is the kind that is watched, as it was when the watch was opened.
func (w *Watch) Kind() *resource.Kind { return w.m.kind }

// Rev is a revision up to which Next has returned everything.
func (w *Watch) Rev() uint64 { return w.reached.Load() }

// Progress asks for a bookmark, whatever AllowBookmarks says, as soon as Next has returned everything up to
// rev: for a reader in this process that wants to know when it is as far as a write elsewhere.
func (w *Watch) Progress(rev uint64) {
	for {
		have := w.wanted.Load()
		if have >= rev || w.wanted.CompareAndSwap(have, rev) {
			break
		}
	}
	select {
	case w.poke <- struct{}{}:
	default: // it is going to look already
	}
}

// Close ends the watch; Next returns io.EOF from then on. It may be called more than once.
func (w *Watch) Close() {
	w.close.Do(func() {
		w.mu.Lock()
		close(w.closed)
		if w.history != nil {
			w.history.Close() // Next may never be called again
		}
		w.mu.Unlock()
		w.cache.leave(w.m.kind, w.ring)
	})
}

// Next waits for events and returns at least one, oldest first. It returns io.EOF when the watch has ended
// in order (its Timeout is over, its kind has changed or gone, the cache was closed), the context's error,
// or an API error that belongs into an ERROR event: 410 Expired when the watch fell out of the history.
// After an error that isn't the context's the watch has ended. The slice is the caller's until the next call.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	if cap(w.events) > batch {
		w.events = nil // a burst is over; a thousand idle watches shouldn't keep theirs
	}
	w.events = w.events[:0]
	for {
		select {
		case <-w.closed:
			w.release()
			return nil, io.EOF
		default:
		}
		if len(w.initial) > 0 || w.endMark {
			w.sendInitial()
			return w.events, nil
		}
		if w.failed != nil {
			return nil, w.fail(w.failed)
		}
		var err error
		if w.ring.covers(w.rev) {
			w.release()
			err = w.live(ctx)
		} else {
			err = w.catchUp(ctx)
		}
		if len(w.events) > 0 {
			// What came before the error is delivered first; the error comes again or was kept.
			if err != nil && ctx.Err() == nil {
				w.failed = err
			}
			return w.events, nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, w.fail(err)
		}
	}
}

// sendInitial puts out a batch of initial events.
func (w *Watch) sendInitial() {
	n := min(len(w.initial), initialBatch)
	for _, o := range w.initial[:n] {
		w.events = append(w.events, Event{Type: Added, Object: o, Rev: o.Rev()})
	}
	w.initial = w.initial[n:]
	if len(w.initial) > 0 {
		return
	}
	w.initial = nil
	if w.endMark {
		w.endMark = false
		w.told = w.rev
		w.events = append(w.events, Event{Type: Bookmark, Rev: uint64(w.rev), InitialEventsEnd: true})
	}
}

// live takes what the ring has, or waits for more. It returns without events when it is worth looking again.
func (w *Watch) live(ctx context.Context) error {
	woken := w.ring.waiters.wait()
	progress := storage.Rev(w.cache.progress.Load())
	var entries [batch]*entry
	n, more, ok := w.ring.after(w.rev, entries[:])
	if !ok {
		return nil // fell out of the ring just now
	}
	for _, e := range entries[:n] {
		if e.fence {
			if w.ended(e) {
				w.at(e.event.Rev)
				return io.EOF
			}
		} else if err := w.add(e); err != nil {
			return err
		}
		w.at(e.event.Rev)
	}
	if !more && progress > w.rev {
		// Every event up to progress was in the ring before progress was read.
		w.at(progress)
	}
	now := time.Now()
	if w.due(now) {
		return io.EOF
	}
	if len(w.events) > 0 || more {
		return nil
	}
	return w.wait(ctx, woken, now)
}

// add evaluates one entry.
func (w *Watch) add(e *entry) error {
	ev, ok, err := w.m.event(e)
	if err != nil {
		return err
	}
	if ok {
		w.events = append(w.events, ev)
		w.told = e.event.Rev
	}
	return nil
}

// ended tells whether a fence is the one at which this watch ends.
func (w *Watch) ended(e *entry) bool {
	if !w.kindGone() {
		return false
	}
	if e.gone {
		return true
	}
	// Not the CRD's deletion: its objects' own deletions may still follow, unless the kind is served on,
	// where a new watch goes on from here.
	_, served := w.cache.reg.ByResource(w.m.kind.GroupResource())
	return served
}

func (w *Watch) kindGone() bool {
	select {
	case <-w.m.kind.Done():
		return true
	default:
		return false
	}
}

// due puts out a bookmark if it is time for one or somebody asked, and tells whether the watch is over.
func (w *Watch) due(now time.Time) (over bool) {
	over = !w.deadline.IsZero() && !now.Before(w.deadline)
	wanted := storage.Rev(w.wanted.Load())
	asked := wanted > 0 && w.rev >= wanted
	if asked {
		w.wanted.CompareAndSwap(uint64(wanted), 0)
	}
	timed := !w.bookmark.IsZero() && (over || !now.Before(w.bookmark))
	if timed {
		w.bookmark = now.Add(w.opts.BookmarkEvery)
	}
	if asked || timed && w.rev > w.told {
		w.told = w.rev
		w.events = append(w.events, Event{Type: Bookmark, Rev: uint64(w.rev)})
	}
	return over
}

// wait sleeps until there is something to do. woken was taken before the ring was read.
func (w *Watch) wait(ctx context.Context, woken <-chan struct{}, now time.Time) error {
	wake, done, over := w.wake(now)
	if over {
		return io.EOF
	}
	var alarm <-chan time.Time
	if !wake.IsZero() {
		alarm = w.alarm(wake.Sub(now))
		defer w.timer.Stop()
	}
	var moved <-chan struct{}
	if wanted := storage.Rev(w.wanted.Load()); wanted > 0 {
		moved = w.cache.moved.wait()
		if storage.Rev(w.cache.progress.Load()) >= wanted {
			return nil
		}
	}
	select {
	case <-woken:
	case <-moved:
	case <-w.poke:
	case <-alarm:
	case <-done:
	case <-w.closed:
	case <-w.cache.done:
		return io.EOF
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// wake tells when there is something to do at the latest, which channel says that the kind has gone, if that
// isn't known yet, and whether the watch has waited long enough after it has.
func (w *Watch) wake(now time.Time) (at time.Time, done <-chan struct{}, over bool) {
	at = w.deadline
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !w.bookmark.IsZero() {
		earlier(w.bookmark)
	}
	if !w.kindGone() {
		return at, w.m.kind.Done(), false
	}
	if w.goneAt.IsZero() {
		w.goneAt = now
	}
	earlier(w.goneAt.Add(fenceWait))
	return at, nil, now.Sub(w.goneAt) >= fenceWait
}

func (w *Watch) alarm(d time.Duration) <-chan time.Time {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	return w.timer.C
}

// catchUp reads what lies before the ring from the store's history.
func (w *Watch) catchUp(ctx context.Context) error {
	if w.history == nil {
		h, err := w.cache.store.Watch(ctx, w.m.prefix(), w.rev)
		if err != nil {
			return w.lost(err)
		}
		w.open(h)
	}
	if p := w.history.Progress(); p > w.rev && w.ring.covers(p) {
		w.at(p)
		return nil
	}
	bounded, cancel, over := w.bound(ctx)
	if over {
		return io.EOF
	}
	from := w.rev
	events, err := w.history.Next(bounded)
	interrupted := bounded.Err() != nil
	cancel()
	for _, e := range events {
		if e.Rev <= w.rev {
			continue
		}
		if err := w.add(&entry{event: e}); err != nil {
			return err
		}
		w.at(e.Rev)
	}
	if p := w.history.Progress(); p > w.rev && err == nil {
		w.at(p)
	}
	if w.rev > from {
		w.patience = 0
	}
	if w.due(time.Now()) {
		return io.EOF
	}
	if err == nil || interrupted && ctx.Err() == nil {
		return w.cacheClosed()
	}
	return w.lost(err)
}

func (w *Watch) cacheClosed() error {
	select {
	case <-w.cache.done:
		return io.EOF
	default:
		return nil
	}
}

// bound is ctx, also ended by what interrupts a wait for the store's history. That is soon, because a history
// in which nothing more matches tells how far it has come only between two waits; but each time later, so that
// a slow read of the disk comes to its end.
func (w *Watch) bound(ctx context.Context) (bounded context.Context, cancel context.CancelFunc, over bool) {
	now := time.Now()
	wake, done, over := w.wake(now)
	if over {
		return nil, nil, true
	}
	w.patience = min(2*w.patience+5*time.Millisecond, time.Second)
	if look := now.Add(w.patience); wake.IsZero() || look.Before(wake) {
		wake = look
	}
	bounded, stop := context.WithDeadline(ctx, wake)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-w.closed:
		case <-w.cache.done:
		case <-done:
		case <-bounded.Done():
		}
		stop()
	}()
	return bounded, func() {
		stop()
		<-ended
	}, false
}

// lost makes an API error of a store watcher's.
func (w *Watch) lost(err error) error {
	switch {
	case errors.Is(err, storage.ErrCompacted):
		w.release()
		if f := w.cache.opts.Listener.CutOff; f != nil {
			f(w.m.kind)
		}
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.rev, w.cache.store.Status().Compacted))
	case errors.Is(err, storage.ErrClosed):
		return io.EOF
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return apierrors.NewInternalError(err)
}

// fail ends the watch with an error, which every later Next gives again as io.EOF.
func (w *Watch) fail(err error) error {
	w.release()
	w.Close()
	return err
}

// open takes a watcher of the store's to read the history with.
func (w *Watch) open(h storage.Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = h
	select {
	case <-w.closed:
		h.Close()
	default:
	}
}

// release gives up the store's watcher.
func (w *Watch) release() {
	if w.history == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Close()
	w.history = nil
}
