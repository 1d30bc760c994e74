package storagetest

import (
	"errors"
	"fmt"
	"testing"

	"operatord.io/operatord/internal/storage"
)

func testCompact(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 8})
	m := model{}
	for i := range 60 {
		w := storage.Write{Key: fmt.Sprintf("/%d", i%10), Value: fmt.Append(nil, i)}
		if kv, ok := c.latest().Get(w.Key); ok {
			w.If = kv.Rev
		}
		m.record(w, c.commit(w))
	}
	at := m.events[30].Rev
	held := c.view(storage.Exact(m.events[5].Rev))
	check := func(c client) {
		t.Helper()
		for _, e := range m.events {
			v, err := c.View(c.ctx, storage.Exact(e.Rev))
			w, watchErr := c.Watch(c.ctx, "", e.Rev)
			if e.Rev < at {
				wantErr(t, fmt.Sprintf("Exact(%d), compacted to %d", e.Rev, at), err, storage.ErrCompacted)
				wantErr(t, fmt.Sprintf("Watch after %d, compacted to %d", e.Rev, at), watchErr, storage.ErrCompacted)
				continue
			}
			if err != nil || watchErr != nil {
				t.Fatalf("at %d, compacted to %d: View: %v, Watch: %v", e.Rev, at, err, watchErr)
			}
			if err := m.check(v, ""); err != nil {
				t.Fatal(err)
			}
			if rest := m.after("", e.Rev); len(rest) > 0 {
				wantEvents(t, fmt.Sprintf("after %d", e.Rev), c.next(w, len(rest)), rest)
			}
			w.Close()
		}
		if s := c.Status(); s.Compacted != at {
			t.Fatalf("Status says compacted to %d, want %d", s.Compacted, at)
		}
	}
	if err := c.Compact(c.ctx, at); err != nil {
		t.Fatalf("Compact(%d): %v", at, err)
	}
	check(c)
	for _, r := range []storage.Rev{0, at - 1, at} { // it never goes back
		if err := c.Compact(c.ctx, r); err != nil {
			t.Fatalf("Compact(%d) again: %v", r, err)
		}
	}
	wantErr(t, "Compact in the future", c.Compact(c.ctx, c.latest().Rev()+1), storage.ErrFuture)
	if err := m.check(held, ""); err != nil {
		t.Fatalf("a view taken before: %v", err)
	}
	c.close()
	check(open(t, h, Options{Ring: 8}))
}

func testS07BelowTheWindow(t *testing.T, h Harness) {
	o := Options{History: 1000, Ring: 64}
	c := open(t, h, o)
	c.burst("/", 10, 10, "v")
	tenth := c.latest().Rev()
	c.burst("/", 20, 3000, "v")
	for round := range 2 {
		w, err := c.Watch(c.ctx, "/", tenth)
		if err == nil {
			_, err = w.Next(c.ctx)
		}
		wantErr(t, fmt.Sprintf("watch from below the window, round %d", round), err, storage.ErrCompacted)
		last := c.latest()
		if n := last.Count("/"); n != 20 {
			t.Fatalf("%d keys, want 20", n)
		}
		c.next(c.watch("/", last.Rev()-1000), 1000)
		if round == 0 {
			c.close()
			c = open(t, h, o)
		}
	}
}

// testS07EverythingIsOld has every present key be older than the compacted revision.
func testS07EverythingIsOld(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	for i := range 10 {
		c.put(fmt.Sprintf("/%d", i), "v")
	}
	c.put("/x", "v")
	c.delete("/x")
	last := c.latest().Rev()
	if err := c.Compact(c.ctx, last); err != nil {
		t.Fatalf("Compact(%d): %v", last, err)
	}
	c.close()
	c = open(t, h, Options{})
	if v := c.latest(); v.Count("") != 10 || v.Rev() != last {
		t.Fatalf("%d keys at %d, want 10 at %d", v.Count(""), v.Rev(), last)
	}
	w := c.watch("/", last)
	kv := c.put("/0", "new")
	if events := c.next(w, 1); !same(events[0].New, kv) || events[0].Old == nil {
		t.Fatalf("events\n%s", describe(events))
	}
}

func testS08DeleteAtCompaction(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 2})
	c.put("/a", "1")
	c.put("/b", "1")
	gone := c.delete("/a").Rev
	after := c.put("/b", "2")
	if err := c.Compact(c.ctx, gone); err != nil {
		t.Fatalf("Compact(%d): %v", gone, err)
	}
	check := func(c client) {
		t.Helper()
		w, err := c.Watch(c.ctx, "/", gone-1)
		if err == nil {
			var events []storage.Event
			if events, err = w.Next(c.ctx); err == nil && events[0].Rev != gone {
				t.Fatalf("a watch after %d starts with %d and omits the delete at %d", gone-1, events[0].Rev, gone)
			}
		}
		if err != nil && !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("watch after %d: %v", gone-1, err)
		}
		for _, r := range []storage.Rev{gone, after.Rev - 1} {
			if events := c.next(c.watch("/", r), 1); !same(events[0].New, after) {
				t.Fatalf("watch after %d:\n%s", r, describe(events))
			}
		}
		if v := c.view(storage.Exact(gone)); v.Count("/") != 1 {
			t.Fatalf("at %d there are %q", gone, collect(v, "/", ""))
		}
	}
	check(c)
	c.close()
	check(open(t, h, Options{Ring: 2}))
}

// testS77HistoryIsBounded writes many times what is kept to few keys: the disk must not grow with it.
func testS77HistoryIsBounded(t *testing.T, h Harness) {
	c := open(t, h, Options{History: 200})
	value := string(make([]byte, 4000))
	write := func(n int) int64 {
		c.burst("/", 20, n, value)
		if err := c.Compact(c.ctx, c.latest().Rev()); err != nil {
			t.Fatalf("Compact: %v", err)
		}
		return c.Status().DiskBytes
	}
	first := write(600)
	if then := write(3000); then > 2*first+(1<<20) {
		t.Fatalf("%d bytes on disk after 600 writes, %d after 3600", first, then)
	}
}
