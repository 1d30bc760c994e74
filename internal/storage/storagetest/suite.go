// Package storagetest is the contract of storage.Store as a suite that every backend runs.
//
// A backend's own test calls Run with a Harness that opens the same data again and again. The tests
// keep a model beside the store, a list of states by revision, and compare: what a write answers, what
// a view at any revision in the window holds, and what a watcher is given. Tests named S and a number
// are bugs that others shipped.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"operatord.io/operatord/internal/storage"
)

// Harness is a place where a backend keeps one store.
type Harness struct {
	// Open opens the store, with the data of the last time it was open. At most one is open at a time.
	// It fails the test where that goes wrong.
	Open func(t *testing.T, o Options) storage.Store
}

// Options are what the suite needs to choose. Zero is the backend's default.
type Options struct {
	History uint64 // how many of the newest revisions are kept
	Ring    int    // how many events are kept in memory, if the backend has such a thing
}

// Run runs the suite. Each test gets a harness, and so a store, of its own.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"CompareAndSwap", testCompareAndSwap},
		{"ConcurrentIncrements", testConcurrentIncrements},
		{"Guards", testGuards},
		{"Limits", testLimits},
		{"CommitCancelled", testCommitCancelled},
		{"Closed", testClosed},

		{"ViewFreshness", testViewFreshness},
		{"ViewIsImmutable", testViewIsImmutable},
		{"Range", testRange},
		{"Paging", testPaging},
		{"ViewsMatchModel", testViewsMatchModel},

		{"WatchFollowsWriters", testWatchFollowsWriters},
		{"WatchManyPrefixes", testWatchManyPrefixes},
		{"WatchCancelled", testWatchCancelled},
		{"WatchSlowReadsHistory", testWatchSlowReadsHistory},
		{"WatchSlowIsCutOff", testWatchSlowIsCutOff},
		{"WatchIdleIsNotCutOff", testWatchIdleIsNotCutOff},
		{"S02StartPoint", testS02StartPoint},
		{"S04DeletedRevision", testS04DeletedRevision},
		{"S11Bookmarks", testS11Bookmarks},
		{"S11FutureRevision", testS11FutureRevision},

		{"Compact", testCompact},
		{"S07BelowTheWindow", testS07BelowTheWindow},
		{"S07EverythingIsOld", testS07EverythingIsOld},
		{"S08DeleteAtCompaction", testS08DeleteAtCompaction},
		{"S77HistoryIsBounded", testS77HistoryIsBounded},

		{"ReopenKeepsEverything", testReopenKeepsEverything},
		{"ReopenResumesWatches", testReopenResumesWatches},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newHarness(t))
		})
	}
}

// patience bounds what a test waits for: far more than it takes, so that only a hang reaches it.
const patience = 60 * time.Second

func withPatience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// client is a store with the fatal errors taken out.
type client struct {
	t   *testing.T
	ctx context.Context
	storage.Store
}

func open(t *testing.T, h Harness, o Options) client {
	t.Helper()
	c := client{t, withPatience(t), h.Open(t, o)}
	t.Cleanup(func() { c.Store.Close() })
	return c
}

func (c client) close() {
	c.t.Helper()
	if err := c.Store.Close(); err != nil {
		c.t.Fatalf("Close: %v", err)
	}
}

// put writes a key whatever its revision is.
func (c client) put(key, value string) *storage.KV {
	c.t.Helper()
	w := storage.Write{Key: key, Value: []byte(value)}
	if kv, ok := c.latest().Get(key); ok {
		w.If = kv.Rev
	}
	return c.commit(w)
}

// delete removes a key that is there.
func (c client) delete(key string) *storage.KV {
	c.t.Helper()
	kv, ok := c.latest().Get(key)
	if !ok {
		c.t.Fatalf("delete %s: it is not there", key)
	}
	return c.commit(storage.Write{Key: key, If: kv.Rev})
}

// burst makes n writes to as many keys under prefix as there are writers at a time.
func (c client) burst(prefix string, writers, n int, value string) {
	c.t.Helper()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			key := fmt.Sprintf("%s%d", prefix, i)
			w := storage.Write{Key: key, Value: []byte(value)}
			if kv, ok := c.latest().Get(key); ok {
				w.If = kv.Rev
			}
			for range n / writers {
				kv, err := c.Commit(c.ctx, w)
				if err != nil {
					c.t.Errorf("Commit %s: %v", key, err)
					return
				}
				w.If = kv.Rev
			}
		})
	}
	wg.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c client) commit(w storage.Write) *storage.KV {
	c.t.Helper()
	kv, err := c.Commit(c.ctx, w)
	if err != nil {
		c.t.Fatalf("Commit %s: %v", w.Key, err)
	}
	return kv
}

func (c client) view(at storage.At) storage.View {
	c.t.Helper()
	v, err := c.View(c.ctx, at)
	if err != nil {
		c.t.Fatalf("View %+v: %v", at, err)
	}
	return v
}

func (c client) latest() storage.View {
	c.t.Helper()
	return c.view(storage.Latest())
}

func (c client) watch(prefix string, after storage.Rev) storage.Watcher {
	c.t.Helper()
	w, err := c.Watch(c.ctx, prefix, after)
	if err != nil {
		c.t.Fatalf("Watch %s after %d: %v", prefix, after, err)
	}
	c.t.Cleanup(w.Close)
	return w
}

// next gives exactly n events.
func (c client) next(w storage.Watcher, n int) []storage.Event {
	c.t.Helper()
	var events []storage.Event
	for len(events) < n {
		more, err := w.Next(c.ctx)
		if err != nil {
			c.t.Fatalf("Next, after %d of %d events: %v", len(events), n, err)
		}
		if len(more) == 0 {
			c.t.Fatal("Next returned no event and no error")
		}
		events = append(events, more...)
	}
	if len(events) > n {
		c.t.Fatalf("%d events, want %d: %s", len(events), n, describe(events))
	}
	return events
}

// wantErr checks that an error is of a kind.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

func collect(v storage.View, prefix, from string) []string {
	var keys []string
	for kv := range v.Range(prefix, from) {
		keys = append(keys, kv.Key)
	}
	return keys
}

func wantKeys(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: keys %q, want %q", what, got, want)
	}
}
