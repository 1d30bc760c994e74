package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// files is what a directory holds, but for its lock.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// refused opens a store that must be refused, unchanged, with an error of which is told.
func refused[E error](t *testing.T, dir string) E {
	t.Helper()
	before := files(t, dir)
	s, err := Open(context.Background(), Options{Dir: dir})
	if err == nil {
		st := s.Status()
		s.Close()
		t.Fatalf("it opened, at revision %d with %d keys", st.Rev, st.Keys)
	}
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("%v, want a %T", err, e)
	}
	after := files(t, dir)
	for path, data := range before {
		if after[path] != data {
			t.Errorf("%s was changed", path)
		}
	}
	return e
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilesOfAnotherStore mixes the files of two stores, new and recorded ones: it is refused, and says whose file
// lies where.
func TestFilesOfAnotherStore(t *testing.T) {
	fresh := func() string {
		s := mustOpen(t, Options{Dir: t.TempDir()})
		s.Close()
		return s.options.Dir
	}
	stopped := func() string {
		s := mustOpen(t, Options{Dir: t.TempDir()})
		write(t, s, "/b", 9)
		s.Close()
		return s.options.Dir
	}
	written := func() string { dir, _ := crashed(t, 3); return dir }
	old := func() string { return unpackRecorded(t, "recycled") }
	for name, c := range map[string]struct{ log, present func() string }{
		"an empty store's present":    {written, fresh},
		"another store's present":     {written, stopped},
		"beside an earlier format":    {old, fresh},
		"of an earlier format":        {written, old},
		"a checkpoint and an old log": {old, stopped},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.log()
			copyFile(t, filepath.Join(c.present(), "present.db"), filepath.Join(dir, "present.db"))
			if e := refused[*CorruptError](t, dir); !strings.HasPrefix(filepath.Base(e.Path), "log") {
				t.Errorf("%v: want the file of the log", e)
			}
		})
	}
	t.Run("a segment", func(t *testing.T) {
		dir := written()
		copyFile(t, logFile(t, written()), filepath.Join(dir, "log", "log-0007"))
		if e := refused[*CorruptError](t, dir); filepath.Base(e.Path) != "log-0007" || e.Offset != 0 || !strings.Contains(e.What, "it is of store ") {
			t.Errorf("%v", e)
		}
	})
	t.Run("no present", func(t *testing.T) {
		dir := unpackRecorded(t, "recycled")
		if err := os.Remove(filepath.Join(dir, "present.db")); err != nil {
			t.Fatal(err)
		}
		refused[*CorruptError](t, dir)
	})
}

// TestUnknownBytesAreUsed: a segment that begins with something is never taken for an unused one, in a store
// without a checkpoint, whose log is all there is.
func TestUnknownBytesAreUsed(t *testing.T) {
	for _, batches := range []int{1, 3} {
		master, _ := crashed(t, batches)
		for at := batches; at < headerSize; at += 3 {
			dir := t.TempDir()
			if err := copyTree(master, dir); err != nil {
				t.Fatal(err)
			}
			path := logFile(t, dir)
			change(t, path, func(data []byte) []byte { data[at] ^= 0x80; return data })
			if at >= 4 && at < 8 { // of a format to come
				if e := refused[*FormatError](t, dir); e.Path != path || !strings.Contains(e.Error(), "as new as the one that wrote it") {
					t.Fatal(e)
				}
				continue
			}
			if e := refused[*CorruptError](t, dir); e.Path != path || e.Offset != 0 {
				t.Fatalf("byte %d flipped: %v", at, e)
			}
		}
	}
	dir, _ := crashed(t, 0)
	change(t, logFile(t, dir), func(data []byte) []byte { data[5*blockSize] = 1; return data })
	if e := refused[*CorruptError](t, dir); e.Offset != 5*blockSize {
		t.Fatal(e)
	}
}

// FuzzReplay puts any bytes in the place of the log of a store without a checkpoint: it opens with what was written,
// or is refused, and never opens as if nothing had been.
func FuzzReplay(f *testing.F) {
	s, err := Open(context.Background(), Options{Dir: f.TempDir(), SegmentBytes: 64 << 10})
	if err != nil {
		f.Fatal(err)
	}
	kvs := write(f, s, "/a", 3)
	master := image(f, s.(*Store))
	s.Close()
	whole, err := os.ReadFile(logFile(f, master))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[blockSize:])
	f.Add(whole[:blockSize+100])
	f.Add([]byte(batchMagic))
	f.Add(slices.Concat(whole[blockSize:], whole[:blockSize]))
	path, err := filepath.Rel(master, logFile(f, master))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := copyTree(master, dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Options{Dir: dir, SegmentBytes: 64 << 10})
		if err != nil {
			return
		}
		defer s.Close()
		rev := s.Status().Rev
		if rev > kvs[len(kvs)-1].Rev {
			t.Fatalf("it is at revision %d, nobody wrote it", rev)
		}
		h, ok := parseHeader(data[:min(len(data), headerSize)], s.(*Store).log.salt)
		if torn := ok && h.sequence == 1; rev == firstRev && !torn && !zero(data) {
			t.Fatal("a log with bytes in it opened as empty")
		}
	})
}

// TestPresentOfANewerFormat is refused by its number.
func TestPresentOfANewerFormat(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir()})
	write(t, s, "/a", 3)
	s.Close()
	db, err := bbolt.Open(s.present.path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(metaBucket)
		raw := append([]byte(nil), b.Get([]byte(metaKey))...)
		binary.LittleEndian.PutUint32(raw, presentFormat+1)
		return b.Put([]byte(metaKey), raw)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if e := refused[*FormatError](t, s.options.Dir); e.Format != presentFormat+1 || e.Path != s.present.path {
		t.Fatal(e)
	}
}

// TestRaisesTheFormat: a store of an earlier format is of today's before anything is written to it, so that no
// earlier program takes its log for its own.
func TestRaisesTheFormat(t *testing.T) {
	s := mustOpen(t, Options{Dir: unpackRecorded(t, "recycled")})
	killed := image(t, s)
	s.Close()
	for _, dir := range []string{killed, s.options.Dir} {
		p, m, _, err := openPresent(filepath.Join(dir, "present.db"), needRoom)
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		if m.format != presentFormat {
			t.Errorf("format %d", m.format)
		}
	}
}

// TestOverlap has a segment that begins with a batch which the log goes through elsewhere.
func TestOverlap(t *testing.T) {
	for _, batch := range []int{0, 2} {
		dir, _ := crashed(t, 5)
		data, err := os.ReadFile(logFile(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		again := make([]byte, 64<<10)
		copy(again, data[batch*blockSize:][:blockSize])
		path := filepath.Join(dir, "log", "log-0009")
		if err := os.WriteFile(path, again, 0o600); err != nil {
			t.Fatal(err)
		}
		if e := refused[*CorruptError](t, dir); e.Sequence != uint64(batch+1) {
			t.Fatal(e)
		}
	}
}

// TestRefusedWriteLeavesNothing: a write that was refused for want of room may have been written all the same. The
// next one has its sequence, and goes into another segment.
func TestRefusedWriteLeavesNothing(t *testing.T) {
	layer := &faults{}
	s := mustOpen(t, Options{Dir: t.TempDir(), SegmentBytes: 32 << 10, openLog: layer.open})
	kvs := write(t, s, "/a", 6)
	refuse := true
	layer.set(func(l *faults) {
		l.write = func(path string, p []byte, off int64) error {
			if !refuse || zero(p) {
				return nil
			}
			refuse = false
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err := f.WriteAt(p, off); err != nil {
				return err
			}
			return &os.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
		}
	})
	if _, err := s.Commit(t.Context(), storage.Write{Key: "/refused", Value: []byte("x")}); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("Commit: %v, want %v", err, storage.ErrFull)
	}
	kv, err := s.Commit(t.Context(), storage.Write{Key: "/large", Value: []byte(strings.Repeat("x", 3*blockSize))})
	if err != nil {
		t.Fatal(err)
	}
	wantHistory(t, mustOpen(t, Options{Dir: image(t, s)}), append(kvs, kv))
}

// TestCreateKilledBeforeSync: who made the store was killed before its names were durable. Who opens it sees to that.
func TestCreateKilledBeforeSync(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var synced []string
	o := Options{Dir: dir, syncDir: func(dir string) error { synced = append(synced, dir); return syncDir(dir) }}
	for _, what := range []string{"made", "found"} {
		synced = nil
		s := mustOpen(t, o)
		s.Close()
		for _, want := range []string{dir, filepath.Dir(dir)} {
			if !slices.Contains(synced, want) {
				t.Errorf("%s: %s was not synced, only %v", what, want, synced)
			}
		}
	}
	o.syncDir = func(string) error { return fmt.Errorf("no") }
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("it opened although its names may not be durable")
	}
}
