package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// untilFull creates keys until the store refuses for want of room, and returns what was written.
func untilFull(t *testing.T, s storage.Store, value string) []*storage.KV {
	t.Helper()
	var kvs []*storage.KV
	for i := range 10_000 {
		kv, err := s.Commit(t.Context(), storage.Write{Key: fmt.Sprintf("/%05d", i), Value: []byte(value)})
		if errors.Is(err, storage.ErrFull) {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the refusal does not say why: %v", err)
			}
			return kvs
		}
		if err != nil {
			t.Fatalf("Commit: %v", err)
		}
		kvs = append(kvs, kv)
	}
	t.Fatal("the store never filled up")
	return nil
}

// insist commits until there is room.
func insist(t *testing.T, s storage.Store, w storage.Write) *storage.KV {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		kv, err := s.Commit(ctx, w)
		if err == nil {
			return kv
		}
		if !errors.Is(err, storage.ErrFull) {
			t.Fatalf("Commit %s: %v", w.Key, err)
		}
	}
}

// TestS79Full: without room creates are refused with the cause, while deletes, renewals and reads go
// on; nothing is left half-made; it ends by itself when there is room.
func TestS79Full(t *testing.T) {
	layer := &faults{}
	var full atomic.Bool
	noRoom := func(path string) error {
		if full.Load() {
			return &os.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
		}
		return nil
	}
	layer.create = noRoom
	told := make(chan error, 16)
	s := mustOpen(t, small(t.TempDir(), Options{openLog: layer.open, room: func(dir string, _ int64) error { return noRoom(dir) }, Listener: storage.Listener{Failed: func(err error) { told <- err }}}))
	value := strings.Repeat("v", 3000)
	lease := write(t, s, "/lease", 1)[0]
	for i := range 60 { // some segments of history
		insist(t, s, storage.Write{Key: fmt.Sprintf("/old/%d", i), Value: []byte(value)})
	}
	full.Store(true)
	kvs := untilFull(t, s, value)
	if err := <-told; !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the listener was told %v", err)
	}
	if st := s.Status(); !errors.Is(st.Err, storage.ErrFull) {
		t.Fatalf("Status says %v", st.Err)
	}
	if _, err := s.Commit(t.Context(), storage.Write{Key: kvs[0].Key, Value: []byte(value + value), If: kvs[0].Rev}); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("a larger value: %v, want %v", err, storage.ErrFull)
	}
	for range 200 { // several segments' worth
		lease = insist(t, s, storage.Write{Key: lease.Key, Value: lease.Value, If: lease.Rev})
	}
	for _, kv := range kvs[1:] {
		insist(t, s, storage.Write{Key: kv.Key, If: kv.Rev})
	}
	if v, err := s.View(t.Context(), storage.Latest()); err != nil || v.Count("") != 62 {
		t.Fatalf("%d keys, %v, want 62", v.Count(""), err)
	}
	full.Store(false)
	if err := <-told; err != nil {
		t.Fatalf("the listener was told %v, want that there is room", err)
	}
	if st := s.Status(); st.Err != nil {
		t.Fatalf("Status says %v", st.Err)
	}
	last := insist(t, s, storage.Write{Key: "/new", Value: []byte(value)})
	s.Close()
	s = mustOpen(t, small(s.options.Dir, Options{}))
	if v, err := s.View(t.Context(), storage.Latest()); err != nil || v.Rev() != last.Rev || v.Count("") != 63 {
		t.Fatalf("opened at %d with %d keys, %v, want %d with 63", v.Rev(), v.Count(""), err, last.Rev)
	}
}

// TestS79SmallDisk fills a real file system, where the present's file meets the end of the disk too.
func TestS79SmallDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("this needs a file system of its own: %v", err)
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	s := mustOpen(t, Options{Dir: filepath.Join(disk, "store"), SegmentBytes: 256 << 10, CheckpointBytes: 512 << 10})
	kvs := untilFull(t, s, strings.Repeat("v", 10_000))
	for _, kv := range kvs[:len(kvs)/2] {
		insist(t, s, storage.Write{Key: kv.Key, If: kv.Rev})
	}
	s.Close() // with no room to bring the present up to date
	s = mustOpen(t, Options{Dir: s.options.Dir, SegmentBytes: 256 << 10, CheckpointBytes: 512 << 10})
	v, err := s.View(t.Context(), storage.Latest())
	if err != nil || v.Count("") != len(kvs)-len(kvs)/2 {
		t.Fatalf("%d keys, %v, want %d", v.Count(""), err, len(kvs)-len(kvs)/2)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	insist(t, s, storage.Write{Key: "/new", Value: make([]byte, 100_000)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.options.Dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %q, want lock, log and present.db", files)
	}
}
