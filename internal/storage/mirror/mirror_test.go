package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// pastOf is a history that holds all it was given.
type pastOf struct {
	mu     sync.Mutex
	events []storage.Event
	reads  int
}

func (p *pastOf) add(events []storage.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, events...)
}

func (p *pastOf) Read(_ context.Context, prefix string, after storage.Rev, max int) ([]storage.Event, storage.Rev, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	var found []storage.Event
	for _, e := range p.events {
		if e.Rev <= after {
			continue
		}
		after = e.Rev
		if len(e.Key()) >= len(prefix) && e.Key()[:len(prefix)] == prefix {
			if found = append(found, e); len(found) == max {
				break
			}
		}
	}
	return found, after, nil
}

// created makes n events, each of a new key.
func created(after storage.Rev, n int, prefix string) []storage.Event {
	events := make([]storage.Event, n)
	for i := range events {
		after++
		events[i] = storage.Event{Rev: after, New: &storage.KV{Key: fmt.Sprintf("%s%d", prefix, after), Value: []byte("v"), Rev: after, Created: after}}
	}
	return events
}

func newMirror(t *testing.T, o Options) *Mirror {
	t.Helper()
	m := New(1, 0, nil, o)
	t.Cleanup(m.Close)
	return m
}

func watch(t *testing.T, m *Mirror, prefix string, after storage.Rev) *watcher {
	t.Helper()
	w, err := m.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w.(*watcher)
}

// next gives n events, and fails where others come.
func next(t *testing.T, w *watcher, n int) []storage.Event {
	t.Helper()
	var events []storage.Event
	for len(events) < n {
		more, err := w.Next(t.Context())
		if err != nil {
			t.Fatalf("Next, after %d of %d events: %v", len(events), n, err)
		}
		events = append(events, more...)
	}
	if len(events) != n {
		t.Fatalf("%d events, want %d", len(events), n)
	}
	return events
}

// TestOnlyTheConcernedWake: a batch leaves the watchers of other prefixes asleep, and their progress
// moves on all the same.
func TestOnlyTheConcernedWake(t *testing.T) {
	m := newMirror(t, Options{})
	a, b, all := watch(t, m, "/a/", 1), watch(t, m, "/b/", 1), watch(t, m, "", 1)
	_, pending, asleep := m.hub.advance(b.group, b.pos)
	if pending {
		t.Fatal("an idle watcher has something to read")
	}
	last := storage.Rev(1)
	for range 100 {
		events := created(last, 3, "/a/")
		last = events[2].Rev
		m.Publish(events)
		next(t, a, 3)
		next(t, all, 3)
	}
	select {
	case <-asleep:
		t.Fatal("a batch for another prefix woke a watcher")
	default:
	}
	if p := b.Progress(); p != last {
		t.Fatalf("Progress is %d, want %d", p, last)
	}
	m.Publish(created(last, 1, "/b/"))
	<-asleep
	if events := next(t, b, 1); events[0].Rev != last+1 {
		t.Fatalf("event at %d, want %d", events[0].Rev, last+1)
	}
}

// TestGroupsEnd: nothing is left of watchers that were closed.
func TestGroupsEnd(t *testing.T) {
	m := newMirror(t, Options{})
	for i := range 100 {
		w := watch(t, m, fmt.Sprintf("/%d/", i%10), 1)
		w.Close()
		w.Close()
	}
	if len(m.hub.groups) != 0 || len(m.hub.lengths) != 0 {
		t.Fatalf("%d groups, %d lengths are left", len(m.hub.groups), len(m.hub.lengths))
	}
}

// TestRingRunsAway publishes so much while notify can't run that not even its slack holds it: what
// left the ring is read from history, and without a history the watcher is cut off.
func TestRingRunsAway(t *testing.T) {
	for _, history := range []bool{true, false} {
		t.Run(fmt.Sprintf("history=%v", history), func(t *testing.T) {
			past := &pastOf{}
			o := Options{RingEvents: 10}
			cut := ""
			o.Listener.CutOff = func(prefix string) { cut = prefix }
			if history {
				o.History = past
			}
			m := newMirror(t, o)
			w := watch(t, m, "/b/", 1)
			m.hub.mu.Lock()
			last := storage.Rev(1)
			for i := range 4 {
				events := append(created(last, slackEvents/2, "/a/"), created(last+slackEvents/2, 1, "/b/")...)
				last = events[len(events)-1].Rev
				if i < 3 {
					past.add(events)
				}
				m.Publish(events)
			}
			m.hub.mu.Unlock()
			if !history {
				if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrCompacted) || cut != "/b/" {
					t.Fatalf("Next: %v, cut off %q, want %v", err, cut, storage.ErrCompacted)
				}
				return
			}
			next(t, w, 4)
			if past.reads == 0 {
				t.Fatal("history was not read: this test does not show what it should")
			}
			if p := w.Progress(); p != last {
				t.Fatalf("Progress is %d, want %d", p, last)
			}
		})
	}
}

// TestSharedBatch: watchers of everything in a batch get the batch, not a copy each.
func TestSharedBatch(t *testing.T) {
	m := newMirror(t, Options{})
	one, two := watch(t, m, "/a/", 1), watch(t, m, "", 1)
	m.Publish(created(1, 5, "/a/"))
	a, err := one.Next(t.Context())
	b, err2 := two.Next(t.Context())
	if err != nil || err2 != nil || len(a) != 5 || len(b) != 5 {
		t.Fatalf("%d events, %v; %d events, %v", len(a), err, len(b), err2)
	}
	if &a[0] != &b[0] {
		t.Error("the batch was copied")
	}
}

// TestViewIsTakenOnce: readers between two batches share one view.
func TestViewIsTakenOnce(t *testing.T) {
	m := newMirror(t, Options{})
	view := func(at storage.At) storage.View {
		t.Helper()
		v, err := m.View(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	m.Publish(created(1, 1, "/a/"))
	if view(storage.Latest()) != view(storage.Any()) || view(storage.Latest()) != view(storage.NotOlder(2)) {
		t.Error("a view was taken again")
	}
	m.Publish(created(2, 5, "/a/"))
	if view(storage.Exact(4)) != view(storage.Exact(4)) {
		t.Error("an old view was made again")
	}
	for r := range storage.Rev(6) { // more than are kept, by and by
		if v := view(storage.Exact(r + 1)); v.Count("/a/") != int(r) {
			t.Errorf("at %d there are %d keys", r+1, v.Count("/a/"))
		}
	}
}

// TestRing compares the ring with a list, through bounds by events and by bytes.
func TestRing(t *testing.T) {
	for _, bound := range []struct {
		events int
		bytes  int64
	}{{100, 1 << 30}, {1 << 20, 10_000}, {1, 1}} {
		r := newRing(1, bound.events, bound.bytes)
		last := storage.Rev(1)
		for i := range 300 {
			events := created(last, 1+i%7, "/a/")
			last = events[len(events)-1].Rev
			r.push(events, last)
			if r.n > 1 && (r.events > bound.events || r.bytes > bound.bytes) {
				t.Fatalf("%d events, %d bytes, bounds are %+v", r.events, r.bytes, bound)
			}
			if r.newest() != last {
				t.Fatalf("the newest is %d, want %d", r.newest(), last)
			}
			if _, _, ok := r.after(r.floor-1, 10); r.floor > 1 && ok {
				t.Fatal("the ring gives what has left it")
			}
			for from := r.floor; from <= last; from += 3 {
				var got []storage.Event
				at := from
				for {
					batches, reached, ok := r.after(at, 4)
					if !ok {
						t.Fatalf("the ring does not reach back to its floor %d", r.floor)
					}
					if len(batches) == 0 {
						break
					}
					for _, b := range batches {
						got = append(got, b...)
					}
					at = reached
				}
				if len(got) != int(last-from) || len(got) > 0 && got[0].Rev != from+1 {
					t.Fatalf("after %d: %d events, want %d", from, len(got), last-from)
				}
			}
		}
	}
}
