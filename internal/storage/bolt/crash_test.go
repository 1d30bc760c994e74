package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// logFile is the file that a small store's log is in; the next is beside it.
func logFile(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log", "log-*"))
	if err != nil || len(files) == 0 || len(files) > 2 {
		t.Fatalf("log files %v, %v, want one or two", files, err)
	}
	return files[0]
}

func change(t testing.TB, path string, f func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// crashed makes a store with n single-write batches and returns what a crash leaves of it.
func crashed(t *testing.T, n int) (dir string, kvs []*storage.KV) {
	t.Helper()
	s := mustOpen(t, Options{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	kvs = write(t, s, "/a", n)
	return image(t, s), kvs
}

// TestTornTail ends the last batch at every offset, in every way that a disk may: it was not
// acknowledged then, and all before it is there.
func TestTornTail(t *testing.T) {
	master, kvs := crashed(t, 5)
	const last = 4 * blockSize
	end := last + headerSize + 64
	for name, tear := range map[string]func(data []byte, at int) []byte{
		"truncated": func(data []byte, at int) []byte { return data[:at] },
		"zeros":     func(data []byte, at int) []byte { clear(data[at:]); return data },
		"garbage": func(data []byte, at int) []byte {
			random := rand.New(rand.NewPCG(1, uint64(at)))
			for i := at; i < len(data); i++ {
				data[i] = byte(random.Uint32())
			}
			return data
		},
		"an old batch": func(data []byte, at int) []byte {
			copy(data[at:], data[at-last:last]) // what was there before the segment was used again
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := last; at < end; at += 7 {
				dir := t.TempDir()
				if err := copyTree(master, dir); err != nil {
					t.Fatal(err)
				}
				whole := false
				change(t, logFile(t, dir), func(data []byte) []byte {
					h, _ := parseHeader(data[last:], saltOf(t, dir))
					whole = at >= last+headerSize+h.length
					return tear(data, at)
				})
				want := kvs[:4]
				if whole {
					want = kvs
				}
				s := mustOpen(t, Options{Dir: dir})
				wantHistory(t, s, want)
				want = append(want[:len(want):len(want)], write(t, s, "/a", 2)...)
				s.Close()
				s = mustOpen(t, Options{Dir: dir})
				wantHistory(t, s, want)
				s.Close()
			}
		})
	}
}

func saltOf(t testing.TB, dir string) salt {
	t.Helper()
	p, m, _, err := openPresent(filepath.Join(dir, "present.db"), needRoom)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	return m.salt
}

// TestDamagedBatch flips bits of a batch that others follow: the store must not open without it, nor
// with what became of it.
func TestDamagedBatch(t *testing.T) {
	master, kvs := crashed(t, 5)
	const damaged = 2 * blockSize
	length := 0
	change(t, logFile(t, master), func(data []byte) []byte {
		h, ok := parseHeader(data[damaged:], saltOf(t, master))
		if !ok {
			t.Fatal("there is no batch where this test expects one")
		}
		length = headerSize + h.length
		return data
	})
	for at := damaged; at < damaged+length; at += 7 {
		dir := t.TempDir()
		if err := copyTree(master, dir); err != nil {
			t.Fatal(err)
		}
		path := logFile(t, dir)
		change(t, path, func(data []byte) []byte { data[at] ^= 1 << (at % 8); return data })
		s, err := Open(context.Background(), Options{Dir: dir})
		var damage *CorruptError
		if !errors.As(err, &damage) {
			t.Fatalf("byte %d flipped: %v, %v, want a *CorruptError", at, s, err)
		}
		if damage.Path != path || damage.Offset != damaged || damage.Sequence != 3 {
			t.Fatalf("the error names %s, offset %d, sequence %d", damage.Path, damage.Offset, damage.Sequence)
		}
		for _, part := range []string{path, "8192", "batch 3", "the last good copy"} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("the message lacks %q: %v", part, err)
			}
		}
	}
	// The same bytes behind the log's end, or in padding, are nothing.
	change(t, logFile(t, master), func(data []byte) []byte { data[10*blockSize] ^= 1; data[damaged+length+7] ^= 1; return data })
	wantHistory(t, mustOpen(t, Options{Dir: master}), kvs)
}

// TestForeignBatch has the log of another store, and bytes from a client that look like a later batch.
func TestForeignBatch(t *testing.T) {
	dir, kvs := crashed(t, 3)
	other, _ := crashed(t, 8)
	foreign, err := os.ReadFile(logFile(t, other))
	if err != nil {
		t.Fatal(err)
	}
	change(t, logFile(t, dir), func(data []byte) []byte {
		copy(data[3*blockSize:], foreign[3*blockSize:8*blockSize])
		return data
	})
	wantHistory(t, mustOpen(t, Options{Dir: dir}), kvs)
}

// TestMissingFiles: nothing empty may take the place of what is gone, also not where a store was killed right after the
// first answer that it ever gave.
func TestMissingFiles(t *testing.T) {
	cut := func(size int64) func(string) error {
		return func(path string) error { return os.Truncate(path, size) }
	}
	for _, writes := range []int{1, 3} {
		for _, c := range []struct {
			file, what string
			lose       func(path string) error
		}{
			{"present.db", "removed", os.RemoveAll},
			{"present.db", "emptied", cut(0)},
			{"log/log-0000", "removed", os.RemoveAll},
			{"log/log-0000", "emptied", cut(0)},
			{"log/log-0000", "zeroed", func(path string) error { return errors.Join(cut(0)(path), cut(64<<10)(path)) }},
			{"log", "removed", os.RemoveAll},
			{"log", "emptied", func(path string) error { return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)) }},
		} {
			dir, _ := crashed(t, writes)
			if err := c.lose(filepath.Join(dir, c.file)); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Options{Dir: dir})
			if damage := (*CorruptError)(nil); !errors.As(err, &damage) {
				t.Errorf("%d writes, %s %s: %v, want a *CorruptError", writes, c.file, c.what, err)
			}
		}
	}
}

// TestS76DamagedPresent zeroes and flips pages of the bbolt file: the store opens with everything or
// says what is wrong, and never panics.
func TestS76DamagedPresent(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir()})
	for i := range 40 {
		write(t, s, fmt.Sprintf("/%02d", i), 2)
	}
	rev := s.Status().Rev
	s.Close()
	master := s.options.Dir
	whole, err := os.ReadFile(filepath.Join(master, "present.db"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, damage := range []func(page []byte){
		func(p []byte) { clear(p) },
		func(p []byte) { p[8] ^= 0x40 },
		func(p []byte) { p[10] ^= 0x01 },
		func(p []byte) { p[20] ^= 0x10 },
		func(p []byte) { p[len(p)/2] ^= 0x01; p[17] ^= 0x02 },
	} {
		for page := 0; page < len(whole)/4096; page++ {
			if !slices.ContainsFunc(whole[page*4096:(page+1)*4096], func(b byte) bool { return b != 0 }) {
				continue // never used
			}
			dir := t.TempDir()
			if err := copyTree(master, dir); err != nil {
				t.Fatal(err)
			}
			change(t, filepath.Join(dir, "present.db"), func(data []byte) []byte {
				damage(data[page*4096 : (page+1)*4096])
				return data
			})
			s, err := Open(context.Background(), Options{Dir: dir})
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), "present.db") {
					t.Fatalf("page %d: the error does not name the file: %v", page, err)
				}
				continue
			}
			v, err := s.View(context.Background(), storage.Latest())
			if err != nil || v.Rev() != rev || v.Count("") != 40 {
				t.Fatalf("page %d damaged: opened at %d with %d keys, want %d with 40", page, v.Rev(), v.Count(""), rev)
			}
			s.Close()
		}
	}
	if refused == 0 {
		t.Fatal("no damage was noticed")
	}
	for name, cut := range map[string]func([]byte) []byte{
		"truncated": func(data []byte) []byte { return data[:2*4096+100] },
		"empty":     func([]byte) []byte { return nil },
		"text":      func([]byte) []byte { return []byte("no store at all") },
	} {
		dir := t.TempDir()
		if err := copyTree(master, dir); err != nil {
			t.Fatal(err)
		}
		change(t, filepath.Join(dir, "present.db"), cut)
		path := filepath.Join(dir, "present.db")
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(context.Background(), Options{Dir: dir})
		if damage := (*CorruptError)(nil); !errors.As(err, &damage) || damage.Path != path {
			t.Fatalf("%s: %v, want a *CorruptError of %s", name, err, path)
		}
		if after, err := os.Stat(path); err != nil || after.Size() != before.Size() {
			t.Fatalf("%s: the refused file was changed: %d bytes, then %d (%v)", name, before.Size(), after.Size(), err)
		}
	}
}

// powerCuts writes through a layer that loses what isn't synced, cuts the power in the middle of syncs and
// returns the first acknowledged write that is gone.
func powerCuts(t *testing.T, layer *faults, cuts int) error {
	s := mustOpen(t, small(t.TempDir(), Options{openLog: layer.open, HistoryRevisions: 200}))
	var mu sync.Mutex
	acknowledged := make(map[string]*storage.KV)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(stop)
	for i := range 8 {
		writers.Go(func() {
			key, at := fmt.Sprintf("/%d", i), storage.Rev(0)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				kv, err := s.Commit(context.Background(), storage.Write{Key: key, Value: fmt.Append(nil, n, strings.Repeat("x", n%9000)), If: at})
				if err != nil {
					t.Errorf("Commit: %v", err)
					return
				}
				at = kv.Rev
				mu.Lock()
				acknowledged[key] = kv
				mu.Unlock()
			}
		})
	}
	for range cuts {
		reached, resume := make(chan struct{}), make(chan struct{})
		var n atomic.Int32
		n.Store(1 + rand.Int32N(20))
		layer.set(func(l *faults) {
			l.cut = func(f *cachedFile) {
				if n.Add(-1) != 0 {
					return
				}
				// Of what was being written, the disk has got some blocks and not others.
				if err := f.flush(func(int64) bool { return rand.IntN(3) > 0 }); err != nil {
					t.Error(err)
				}
				close(reached)
				<-resume
			}
		})
		<-reached
		mu.Lock()
		want := maps.Clone(acknowledged)
		mu.Unlock()
		err := lost(t, image(t, s), want)
		close(resume)
		if err != nil {
			return err
		}
	}
	return nil
}

// lost says which of the writes is not in the store in dir.
func lost(t *testing.T, dir string, want map[string]*storage.KV) error {
	s, err := Open(context.Background(), small(dir, Options{}))
	if err != nil {
		return err
	}
	defer s.Close()
	v, err := s.View(context.Background(), storage.Latest())
	if err != nil {
		t.Fatal(err)
	}
	for key, kv := range want {
		if got, ok := v.Get(key); !ok || got.Rev < kv.Rev || got.Rev == kv.Rev && string(got.Value) != string(kv.Value) {
			return fmt.Errorf("%s was acknowledged at %d and is lost", key, kv.Rev)
		}
	}
	return nil
}

func TestPowerCut(t *testing.T) {
	if err := powerCuts(t, &faults{}, 20); err != nil {
		t.Fatal(err)
	}
}

// TestPowerCutIsNoticed checks the check: a sync that does nothing must be found.
func TestPowerCutIsNoticed(t *testing.T) {
	if err := powerCuts(t, &faults{lies: true}, 10); err == nil {
		t.Fatal("writes that were never synced were not missed")
	}
}

// TestSyncFails: the write's outcome is unknown, nobody sees it, nothing is written any more, reads go
// on, and opening again tells what the disk has.
func TestSyncFails(t *testing.T) {
	layer := &faults{}
	s := mustOpen(t, Options{Dir: t.TempDir(), openLog: layer.open})
	ctx := context.Background()
	kvs := write(t, s, "/a", 3)
	w, err := s.Watch(ctx, "", kvs[2].Rev)
	if err != nil {
		t.Fatal(err)
	}
	layer.set(func(l *faults) { l.sync = func(string) error { return unix.EIO } })
	_, err = s.Commit(ctx, storage.Write{Key: "/a", Value: []byte("x"), If: kvs[2].Rev})
	if !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, unix.EIO) {
		t.Fatalf("Commit: %v, want %v and the cause", err, storage.ErrUnknown)
	}
	layer.set(func(l *faults) { l.sync = nil }) // the next sync would succeed, and lie
	for range 2 {
		if _, err = s.Commit(ctx, storage.Write{Key: "/b", Value: []byte("x")}); !errors.Is(err, storage.ErrReadOnly) {
			t.Fatalf("Commit: %v, want %v", err, storage.ErrReadOnly)
		}
	}
	if err := s.Compact(ctx, kvs[1].Rev); !errors.Is(err, storage.ErrReadOnly) {
		t.Fatalf("Compact: %v, want %v", err, storage.ErrReadOnly)
	}
	if st := s.Status(); !errors.Is(st.Err, unix.EIO) || st.Rev != kvs[2].Rev {
		t.Fatalf("Status %+v", st)
	}
	wantHistory(t, s, kvs)
	if p := w.Progress(); p != kvs[2].Rev {
		t.Fatalf("a watcher is at %d", p)
	}
	dir := image(t, s)
	s.Close()
	wantHistory(t, mustOpen(t, Options{Dir: dir}), kvs)
}

func TestWriteFails(t *testing.T) {
	layer := &faults{}
	s := mustOpen(t, Options{Dir: t.TempDir(), openLog: layer.open})
	kvs := write(t, s, "/a", 3)
	layer.set(func(l *faults) { l.write = func(string, []byte, int64) error { return unix.EIO } })
	if _, err := s.Commit(context.Background(), storage.Write{Key: "/b", Value: []byte("x")}); !errors.Is(err, storage.ErrUnknown) {
		t.Fatalf("Commit: %v, want %v", err, storage.ErrUnknown)
	}
	layer.set(func(l *faults) { l.write = nil })
	if _, err := s.Commit(context.Background(), storage.Write{Key: "/b", Value: []byte("x")}); !errors.Is(err, storage.ErrReadOnly) {
		t.Fatalf("Commit: %v, want %v", err, storage.ErrReadOnly)
	}
	s.Close()
	wantHistory(t, mustOpen(t, Options{Dir: s.options.Dir}), kvs)
}

func TestLocked(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir()})
	_, err := Open(context.Background(), Options{Dir: s.options.Dir})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Fatalf("a second Open: %v, want an error that names the process", err)
	}
	s.Close()
	mustOpen(t, Options{Dir: s.options.Dir})
}
