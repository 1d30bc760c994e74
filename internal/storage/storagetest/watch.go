package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// testWatchFollowsWriters has watchers follow concurrent writers, each closing and resuming where its
// last event or its progress says, and compares what all of them got with what was acknowledged:
// ordered, unique, reliable, resumable, bookmarkable.
func testWatchFollowsWriters(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 64})
	const writers, each = 4, 150
	start := c.latest().Rev()

	var mu sync.Mutex
	acknowledged := make(map[storage.Rev]*storage.KV)
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range each {
				key := fmt.Sprintf("/w%d/%d", random.IntN(2), random.IntN(5))
				for {
					w := storage.Write{Key: key, Value: fmt.Append(nil, i, n)}
					if kv, ok := c.latest().Get(key); ok {
						w.If = kv.Rev
						if random.IntN(3) == 0 {
							w.Value = nil
						}
					}
					kv, err := c.Commit(c.ctx, w)
					if conflict := (*storage.ConflictError)(nil); errors.As(err, &conflict) {
						continue
					}
					if err != nil {
						t.Errorf("Commit: %v", err)
						return
					}
					mu.Lock()
					acknowledged[kv.Rev] = kv
					mu.Unlock()
					break
				}
			}
		})
	}
	last := make(chan struct{})
	go func() {
		defer close(last)
		work.Wait()
		for _, key := range []string{"/w0/1-end", "/w1/end"} { // every watcher sees one of them
			kv := c.put(key, "end")
			mu.Lock()
			acknowledged[kv.Rev] = kv
			mu.Unlock()
		}
	}()

	streams := make(map[string][]storage.Event)
	var watchers sync.WaitGroup
	for i, prefix := range []string{"/w0/", "/w1/", "/w", "", "/w0/1", "/w0/"} {
		watchers.Go(func() {
			events := follow(t, c, prefix, start, rand.New(rand.NewPCG(2, uint64(i))))
			mu.Lock()
			defer mu.Unlock()
			streams[fmt.Sprint(i, prefix)] = events
		})
	}
	<-last
	watchers.Wait()
	if t.Failed() {
		return
	}
	all := streams["3"]
	if len(all) != len(acknowledged) {
		t.Fatalf("a watch of everything gave %d events, %d writes were acknowledged", len(all), len(acknowledged))
	}
	m := model{}
	for _, e := range all {
		kv, ok := acknowledged[e.Rev]
		if !ok {
			t.Fatalf("event at %d, of which no writer knows", e.Rev)
		}
		w := storage.Write{Key: kv.Key, Value: kv.Value}
		m.record(w, kv)
		if want := m.events[len(m.events)-1]; !sameEvent(e, want) {
			t.Fatalf("the event at %d is\n%swant\n%s", e.Rev, describe([]storage.Event{e}), describe([]storage.Event{want}))
		}
	}
	wantEvents(t, "/w0/", streams["0/w0/"], m.after("/w0/", start))
	wantEvents(t, "/w1/", streams["1/w1/"], m.after("/w1/", start))
	wantEvents(t, "/w", streams["2/w"], m.after("/w", start))
	wantEvents(t, "/w0/1", streams["4/w0/1"], m.after("/w0/1", start))
	wantEvents(t, "/w0/ again", streams["5/w0/"], m.after("/w0/", start))
}

// follow collects a prefix's events until the end of the writers' work, and resumes at random.
func follow(t *testing.T, c client, prefix string, after storage.Rev, random *rand.Rand) []storage.Event {
	var events []storage.Event
	w, err := c.Watch(c.ctx, prefix, after)
	if err != nil {
		t.Errorf("Watch %q after %d: %v", prefix, after, err)
		return nil
	}
	defer func() { w.Close() }()
	bookmark := after
	last := "/w1/end"
	if strings.HasPrefix(prefix, "/w0/") {
		last = "/w0/1-end"
	}
	for len(events) == 0 || events[len(events)-1].Key() != last {
		more, err := w.Next(c.ctx)
		if err != nil {
			t.Errorf("Next %q: %v", prefix, err)
			return nil
		}
		for _, e := range more {
			if e.Rev <= bookmark {
				t.Errorf("%q: event at %d after a bookmark or event at %d", prefix, e.Rev, bookmark)
				return nil
			}
			bookmark = e.Rev
		}
		events = append(events, more...)
		if p := w.Progress(); p < bookmark {
			t.Errorf("%q: Progress is %d, behind %d", prefix, p, bookmark)
			return nil
		} else if random.IntN(2) == 0 {
			bookmark = p
		}
		if random.IntN(10) == 0 {
			w.Close()
			if w, err = c.Watch(c.ctx, prefix, bookmark); err != nil {
				t.Errorf("Watch %q again after %d: %v", prefix, bookmark, err)
				return nil
			}
		}
	}
	return events
}

func testWatchManyPrefixes(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	const prefixes, each = 50, 4
	start := c.latest().Rev()
	watchers := make([]storage.Watcher, prefixes)
	for i := range watchers {
		watchers[i] = c.watch(fmt.Sprintf("/%d/", i), start)
	}
	m := model{}
	for n := range each {
		for i := range prefixes {
			w := storage.Write{Key: fmt.Sprintf("/%d/%d", i, n), Value: []byte("v")}
			m.record(w, c.commit(w))
		}
	}
	for i, w := range watchers {
		prefix := fmt.Sprintf("/%d/", i)
		wantEvents(t, prefix, c.next(w, each), m.after(prefix, start))
	}
}

func testWatchCancelled(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	start := c.put("/a", "1").Rev
	w := c.watch("/", start)
	ctx, cancel := context.WithCancel(c.ctx)
	waiting := make(chan error, 1)
	go func() {
		_, err := w.Next(ctx)
		waiting <- err
	}()
	cancel()
	wantErr(t, "Next", <-waiting, context.Canceled)

	// A cancelled Next has lost nothing.
	kv := c.put("/a", "2")
	if events := c.next(w, 1); events[0].Rev != kv.Rev {
		t.Fatalf("event at %d, want %d", events[0].Rev, kv.Rev)
	}

	go func() {
		_, err := w.Next(c.ctx)
		waiting <- err
	}()
	w.Close()
	wantErr(t, "Next of a closed watcher", <-waiting, storage.ErrClosed)
	w.Close()
	_, err := w.Next(c.ctx)
	wantErr(t, "Next after Close", err, storage.ErrClosed)
}

// testWatchSlowReadsHistory has a watcher fall out of what is kept in memory.
func testWatchSlowReadsHistory(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 8})
	start := c.latest().Rev()
	slow, sparse := c.watch("/", start), c.watch("/b/", start)
	m := model{}
	for i := range 500 {
		w := storage.Write{Key: fmt.Sprintf("/a/%d", i), Value: []byte("v")}
		if i%100 == 0 {
			w.Key = fmt.Sprintf("/b/%d", i)
		}
		m.record(w, c.commit(w))
	}
	wantEvents(t, "slow", c.next(slow, 500), m.events)
	wantEvents(t, "sparse", c.next(sparse, 5), m.after("/b/", start))
	middle := m.events[250].Rev
	wantEvents(t, "from the middle", c.next(c.watch("/", middle), 249), m.after("", middle))
}

// testWatchSlowIsCutOff has a watcher fall out of history.
func testWatchSlowIsCutOff(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 8, History: 50})
	start := c.latest().Rev()
	slow := c.watch("/", start)
	c.put("/a", "first")
	c.next(slow, 1)
	c.burst("/", 10, 200, "v")
	_, err := slow.Next(c.ctx)
	wantErr(t, "Next of a watcher that lost its place", err, storage.ErrCompacted)
	if p := slow.Progress(); p >= c.latest().Rev() {
		t.Fatalf("Progress is %d: it passed over events that were not delivered", p)
	}
}

// testWatchIdleIsNotCutOff has others write a lot.
func testWatchIdleIsNotCutOff(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 8, History: 50})
	start := c.put("/idle/x", "1").Rev
	parked, unread := c.watch("/idle/", start), c.watch("/idle/", start)
	got := make(chan []storage.Event, 1)
	go func() {
		events, err := parked.Next(c.ctx)
		if err != nil {
			t.Errorf("Next of an idle watcher: %v", err)
		}
		got <- events
	}()
	for round := range 5 {
		c.burst("/busy/", 10, 100, fmt.Sprint(round))
	}
	kv := c.put("/idle/x", "2")
	if events := <-got; len(events) != 1 || events[0].Rev != kv.Rev {
		t.Fatalf("events\n%swant one at %d", describe(events), kv.Rev)
	}
	if events := c.next(unread, 1); events[0].Rev != kv.Rev {
		t.Fatalf("event at %d, want %d", events[0].Rev, kv.Rev)
	}
}

func testS02StartPoint(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	for i := range 5 {
		c.put(fmt.Sprintf("/a/%d", i), "v")
	}
	list := c.latest().Rev()
	kv := c.put("/a/new", "v")
	if events := c.next(c.watch("/a/", list), 1); !same(events[0].New, kv) || events[0].Old != nil {
		t.Fatalf("events\n%s", describe(events))
	}
}

func testS04DeletedRevision(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	start := c.latest().Rev()
	a := c.put("/a", "a")
	c.put("/b", "b")
	last := c.put("/c", "c")
	w := c.watch("/", start)
	c.delete("/a")
	events := c.next(w, 4)
	gone := events[3]
	if gone.New != nil || !same(gone.Old, a) || gone.Rev <= last.Rev {
		t.Fatalf("the delete:\n%s", describe(events[3:]))
	}
	resumed := c.watch("/", gone.Rev)
	d := c.put("/d", "d")
	if events := c.next(resumed, 1); !same(events[0].New, d) {
		t.Fatalf("resumed from %d:\n%s", gone.Rev, describe(events))
	}
}

// testS11Bookmarks takes bookmarks of a quiet prefix while another is busy: none may be ahead of an
// event that comes later, and they do move on.
func testS11Bookmarks(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 64})
	start := c.latest().Rev()
	w := c.watch("/quiet/", start)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	defer busy.Wait()
	for i := range 4 {
		busy.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					c.put(fmt.Sprintf("/busy/%d", i), fmt.Sprint(n))
				}
			}
		})
	}
	defer close(stop)
	for i := range 20 {
		bookmark := w.Progress()
		kv := c.put("/quiet/x", fmt.Sprint(i))
		for range 10 {
			bookmark = max(bookmark, w.Progress())
			if bookmark >= kv.Rev {
				t.Fatalf("bookmark %d, and the event at %d was not delivered", bookmark, kv.Rev)
			}
		}
		if events := c.next(w, 1); events[0].Rev != kv.Rev || events[0].Rev <= bookmark {
			t.Fatalf("event at %d, want %d, bookmark was %d", events[0].Rev, kv.Rev, bookmark)
		}
		for w.Progress() <= kv.Rev { // others write: it must get past
			if err := c.ctx.Err(); err != nil {
				t.Fatalf("Progress stays at %d", w.Progress())
			}
		}
	}
}

func testS11FutureRevision(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	now := c.put("/a", "1").Rev
	w := c.watch("/", now+20)
	var after *storage.KV
	for after == nil || after.Rev <= now+20 {
		after = c.put("/a", "2")
	}
	if events := c.next(w, 1); events[0].Rev != after.Rev {
		t.Fatalf("a watch after %d started with %d, want %d", now+20, events[0].Rev, after.Rev)
	}
}
