package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

func rev(r storage.Rev) string { return strconv.FormatUint(uint64(r), 10) }

// S02: a watch from a list's revision gives what came after, once.
func TestS02WatchStartsAfterTheList(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.put(f.widget, thing{name: fmt.Sprint("w", i)})
	}
	l := f.list(f.widget, watchcache.ListOptions{})
	r := f.put(f.widget, thing{name: "late"})
	s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: strconv.FormatUint(l.Rev, 10)})
	s.expect(at(watchcache.Added, "late", r))
	s.quiet(r)
}

// S04: a DELETED event has the deletion's revision, from which the watch can be resumed.
func TestS04DeletedHasItsOwnRevision(t *testing.T) {
	f := newFixture(t)
	a := f.put(f.widget, thing{name: "a"})
	f.put(f.widget, thing{name: "b"})
	c := f.put(f.widget, thing{name: "c"})
	s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(c)})
	d := f.delete(f.widget, "a")
	e := s.next()
	if e.Type != watchcache.Deleted || e.Rev != uint64(d) || d <= c {
		t.Fatalf("got %s, want DELETED a@%d above %d", text(e), d, c)
	}
	if e.Object.Rev() != uint64(d) || e.Object.KV().Rev != a {
		t.Fatalf("the object is at %d with the state of %d, want %d and %d", e.Object.Rev(), e.Object.KV().Rev, d, a)
	}
	resumed := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(d)})
	resumed.quiet(d)
	next := f.put(f.widget, thing{name: "d"})
	resumed.expect(at(watchcache.Added, "d", next))
}

// S05: an object that leaves the selection is DELETED, one that comes back ADDED.
func TestS05SelectorTransitions(t *testing.T) {
	for name, opts := range map[string]watchcache.ListOptions{
		"label": {Label: labels.SelectorFromSet(labels.Set{"tier": "web"})},
		"field": {Field: fields.OneTermEqualSelector("spec.color", "web")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tier := func(v string) thing {
				return thing{name: "a", labels: map[string]string{"tier": v, "n": v}, color: v}
			}
			start := f.put(f.widget, tier("web"))
			opts.ResourceVersion = rev(start)
			s := f.watch(f.widget, opts)
			left := f.put(f.widget, tier("db"))
			f.put(f.widget, tier("cache"))
			back := f.put(f.widget, tier("web"))
			gone := f.delete(f.widget, "a")
			e := s.next()
			if text(e) != at(watchcache.Deleted, "a", left) {
				t.Fatalf("got %s, want DELETED at %d", text(e), left)
			}
			if got := e.Object.Meta().Labels["tier"]; got != "web" || e.Object.Rev() != uint64(left) {
				t.Fatalf("DELETED has tier %q at %d, want the old state at the new revision", got, e.Object.Rev())
			}
			s.expect(at(watchcache.Added, "a", back), at(watchcache.Deleted, "a", gone))
		})
	}
}

// S07, S08: below the window there is one error and no event, before and after a restart.
func TestS07S08BelowTheCompactedRevision(t *testing.T) {
	f := newFixture(t)
	first := f.put(f.widget, thing{name: "a"})
	f.put(f.widget, thing{name: "b"})
	deleted := f.delete(f.widget, "a")
	last := f.put(f.widget, thing{name: "c"})
	if err := f.store.Compact(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "after"} {
		for _, r := range []storage.Rev{first, deleted - 1} {
			s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(r)})
			err := s.failure()
			if !apierrors.IsResourceExpired(err) || apierrors.ReasonForError(err) != "Expired" {
				t.Fatalf("%s the restart, a watch from %d ends with %v, want 410 Expired", when, r, err)
			}
		}
		s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(deleted)})
		s.expect(at(watchcache.Added, "c", last))
		f.restart()
	}
}

// A watch goes on after a restart where it was, from the store's history.
func TestResumeAfterRestart(t *testing.T) {
	f := newFixture(t)
	start := f.put(f.widget, thing{name: "a"})
	b := f.put(f.widget, thing{name: "b"})
	f.put(f.gadget, thing{name: "other"})
	gone := f.delete(f.widget, "a")
	f.restart()
	s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(start)})
	s.expect(at(watchcache.Added, "b", b), at(watchcache.Deleted, "a", gone))
	c := f.put(f.widget, thing{name: "c"})
	s.expect(at(watchcache.Added, "c", c))
}

// S11: no event comes at or below a bookmark's revision after it, and a watch of the future waits for it.
func TestS11BookmarksKeepTheirPromise(t *testing.T) {
	f := newFixture(t)
	s := f.watch(f.gadget, watchcache.ListOptions{AllowBookmarks: true, BookmarkEvery: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; n < 200 && ctx.Err() == nil; n++ {
				f.put(f.widget, thing{name: fmt.Sprintf("w%d-%d", i, n)})
				if n%40 == 0 {
					f.put(f.gadget, thing{name: fmt.Sprintf("g%d-%d", i, n)})
				}
			}
		})
	}
	bookmark, events, bookmarks := uint64(0), 0, 0
	for events < 20 {
		e := s.next()
		if e.Rev <= bookmark && e.Type != watchcache.Bookmark || e.Rev < bookmark {
			t.Errorf("%s after a bookmark at %d", text(e), bookmark)
			break
		}
		if e.Type == watchcache.Bookmark {
			bookmark = e.Rev
			bookmarks++
		} else {
			events++
		}
	}
	cancel()
	writers.Wait()
	if bookmarks == 0 {
		t.Error("no bookmark came")
	}

	now := f.store.Status().Rev
	future := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(now + 3), AllowBookmarks: true, BookmarkEvery: time.Millisecond})
	for range 3 {
		f.put(f.widget, thing{name: "before"})
	}
	after := f.put(f.widget, thing{name: "after"})
	future.expect(at(watchcache.Added, "after", after))
}

// S19: one object by name, at every kind of starting point.
func TestS19WatchOneByName(t *testing.T) {
	for _, start := range []string{"", "0", "number"} {
		t.Run("from "+start, func(t *testing.T) {
			f := newFixture(t)
			r := f.put(f.widget, thing{name: "x"})
			f.put(f.widget, thing{name: "y"})
			opts := watchcache.ListOptions{Field: fields.OneTermEqualSelector("metadata.name", "x"), ResourceVersion: start}
			if start == "number" {
				opts.ResourceVersion = rev(r)
			}
			s := f.watch(f.widget, opts)
			if start != "number" {
				s.expect(at(watchcache.Added, "x", r))
			}
			f.put(f.widget, thing{name: "y", color: "red"})
			edit := f.put(f.widget, thing{name: "x", color: "red"})
			s.expect(at(watchcache.Modified, "x", edit))
		})
	}
}

// S01: a streaming list is what is there, then one marked bookmark, then what happens.
func TestS01StreamingList(t *testing.T) {
	for _, n := range []int{0, 3, 1200} {
		t.Run(fmt.Sprint(n, " objects"), func(t *testing.T) {
			f := newFixture(t)
			for i := range n {
				f.put(f.widget, thing{name: fmt.Sprintf("w%05d", i)})
			}
			now := f.put(f.gadget, thing{name: "other"})
			yes := true
			s := f.watch(f.widget, watchcache.ListOptions{SendInitialEvents: &yes, Match: "NotOlderThan", AllowBookmarks: true})
			for i := range n {
				if e := s.next(); e.Type != watchcache.Added || e.Object.Name() != fmt.Sprintf("w%05d", i) {
					t.Fatalf("event %d is %s", i, text(e))
				}
			}
			if e := s.next(); e.Type != watchcache.Bookmark || !e.InitialEventsEnd || e.Rev < uint64(now) {
				t.Fatalf("got %+v, want the bookmark that ends the initial events at %d", e, now)
			}
			r := f.put(f.widget, thing{name: "live"})
			s.expect(at(watchcache.Added, "live", r))
		})
	}
}

// A watch that isn't read holds nothing up; it goes on from the history, or is told that it is gone.
func TestSlowWatcher(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.cacheOf.RingSize = 8 })
	start := f.put(f.widget, thing{name: "start"})
	slow := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(start)})
	stuck := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(start)})
	fast := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(start)})
	var want []string
	for i := range 100 {
		name := fmt.Sprint("w", i)
		r := f.put(f.widget, thing{name: name})
		want = append(want, at(watchcache.Added, name, r))
		fast.expect(want[i])
	}
	slow.expect(want...)
	if err := f.store.Compact(t.Context(), f.store.Status().Rev); err != nil {
		t.Fatal(err)
	}
	if err := stuck.failure(); !apierrors.IsResourceExpired(err) {
		t.Fatalf("got %v, want 410", err)
	}
	r := f.put(f.widget, thing{name: "last"})
	slow.expect(at(watchcache.Added, "last", r))
	fast.expect(at(watchcache.Added, "last", r))
}

func TestWatchTimeoutEndsWithABookmark(t *testing.T) {
	f := newFixture(t)
	a := f.put(f.widget, thing{name: "a"})
	s := f.watch(f.widget, watchcache.ListOptions{AllowBookmarks: true, Timeout: 50 * time.Millisecond})
	s.expect(at(watchcache.Added, "a", a))
	r := f.put(f.gadget, thing{name: "other"})
	f.watch(f.gadget, watchcache.ListOptions{ResourceVersion: rev(a)}).expect(at(watchcache.Added, "other", r))
	f.watch(f.gadget, watchcache.ListOptions{ResourceVersion: rev(r)}).quiet(r)
	if e := s.next(); e.Type != watchcache.Bookmark || e.Rev != uint64(r) {
		t.Fatalf("got %s, want a bookmark at %d", text(e), r)
	}
	if err := s.failure(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want io.EOF", err)
	}
}

func TestWatchEndsWithTheCache(t *testing.T) {
	f := newFixture(t)
	idle := f.watch(f.widget, watchcache.ListOptions{})
	behind := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: "1"})
	done := make(chan error, 2)
	for _, s := range []*stream{idle, behind} {
		go func() {
			_, err := s.Next(context.Background())
			done <- err
		}()
	}
	f.cache.Close()
	for range 2 {
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Fatalf("got %v, want io.EOF", err)
		}
	}
}

func TestWatchCloseWakesNext(t *testing.T) {
	f := newFixture(t)
	s := f.watch(f.widget, watchcache.ListOptions{})
	done := make(chan error)
	go func() {
		_, err := s.Next(context.Background())
		done <- err
	}()
	s.Close()
	s.Close()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want io.EOF", err)
	}
}

// A watch that is given up while it reads the history leaves nothing open in the store.
func TestWatchCloseWhileBehind(t *testing.T) {
	f := newFixture(t)
	a := f.put(f.widget, thing{name: "a"})
	b := f.put(f.widget, thing{name: "b"})
	f.cache.Close()
	store := &counting{Store: f.store}
	f.cache = watchcache.New(store, f.reg, f.cacheOf)
	s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(a)})
	s.expect(at(watchcache.Added, "b", b))
	if n := store.open.Load(); n != 1 {
		t.Fatalf("%d watches of the store's history are open, want 1", n)
	}
	s.Close()
	if n := store.open.Load(); n != 0 {
		t.Errorf("%d watches of the store's history are open after the close", n)
	}
}

// counting is a store that counts the open watches of single kinds.
type counting struct {
	storage.Store
	open atomic.Int32
}

func (c *counting) Watch(ctx context.Context, prefix string, after storage.Rev) (storage.Watcher, error) {
	w, err := c.Store.Watch(ctx, prefix, after)
	if err != nil || prefix == "" {
		return w, err
	}
	c.open.Add(1)
	return &counted{Watcher: w, close: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

type counted struct {
	storage.Watcher
	close func()
}

func (c *counted) Close() {
	c.close()
	c.Watcher.Close()
}

func TestWatchOfAFutureStreamingListIsTooLarge(t *testing.T) {
	f := newFixture(t)
	now := f.put(f.widget, thing{name: "a"})
	yes := true
	start := time.Now()
	s := f.watch(f.widget, watchcache.ListOptions{SendInitialEvents: &yes, Match: "NotOlderThan", ResourceVersion: rev(now + 1000)})
	err := s.failure()
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, "ResourceVersionTooLarge") {
		t.Fatalf("got %v, want 504 with cause ResourceVersionTooLarge", err)
	}
	if d := time.Since(start); d < 2*time.Second || d > 8*time.Second {
		t.Fatalf("it took %v, want 3s", d)
	}
}

// Many watches of one kind share its objects and what is made of them.
func TestWatchesShareObjects(t *testing.T) {
	f := newFixture(t)
	one := f.watch(f.widget, watchcache.ListOptions{})
	two := f.watch(f.widget, watchcache.ListOptions{})
	f.put(f.widget, thing{name: "a"})
	a, b := one.next().Object, two.next().Object
	if a != b {
		t.Fatal("two watches have two Objects of one revision")
	}
	v := f.widget.Versions[0]
	first, err := a.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	if &first[0] != &second[0] {
		t.Fatal("the JSON was made twice")
	}
}
