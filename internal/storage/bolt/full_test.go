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
	if _, err := s.Commit(t.Context(), storage.Write{Key: kvs[0].Key, Value: []byte(strings.Repeat(value, 20)), If: kvs[0].Rev}); !errors.Is(err, storage.ErrFull) {
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

// smallDisk is a file system of its own.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, options); err != nil {
		t.Skipf("this needs a file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return disk
}

// fillDisk writes a file into all that is left.
func fillDisk(t *testing.T, disk string) (path string) {
	t.Helper()
	path = filepath.Join(disk, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	return path
}

// abandon leaves a store as kill -9 does.
func abandon(t *testing.T, s *Store) {
	t.Helper()
	s.closeOnce.Do(func() {
		close(s.closing)
		s.tasks.Wait()
		s.mirror.Close()
		if err := errors.Join(s.log.close(), s.present.close(), s.lock.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestFullForEver has another program fill the disk. What doesn't grow goes on all the same, as long as
// somebody likes, also after kill -9: renewals of a Lease and a Node's status, and then every delete. What
// grows is refused until there is room.
func TestFullForEver(t *testing.T) {
	for name, c := range map[string]struct {
		disk           string
		objects, value int
		renewals       int
	}{
		"300 MiB, objects of 20 KB":  {"size=300m", 1000, 20_000, 3000},
		"64 MiB, objects of 20 KB":   {"size=64m", 500, 20_000, 1500},
		"64 MiB, objects of 1 KB":    {"size=64m", 3000, 1_000, 1500},
		"64 MiB, objects of 1.5 MB":  {"size=64m", 6, 1_500_000, 1000},
		"16 MiB, objects of 3 KB":    {"size=16m", 500, 3_000, 1500},
		"16 MiB, objects of 600 KB":  {"size=16m", 4, 600_000, 1000},
		"16 MiB, a store of nothing": {"size=16m", 0, 0, 1500},
		"128 MiB, no inodes left":    {"size=128m,nr_inodes=14", 500, 20_000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := smallDisk(t, c.disk)
			if err := os.WriteFile(filepath.Join(disk, "filler"), nil, 0o600); err != nil { // while there are inodes
				t.Fatal(err)
			}
			o := Options{Dir: filepath.Join(disk, "store")}
			s := mustOpen(t, o)
			renewed := []*storage.KV{write(t, s, "/lease", 1)[0], write(t, s, "/node", 1)[0]}
			insist(t, s, storage.Write{Key: renewed[1].Key, Value: make([]byte, 8_000), If: renewed[1].Rev})
			objects := make([]*storage.KV, c.objects)
			for i := range objects {
				objects[i] = insist(t, s, storage.Write{Key: fmt.Sprintf("/object/%05d", i*7919%c.objects), Value: make([]byte, c.value)})
			}
			filler := fillDisk(t, disk)
			objects = append(objects, untilFull(t, s, strings.Repeat("v", c.value+4000))...)

			goOn := func(of []*storage.KV, n int) {
				t.Helper()
				for i := range n {
					at := &of[i%len(of)]
					v, err := s.View(t.Context(), storage.Latest())
					if err != nil {
						t.Fatal(err)
					}
					now, ok := v.Get((*at).Key)
					if !ok {
						t.Fatalf("%s is gone", (*at).Key)
					}
					kv, err := s.Commit(t.Context(), storage.Write{Key: now.Key, Value: now.Value, If: now.Rev})
					if err != nil {
						t.Fatalf("renewal %d: %v", i, err)
					}
					*at = kv
				}
			}
			goOn(renewed, c.renewals)
			goOn(objects, min(len(objects), 300))
			fillDisk(t, disk) // whatever was given back
			abandon(t, s)
			s = mustOpen(t, o)
			goOn(renewed, c.renewals)
			if len(objects) > 0 {
				if _, err := s.Commit(t.Context(), storage.Write{Key: "/new", Value: make([]byte, 8<<20)}); !errors.Is(err, storage.ErrFull) {
					t.Fatalf("a create that is larger than any room: %v, want %v", err, storage.ErrFull)
				}
			}
			for i, kv := range objects[:len(objects)/2] {
				if _, err := s.Commit(t.Context(), storage.Write{Key: kv.Key, If: kv.Rev}); err != nil {
					t.Fatalf("delete %d: %v", i, err)
				}
			}
			fillDisk(t, disk)
			abandon(t, s)
			s = mustOpen(t, o)
			for i, kv := range objects[len(objects)/2:] {
				if _, err := s.Commit(t.Context(), storage.Write{Key: kv.Key, If: kv.Rev}); err != nil {
					t.Fatalf("delete %d of the second half: %v", i, err)
				}
			}
			fillDisk(t, disk)
			goOn(renewed, c.renewals)
			if v, err := s.View(t.Context(), storage.Latest()); err != nil || v.Count("") != 2 {
				t.Fatalf("%d keys, %v, want 2", v.Count(""), err)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			last := insist(t, s, storage.Write{Key: "/new", Value: make([]byte, 1_000_000)})
			abandon(t, s)
			s = mustOpen(t, o)
			if st := s.Status(); st.Rev != last.Rev || st.Err != nil || st.Keys != 3 {
				t.Fatalf("opened as %+v", st)
			}
		})
	}
}

// TestFullOfItself has the store fill the disk by itself. When some is deleted there is room for as much
// again.
func TestFullOfItself(t *testing.T) {
	for _, disk := range []string{"size=16m", "size=64m"} {
		t.Run(disk, func(t *testing.T) {
			t.Parallel()
			o := Options{Dir: filepath.Join(smallDisk(t, disk), "store")}
			s := mustOpen(t, o)
			value := strings.Repeat("v", 10_000)
			kvs := untilFull(t, s, value)
			for i := range kvs {
				kvs[i] = insist(t, s, storage.Write{Key: kvs[i].Key, Value: kvs[i].Value, If: kvs[i].Rev})
			}
			abandon(t, s)
			s = mustOpen(t, o)
			for _, kv := range kvs[:len(kvs)/2] {
				if _, err := s.Commit(t.Context(), storage.Write{Key: kv.Key, If: kv.Rev}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range len(kvs) / 3 {
				insist(t, s, storage.Write{Key: fmt.Sprintf("/again/%d", i), Value: []byte(value)})
			}
		})
	}
}

// TestNoRoomForAStore: none is created where it couldn't go on when full, and one that is there opens.
func TestNoRoomForAStore(t *testing.T) {
	disk := smallDisk(t, "size=3m")
	dir := filepath.Join(disk, "store")
	_, err := Open(t.Context(), Options{Dir: dir})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "bytes are needed") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("%v, want how much is needed and where", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "log")); err == nil && len(entries) > 0 {
		t.Fatalf("it left %v", entries)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Options{Dir: dir})
	kvs := write(t, s, "/a", 3)
	abandon(t, s)
	fillDisk(t, disk)
	wantHistory(t, mustOpen(t, Options{Dir: dir}), kvs)
}

// TestFullWithoutAReserve: the store of an earlier version reserved nothing, its log may be longer than this disk's
// checkpoints let it become, and the disk filled up while it was stopped. What doesn't grow goes on, until deletes
// have made the checkpoint small enough.
func TestFullWithoutAReserve(t *testing.T) {
	disk := smallDisk(t, "size=64m")
	dir := filepath.Join(disk, "store")
	s := mustOpen(t, Options{Dir: dir, SegmentBytes: 16 << 20, CheckpointBytes: 64 << 20})
	kvs := make([]*storage.KV, 400)
	for i := range kvs {
		kvs[i] = insist(t, s, storage.Write{Key: fmt.Sprintf("/%05d", i), Value: make([]byte, 20_000)})
	}
	abandon(t, s)
	if err := errors.Join(os.Remove(s.present.reserve.path), os.Truncate(s.present.path, 64<<10)); err != nil {
		t.Fatal(err)
	}
	filler := fillDisk(t, disk)
	s = mustOpen(t, Options{Dir: dir})
	var conflict *storage.ConflictError
	if _, err := s.Commit(t.Context(), storage.Write{Key: kvs[0].Key, Value: kvs[0].Value}); !errors.As(err, &conflict) {
		t.Fatalf("creating what is there: %v, want a conflict", err)
	}
	if _, err := s.Commit(t.Context(), storage.Write{Key: "/new", Value: kvs[0].Value}); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("creating another: %v, want %v", err, storage.ErrFull)
	}
	for _, kv := range kvs[1:] {
		if _, err := s.Commit(t.Context(), storage.Write{Key: kv.Key, If: kv.Rev}); err != nil {
			t.Fatalf("delete %s: %v", kv.Key, err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	insist(t, s, storage.Write{Key: "/new", Value: kvs[0].Value})
}

// TestS79SmallDisk fills a real file system, where the present's file meets the end of the disk too.
func TestS79SmallDisk(t *testing.T) {
	disk := smallDisk(t, "size=12m")
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
	if err != nil || len(files) != 4 {
		t.Fatalf("files %q, want lock, log, present.db and reserve", files)
	}
}

// TestSegmentErrors: whatever keeps a segment from being made, it is tried again and ends by itself. Only
// the log's own writes and syncs are final.
func TestSegmentErrors(t *testing.T) {
	for _, cause := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EEXIST, unix.EINTR, unix.EIO, unix.EDQUOT, unix.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			layer := &faults{}
			s := mustOpen(t, small(t.TempDir(), Options{openLog: layer.open, CheckpointBytes: 32 << 10}))
			kvs := write(t, s, "/a", 3)
			var failing atomic.Bool
			failing.Store(true)
			layer.set(func(l *faults) {
				l.create = func(path string) error {
					if failing.Load() {
						return &os.PathError{Op: "open", Path: path, Err: cause}
					}
					return nil
				}
			})
			// A batch that fits into no segment that is there.
			large := storage.Write{Key: "/large", Value: make([]byte, 200<<10)}
			_, err := s.Commit(t.Context(), large)
			want := storage.ErrUnavailable
			if cause == unix.ENOSPC || cause == unix.EDQUOT {
				want = storage.ErrFull
			}
			if !errors.Is(err, want) || !errors.Is(err, cause) || strings.Contains(err.Error(), "sync") {
				t.Fatalf("%v, want %v because of %v", err, want, cause)
			}
			kvs = append(kvs, write(t, s, "/a", 60)...) // several segments
			failing.Store(false)
			kv, err := s.Commit(t.Context(), large)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			s = mustOpen(t, small(s.options.Dir, Options{}))
			if got := s.Status(); got.Rev != kv.Rev || got.Keys != 2 || got.Err != nil {
				t.Fatalf("opened as %+v after %d writes", got, len(kvs)+1)
			}
		})
	}
}

// TestBatchCountsPrevious: many deletes of large values, queued at once, become several batches.
func TestBatchCountsPrevious(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir(), SegmentBytes: 8 << 20})
	const n = 40
	var kvs [n]*storage.KV
	for i := range kvs {
		kvs[i] = insist(t, s, storage.Write{Key: fmt.Sprintf("/%02d", i), Value: make([]byte, 1<<20)})
	}
	requests := make([]*request, n)
	for i, kv := range kvs {
		requests[i] = &request{write: storage.Write{Key: kv.Key, If: kv.Rev}, done: make(chan outcome, 1)}
		requests[i].take()
	}
	c := batchInProgress{store: s, pending: make(map[string]*storage.KV)}
	// The committer is idle, so its work can be done here.
	for rest := requests; len(rest) > 0; {
		done := c.run(rest, nil)
		if size := c.buffer.size(); size > batchBytes {
			t.Fatalf("a batch of %d writes has %d bytes", done, size)
		}
		rest = rest[done:]
	}
	for i, r := range requests {
		if o := <-r.done; o.err != nil {
			t.Fatalf("delete %d: %v", i, o.err)
		}
	}
	files, err := filepath.Glob(filepath.Join(s.options.Dir, "log", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > s.options.SegmentBytes {
			t.Fatalf("%s has %d bytes, %v", file, info.Size(), err)
		}
	}
}
