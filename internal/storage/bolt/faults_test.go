package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// faults is a file layer that the log's files go through. What is written stays in memory until a
// sync, as in a page cache that a power cut empties; before and after a sync a test may look, or fail
// it.
type faults struct {
	mu     sync.Mutex
	write  func(path string, p []byte, off int64) error // nil: no fault
	sync   func(path string) error
	create func(path string) error
	synced func()
	cut    func(*cachedFile) // before the blocks are written
	lies   bool              // sync does nothing and says that it has
}

func (l *faults) open(path string, create bool) (file, error) {
	l.mu.Lock()
	hook := l.create
	l.mu.Unlock()
	if create && hook != nil {
		if err := hook(path); err != nil {
			return nil, err
		}
	}
	f, err := openOS(path, create)
	if err != nil {
		return nil, err
	}
	return &cachedFile{faults: l, path: path, file: f, dirty: make(map[int64][]byte)}, nil
}

// cachedFile keeps written blocks until they are synced.
type cachedFile struct {
	faults *faults
	path   string
	file

	mu    sync.Mutex
	dirty map[int64][]byte // by offset, in whole blocks
}

func (f *cachedFile) WriteAt(p []byte, off int64) (int, error) {
	f.faults.mu.Lock()
	hook := f.faults.write
	f.faults.mu.Unlock()
	if hook != nil {
		if err := hook(f.path, p, off); err != nil {
			return 0, err
		}
	}
	if off%blockSize != 0 || len(p)%blockSize != 0 {
		return 0, errors.New("the log writes whole blocks only")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 0; i < len(p); i += blockSize {
		f.dirty[off+int64(i)] = append([]byte(nil), p[i:i+blockSize]...)
	}
	return len(p), nil
}

func (f *cachedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, block := range f.dirty {
		if at < off+int64(len(p)) && at+blockSize > off {
			from := max(at, off)
			n = max(n, int(from-off)+copy(p[from-off:], block[from-at:]))
		}
	}
	if n == len(p) {
		err = nil
	}
	return n, err
}

func (f *cachedFile) Datasync() error {
	f.faults.mu.Lock()
	hook, synced, cut, lies := f.faults.sync, f.faults.synced, f.faults.cut, f.faults.lies
	f.faults.mu.Unlock()
	if hook != nil {
		if err := hook(f.path); err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.path, Err: err}
		}
	}
	if cut != nil {
		cut(f)
	}
	if lies {
		return nil
	}
	if err := f.flush(func(int64) bool { return true }); err != nil {
		return err
	}
	if synced != nil {
		synced()
	}
	return nil
}

// flush writes the dirty blocks that which accepts.
func (f *cachedFile) flush(which func(off int64) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for off, block := range maps.Clone(f.dirty) {
		if !which(off) {
			continue
		}
		if _, err := f.file.WriteAt(block, off); err != nil {
			return err
		}
		delete(f.dirty, off)
	}
	return nil
}

// set changes hooks while the store is open.
func (l *faults) set(change func(*faults)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// image copies what is on the disk, as a power cut at this moment would leave it, while no checkpoint
// is being written.
func image(t testing.TB, s *Store) string {
	t.Helper()
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	to := t.TempDir()
	if err := copyTree(s.options.Dir, to); err != nil {
		t.Fatal(err)
	}
	return to
}

func copyTree(from, to string) error {
	return filepath.Walk(from, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil // removed meanwhile
			}
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if info.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(target)
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = io.Copy(out, in)
		return err
	})
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*Store)
}

// write makes n writes to key, each on the one before, and returns what was acknowledged.
func write(t testing.TB, s storage.Store, key string, n int) []*storage.KV {
	t.Helper()
	var kvs []*storage.KV
	at := storage.Rev(0)
	if v, err := s.View(context.Background(), storage.Latest()); err == nil {
		if kv, ok := v.Get(key); ok {
			at = kv.Rev
		}
	}
	for i := range n {
		kv, err := s.Commit(context.Background(), storage.Write{Key: key, Value: fmt.Appendf(nil, "%s-%d", key, i), If: at, Note: "test"})
		if err != nil {
			t.Fatalf("Commit: %v", err)
		}
		at = kv.Rev
		kvs = append(kvs, kv)
	}
	return kvs
}

// wantHistory checks that the store is at the last of kvs and gives each of them as an event.
func wantHistory(t testing.TB, s storage.Store, kvs []*storage.KV) {
	t.Helper()
	if got, want := s.Status().Rev, kvs[len(kvs)-1].Rev; got != want {
		t.Fatalf("the store is at revision %d, want %d", got, want)
	}
	w, err := s.Watch(context.Background(), "", kvs[0].Rev-1)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	defer w.Close()
	for len(kvs) > 0 {
		events, err := w.Next(context.Background())
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		for _, e := range events {
			if want := kvs[0]; e.Rev != want.Rev || e.New == nil || e.New.Key != want.Key || string(e.New.Value) != string(want.Value) {
				t.Fatalf("event %+v, want %+v", e, want)
			}
			kvs = kvs[1:]
		}
	}
}
