package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"operatord.io/operatord/internal/storage"
)

// TestPublishing: each batch is told in order, durable and not yet visible.
func TestPublishing(t *testing.T) {
	layer := &faults{}
	var s *Store
	var told []storage.Rev
	counting := false
	var synced atomic.Int32
	o := Options{Dir: t.TempDir(), openLog: layer.open, Publishing: func(events []storage.Event) {
		if counting && synced.Load() == 0 {
			t.Error("told of a batch that isn't durable")
		}
		synced.Store(0)
		for _, e := range events {
			if now := s.mirror.Rev(); now >= e.Rev {
				t.Errorf("the store is at %d already when told of %d", now, e.Rev)
			}
			told = append(told, e.Rev)
		}
	}}
	s = mustOpen(t, o)
	write(t, s, "/warm", 1) // the first segment is made with syncs of its own
	told, counting = nil, true
	synced.Store(0)
	layer.set(func(l *faults) { l.synced = func() { synced.Add(1) } })
	var want []storage.Rev
	for _, kv := range write(t, s, "/a", 10) {
		want = append(want, kv.Rev)
	}
	if !slices.Equal(told, want) {
		t.Fatalf("told of %v, want %v", told, want)
	}
	s.Close()
	told, counting = nil, false
	s = mustOpen(t, o)
	if len(told) > 0 {
		t.Fatalf("told of %v at open", told)
	}
}

// TestCommitGivenUp: a write whose context ends while it is queued is not done; one that was being
// written has an unknown outcome.
func TestCommitGivenUp(t *testing.T) {
	layer := &faults{}
	s := mustOpen(t, Options{Dir: t.TempDir(), openLog: layer.open})
	write(t, s, "/warm", 1)
	syncing, release := make(chan struct{}), make(chan struct{})
	layer.set(func(l *faults) {
		l.sync = func(string) error {
			syncing <- struct{}{}
			<-release
			return nil
		}
	})
	commit := func(ctx context.Context, key string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, storage.Write{Key: key, Value: []byte("v")})
			done <- err
		}()
		return done
	}
	written, giveUpWritten := context.WithCancel(t.Context())
	inFlight := commit(written, "/in-flight")
	<-syncing
	queued, giveUpQueued := context.WithCancel(t.Context())
	waiting := commit(queued, "/queued")
	giveUpQueued()
	if err := <-waiting; !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnknown) {
		t.Fatalf("given up in the queue: %v, want only %v", err, context.Canceled)
	}
	giveUpWritten()
	if err := <-inFlight; !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("given up while written: %v, want %v", err, storage.ErrUnknown)
	}
	layer.set(func(l *faults) { l.sync = nil })
	close(release)
	write(t, s, "/after", 1)
	v, err := s.View(t.Context(), storage.Latest())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v.Get("/queued"); ok {
		t.Error("a write that was given up in the queue was done")
	}
	if _, ok := v.Get("/in-flight"); !ok {
		t.Error("a write that was being written was lost")
	}
}

// TestDamagedHistory: what is damaged of history is given up when somebody reads it. The present and
// later history are as they were.
func TestDamagedHistory(t *testing.T) {
	s := mustOpen(t, small(t.TempDir(), Options{}))
	var kvs []*storage.KV
	for i := range 40 { // some segments
		kvs = append(kvs, write(t, s, fmt.Sprintf("/%d", i), 5)...)
	}
	s.Close()
	o := small(s.options.Dir, Options{RingEvents: 4})
	change(t, filepath.Join(o.Dir, "log", "log-0000"), func(data []byte) []byte {
		data[2*blockSize+headerSize+3] ^= 1
		return data
	})
	s = mustOpen(t, o)
	w, err := s.Watch(t.Context(), "", kvs[0].Rev)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var events []storage.Event
		events, err = w.Next(t.Context())
		if len(events) > 0 && events[len(events)-1].Rev > kvs[2].Rev {
			t.Fatalf("the watch went on over the damaged batch to %d", events[len(events)-1].Rev)
		}
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("Next: %v, want %v", err, storage.ErrCompacted)
	}
	compacted := s.Status().Compacted
	if compacted <= kvs[0].Rev || compacted >= kvs[150].Rev {
		t.Fatalf("history is given up to %d of %d", compacted, kvs[len(kvs)-1].Rev)
	}
	wantHistory(t, s, kvs[compacted-firstRev:])
	if v, err := s.View(t.Context(), storage.Latest()); err != nil || v.Count("") != 40 {
		t.Fatalf("%d keys, %v, want 40", v.Count(""), err)
	}
}

// TestBackPressure: with tiny checkpoints writers wait for them, and all gets done.
func TestBackPressure(t *testing.T) {
	checkpoints := 0
	o := Options{Dir: t.TempDir(), SegmentBytes: 32 << 10, CheckpointBytes: 8 << 10, HistoryRevisions: 20}
	o.Listener.Checkpointed = func(int, time.Duration) { checkpoints++ }
	s := mustOpen(t, o)
	kvs := write(t, s, "/a", 100)
	s.behind.mu.Lock()
	tail := s.behind.tail + s.behind.writing
	s.behind.mu.Unlock()
	if limit := 4*o.CheckpointBytes + blockSize; tail > limit {
		t.Fatalf("the log is %d bytes ahead, at most %d are allowed", tail, limit)
	}
	s.Close()
	if checkpoints == 0 {
		t.Fatal("there was no checkpoint")
	}
	wantHistory(t, mustOpen(t, o), kvs[80:])
}

func TestNewStoreIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "store")
	s := mustOpen(t, Options{Dir: dir})
	write(t, s, "/secret", 1)
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewerFormat(t *testing.T) {
	m := meta{rev: 1}.encode()
	m[0]++
	if _, err := decodeMeta(m); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("format %d", presentFormat+1)) {
		t.Fatalf("%v, want an error that names the format", err)
	}
}

// TestS77FileShrinks: the file of a store that held much and holds little is not kept at its largest.
func TestS77FileShrinks(t *testing.T) {
	o := Options{Dir: t.TempDir(), CheckpointBytes: 1 << 20, SegmentBytes: 1 << 20, HistoryRevisions: 10}
	s := mustOpen(t, o)
	kept := write(t, s, "/kept", 1)[0]
	var kvs []*storage.KV
	for i := range 60 {
		kv, err := s.Commit(t.Context(), storage.Write{Key: fmt.Sprintf("/big/%d", i), Value: make([]byte, 256<<10)})
		if err != nil {
			t.Fatal(err)
		}
		kvs = append(kvs, kv)
	}
	if err := s.Compact(t.Context(), s.Status().Rev); err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs[1:] {
		if _, err := s.Commit(t.Context(), storage.Write{Key: kv.Key, If: kv.Rev}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the first frees the pages, the second finds that most are free
		write(t, s, "/kept", 1)
		if err := s.Compact(t.Context(), s.Status().Rev); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(s.present.path); err != nil || info.Size() > 6<<20 {
		t.Fatalf("the file has %d bytes, %v, for 256 KiB", info.Size(), err)
	}
	after := write(t, s, "/kept", 3)
	s.Close()
	s = mustOpen(t, o)
	v, err := s.View(t.Context(), storage.Latest())
	if err != nil || v.Count("") != 2 {
		t.Fatalf("%d keys, %v, want 2", v.Count(""), err)
	}
	if kv, _ := v.Get("/kept"); kv.Rev != after[2].Rev || kv.Created != kept.Created {
		t.Fatalf("the key that was kept is %+v", kv)
	}
}
