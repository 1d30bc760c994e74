package storagetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

func testCompareAndSwap(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	start := c.latest().Rev()

	a := c.commit(storage.Write{Key: "/a", Value: []byte("1"), Note: "who and why"})
	if a.Rev <= start || a.Created != a.Rev || string(a.Value) != "1" || a.Key != "/a" {
		t.Fatalf("create: %s", show(a))
	}
	a2 := c.commit(storage.Write{Key: "/a", Value: []byte("2"), If: a.Rev})
	if a2.Rev <= a.Rev || a2.Created != a.Rev || string(a2.Value) != "2" {
		t.Fatalf("update: %s", show(a2))
	}

	for _, test := range []struct {
		name    string
		w       storage.Write
		present *storage.KV
	}{
		{"create what exists", storage.Write{Key: "/a", Value: []byte("x")}, a2},
		{"update an old revision", storage.Write{Key: "/a", Value: []byte("x"), If: a.Rev}, a2},
		{"update a later revision", storage.Write{Key: "/a", Value: []byte("x"), If: a2.Rev + 1}, a2},
		{"delete an old revision", storage.Write{Key: "/a", If: a.Rev}, a2},
		{"delete without a revision", storage.Write{Key: "/a"}, a2},
		{"update what is missing", storage.Write{Key: "/none", Value: []byte("x"), If: a.Rev}, nil},
		{"delete what is missing", storage.Write{Key: "/none", If: a.Rev}, nil},
		{"delete what is missing, without a revision", storage.Write{Key: "/none"}, nil},
		{"the key's prefix is another key", storage.Write{Key: "/", Value: []byte("x"), If: a2.Rev}, nil},
	} {
		kv, err := c.Commit(c.ctx, test.w)
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("%s: %v, %v, want a conflict", test.name, kv, err)
		}
		if conflict.Key != test.w.Key || !same(conflict.Present, test.present) {
			t.Fatalf("%s: conflict over %s, present %s, want %s", test.name, conflict.Key, show(conflict.Present), show(test.present))
		}
		if now := c.latest(); now.Rev() != a2.Rev {
			t.Fatalf("%s: the store is at %d, want %d: a refused write has no revision", test.name, now.Rev(), a2.Rev)
		}
	}

	gone := c.commit(storage.Write{Key: "/a", If: a2.Rev})
	if gone.Rev <= a2.Rev || gone.Created != a.Rev || gone.Value != nil || gone.Key != "/a" {
		t.Fatalf("delete: %s", show(gone))
	}
	if _, ok := c.latest().Get("/a"); ok {
		t.Fatal("a deleted key is there")
	}
	again := c.commit(storage.Write{Key: "/a", Value: []byte{}})
	if again.Created != again.Rev || again.Value == nil || len(again.Value) != 0 {
		t.Fatalf("create again, with an empty value: %s", show(again))
	}
	if kv, ok := c.latest().Get("/a"); !ok || !same(kv, again) || kv.Value == nil {
		t.Fatalf("an empty value: %s", show(kv))
	}
}

// testConcurrentIncrements lets writers race for one key: each success must build on the one before.
func testConcurrentIncrements(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	const writers, each = 8, 25
	c.put("/n", "0")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			kv, _ := c.latest().Get("/n")
			for done := 0; done < each; {
				var n int
				fmt.Sscan(string(kv.Value), &n)
				next, err := c.Commit(c.ctx, storage.Write{Key: "/n", Value: fmt.Append(nil, n+1), If: kv.Rev})
				var conflict *storage.ConflictError
				switch {
				case err == nil:
					kv, done = next, done+1
					if v, err := c.View(c.ctx, storage.Latest()); err != nil || v.Rev() < kv.Rev {
						t.Errorf("View(Latest) after an acknowledged write at %d: %v, %v", kv.Rev, v.Rev(), err)
						return
					}
				case errors.As(err, &conflict) && conflict.Present.Rev > kv.Rev:
					kv = conflict.Present
				default:
					t.Errorf("Commit on revision %d: %v", kv.Rev, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if kv, _ := c.latest().Get("/n"); string(kv.Value) != fmt.Sprint(writers*each) {
		t.Fatalf("%d increments made %s", writers*each, kv.Value)
	}
}

func testGuards(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	fence := c.put("/fence", "holder-1")
	guards := func(g ...storage.Guard) []storage.Guard { return g }

	kv := c.commit(storage.Write{Key: "/a", Value: []byte("1"), Guards: guards(storage.Guard{Key: "/fence", Rev: fence.Rev}, storage.Guard{Key: "/none"})})
	moved := c.put("/fence", "holder-2")
	for name, g := range map[string][]storage.Guard{
		"moved":         guards(storage.Guard{Key: "/fence", Rev: fence.Rev}),
		"exists":        guards(storage.Guard{Key: "/fence"}),
		"missing":       guards(storage.Guard{Key: "/none", Rev: fence.Rev}),
		"one of two":    guards(storage.Guard{Key: "/fence", Rev: moved.Rev}, storage.Guard{Key: "/none", Rev: 1}),
		"in the future": guards(storage.Guard{Key: "/fence", Rev: moved.Rev + 1}),
	} {
		_, err := c.Commit(c.ctx, storage.Write{Key: "/a", Value: []byte("2"), If: kv.Rev, Guards: g})
		wantErr(t, "guard "+name, err, storage.ErrFenced)
	}
	if now, _ := c.latest().Get("/a"); !same(now, kv) {
		t.Fatalf("a fenced write was done: %s", show(now))
	}
	c.commit(storage.Write{Key: "/a", If: kv.Rev, Guards: guards(storage.Guard{Key: "/fence", Rev: moved.Rev})})
}

func testLimits(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	long := func(n int) string { return "/" + strings.Repeat("k", n-1) }
	kv := c.commit(storage.Write{Key: long(storage.MaxKey), Value: make([]byte, storage.MaxValue), Note: strings.Repeat("n", storage.MaxNote)})
	if got, ok := c.latest().Get(kv.Key); !ok || len(got.Value) != storage.MaxValue {
		t.Fatal("the largest write allowed is not there")
	}
	c.commit(storage.Write{Key: kv.Key, Value: []byte("small"), If: kv.Rev})

	before := c.latest().Rev()
	for name, w := range map[string]storage.Write{
		"key":   {Key: long(storage.MaxKey + 1), Value: []byte("x")},
		"value": {Key: "/v", Value: make([]byte, storage.MaxValue+1)},
		"note":  {Key: "/n", Value: []byte("x"), Note: strings.Repeat("n", storage.MaxNote+1)},
	} {
		_, err := c.Commit(c.ctx, w)
		wantErr(t, name, err, storage.ErrTooLarge)
	}
	if _, err := c.Commit(c.ctx, storage.Write{Value: []byte("x")}); err == nil {
		t.Fatal("a write without a key was done")
	}
	if now := c.latest().Rev(); now != before {
		t.Fatalf("refused writes took revisions: %d, want %d", now, before)
	}
}

func testCommitCancelled(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err := c.Commit(ctx, storage.Write{Key: "/a", Value: []byte("1")})
	wantErr(t, "Commit with a context that has ended", err, context.Canceled)
	if _, ok := c.latest().Get("/a"); ok {
		t.Fatal("the write was done all the same")
	}
	_, err = c.View(ctx, storage.NotOlder(c.latest().Rev()+1))
	wantErr(t, "View", err, context.Canceled)
}

func testClosed(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	kv := c.put("/a", "1")
	view := c.latest()
	w := c.watch("/", kv.Rev)
	waiting := make(chan error, 2)
	go func() {
		_, err := w.Next(c.ctx)
		waiting <- err
	}()
	go func() {
		_, err := c.View(c.ctx, storage.NotOlder(kv.Rev+1))
		waiting <- err
	}()
	c.close()
	for range 2 {
		wantErr(t, "waiting when the store closed", <-waiting, storage.ErrClosed)
	}
	_, err := c.Commit(c.ctx, storage.Write{Key: "/b", Value: []byte("1")})
	wantErr(t, "Commit", err, storage.ErrClosed)
	_, err = c.View(c.ctx, storage.Latest())
	wantErr(t, "View", err, storage.ErrClosed)
	_, err = c.Watch(c.ctx, "/", 0)
	wantErr(t, "Watch", err, storage.ErrClosed)
	wantErr(t, "Compact", c.Compact(c.ctx, kv.Rev), storage.ErrClosed)
	if got, ok := view.Get("/a"); !ok || !same(got, kv) {
		t.Fatalf("a view taken before: %s", show(got))
	}
	if err := c.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
}
