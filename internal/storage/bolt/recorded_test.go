package bolt

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// listing is what the program that wrote a recorded store says of it.
type listing struct {
	Rev, Compacted storage.Rev
	Keys           []listedKey
	Events         []listedEvent // of all history
}

type listedKey struct {
	Key          string
	Rev, Created storage.Rev
	Value        string // the start of its SHA-256
}

type listedEvent struct {
	Rev           storage.Rev
	Key, Old, New string
}

func sum(kv *storage.KV) string {
	if kv == nil {
		return ""
	}
	h := sha256.Sum256(kv.Value)
	return hex.EncodeToString(h[:8])
}

// list says what is in a store, and in its history after a revision.
func list(t *testing.T, s storage.Store, after storage.Rev) listing {
	t.Helper()
	v, err := s.View(t.Context(), storage.Latest())
	if err != nil {
		t.Fatal(err)
	}
	l := listing{Rev: v.Rev(), Compacted: s.Status().Compacted}
	for kv := range v.Range("", "") {
		l.Keys = append(l.Keys, listedKey{kv.Key, kv.Rev, kv.Created, sum(kv)})
	}
	w, err := s.Watch(t.Context(), "", after)
	if err != nil {
		t.Fatalf("Watch after %d: %v", after, err)
	}
	defer w.Close()
	for at := after; at < l.Rev; {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		for _, e := range events {
			at = e.Rev
			l.Events = append(l.Events, listedEvent{e.Rev, e.Key(), sum(e.Old), sum(e.New)})
		}
	}
	return l
}

// recorded are the stores that earlier programs wrote, by the name of their archive in testdata/recorded. Commit
// f14d261 (batches and present of format 1) left, of whole data directories: "killed" without a checkpoint,
// "stopped" with one of everything, "both" with one and a log after it; and "recycled", a store alone, with
// segments that have been used again and history that has been given up.
//
// A store of each format that was ever on main stays here.
func recorded(t *testing.T) []string {
	t.Helper()
	archives, err := filepath.Glob("testdata/recorded/*.tar.gz")
	if err != nil || len(archives) < 4 {
		t.Fatalf("recorded stores %v, %v", archives, err)
	}
	for i, path := range archives {
		archives[i] = strings.TrimSuffix(filepath.Base(path), ".tar.gz")
	}
	return archives
}

// unpackRecorded gives the directory of a recorded store.
func unpackRecorded(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "recorded", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "store")
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if !strings.HasPrefix(filepath.Clean(h.Name), "store") {
			continue
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func golden(t testing.TB, name string) (l listing) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".store.json"))
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// same compares a store with what was recorded of it; more is how many writes it has had since.
func (l listing) same(t *testing.T, s storage.Store, more int) {
	t.Helper()
	from := max(l.Compacted, firstRev)
	got := list(t, s, from)
	if got.Rev != l.Rev+storage.Rev(more) || got.Compacted != l.Compacted {
		t.Errorf("at revision %d, compacted to %d, want %d and %d", got.Rev, got.Compacted, l.Rev+storage.Rev(more), l.Compacted)
	}
	keys := slices.DeleteFunc(got.Keys, func(k listedKey) bool { return k.Rev > l.Rev })
	if !slices.Equal(keys, l.Keys) {
		t.Errorf("keys\n%v, want\n%v", keys, l.Keys)
	}
	if events := got.Events[:len(got.Events)-more]; !slices.Equal(events, l.Events) {
		t.Errorf("events\n%v, want\n%v", events, l.Events)
	}
	for i := 0; i < len(l.Events)-1; i += 1 + len(l.Events)/5 { // a client resumes from any of them
		e := l.Events[i]
		w, err := s.Watch(t.Context(), "", e.Rev)
		if err != nil {
			t.Fatalf("Watch after %d: %v", e.Rev, err)
		}
		events, err := w.Next(t.Context())
		if err != nil || len(events) == 0 || events[0].Rev != e.Rev+1 {
			t.Fatalf("the first events after %d: %v %v", e.Rev, events, err)
		}
		w.Close()
	}
}

// TestOpensRecordedStores opens what earlier programs left: the same keys, revisions, values and history, also after
// this program has written to it, stopped, been killed, and started again.
func TestOpensRecordedStores(t *testing.T) {
	for _, name := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, want := unpackRecorded(t, name), golden(t, name)
			s := mustOpen(t, Options{Dir: dir})
			want.same(t, s, 0)
			kvs := write(t, s, "/new", 3)
			want.same(t, s, 3)
			killed := image(t, s)
			s.Close()
			for _, dir := range []string{dir, killed} {
				s, err := Open(context.Background(), Options{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				want.same(t, s, 3)
				wantHistory(t, s, kvs)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
