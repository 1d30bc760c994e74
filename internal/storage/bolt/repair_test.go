package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// checkpointed is a store with n batches in the log and a checkpoint of them, and more after it.
func checkpointed(t *testing.T, n, more int) (dir string, kvs []*storage.KV) {
	t.Helper()
	s := mustOpen(t, Options{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	kvs = write(t, s, "/a", n)
	if err := s.checkpoint(0); err != nil {
		t.Fatal(err)
	}
	if more > 0 {
		kvs = append(kvs, write(t, s, "/b", more)...)
	}
	return image(t, s), kvs
}

func flip(t *testing.T, dir string, at int) {
	t.Helper()
	change(t, logFile(t, dir), func(data []byte) []byte { data[at] ^= 1; return data })
}

// repaired opens a repaired store: all keys are there, at their revisions, and history has gone.
func repaired(t *testing.T, dir string, kvs []*storage.KV) {
	t.Helper()
	s := mustOpen(t, Options{Dir: dir})
	defer s.Close()
	v, err := s.View(t.Context(), storage.Latest())
	if err != nil {
		t.Fatal(err)
	}
	last := make(map[string]*storage.KV)
	for _, kv := range kvs {
		last[kv.Key] = kv
	}
	for key, want := range last {
		if got, ok := v.Get(key); !ok || got.Rev != want.Rev || got.Created != want.Created || string(got.Value) != string(want.Value) {
			t.Errorf("%s is %+v, want %+v", key, got, want)
		}
	}
	if _, err := s.Watch(t.Context(), "", kvs[0].Rev); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a watch from before the repair: %v, want %v", err, storage.ErrCompacted)
	}
	write(t, s, "/after", 2)
}

// TestRepairDropsHistory damages every batch that a checkpoint covers, the last of them too, in header and body: the store is
// refused with the command that helps, and that keeps all that was acknowledged, and the damaged files.
func TestRepairDropsHistory(t *testing.T) {
	for _, more := range []int{0, 2} {
		master, kvs := checkpointed(t, 4, more)
		for batch := range 4 {
			for _, at := range []int{9, headerSize + 5} {
				dir := t.TempDir()
				if err := copyTree(master, dir); err != nil {
					t.Fatal(err)
				}
				flip(t, dir, batch*blockSize+at)
				damaged, err := os.ReadFile(logFile(t, dir))
				if err != nil {
					t.Fatal(err)
				}
				want := "operatord store repair --drop-history --data-dir " + filepath.Dir(dir)
				if e := refused[*CorruptError](t, dir); !strings.Contains(e.Error(), want) {
					t.Fatalf("%v: want %q", e, want)
				}
				done, err := DropHistory(t.Context(), dir, false)
				if err != nil {
					t.Fatalf("batch %d, byte %d, %d more: %v", batch, at, more, err)
				}
				if done.Loss != "" || done.Rev != kvs[len(kvs)-1].Rev || len(done.Kept) != 2 {
					t.Errorf("%+v", done)
				}
				for _, kept := range done.Kept {
					if strings.Contains(kept, "/log"+damagedSuffix) {
						if data, err := os.ReadFile(filepath.Join(kept, "log-0000")); err != nil || string(data) != string(damaged) {
							t.Errorf("the damaged file is not kept: %v", err)
						}
					}
				}
				repaired(t, dir, kvs)
			}
		}
	}
}

// TestRepairRefusesLoss: what was acknowledged after the checkpoint goes only with consent, and revisions that were
// given out are never given to something else.
func TestRepairRefusesLoss(t *testing.T) {
	for name, damage := range map[string]func(dir string){
		"a batch after the checkpoint": func(dir string) { flip(t, dir, 5*blockSize+headerSize) },
		"no log":                       func(dir string) { os.RemoveAll(filepath.Join(dir, "log")) },
		"no file":                      func(dir string) { os.Remove(logFile(t, dir)) },
		"zeros": func(dir string) {
			change(t, logFile(t, dir), func(data []byte) []byte { clear(data[blockSize:]); return data })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, kvs := checkpointed(t, 4, 3)
			damage(dir)
			refused[*CorruptError](t, dir)
			before := files(t, dir)
			var loss *LossError
			if _, err := DropHistory(t.Context(), dir, false); !errors.As(err, &loss) || !strings.Contains(err.Error(), "--accept-loss") {
				t.Fatalf("%v, want a %T", err, loss)
			}
			if after := files(t, dir); len(after) != len(before) {
				t.Fatalf("files %d, were %d", len(after), len(before))
			}
			done, err := DropHistory(t.Context(), dir, true)
			if err != nil || done.Loss == "" || done.Rev <= kvs[len(kvs)-1].Rev {
				t.Fatalf("%+v, %v", done, err)
			}
			repaired(t, dir, kvs[:4])
		})
	}
}

func TestRepairRefuses(t *testing.T) {
	dir, kvs := checkpointed(t, 3, 2)
	if _, err := DropHistory(t.Context(), dir, true); !errors.Is(err, ErrWhole) {
		t.Errorf("a whole store: %v, want %v", err, ErrWhole)
	}
	s := mustOpen(t, Options{Dir: dir})
	wantHistory(t, s, kvs)
	if _, err := DropHistory(t.Context(), dir, true); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a store that is open: %v", err)
	}
	s.Close()
	change(t, filepath.Join(dir, "present.db"), func(data []byte) []byte { clear(data[2*blockSize:]); return data })
	if _, err := DropHistory(t.Context(), dir, true); err == nil || !strings.Contains(err.Error(), "present.db") {
		t.Errorf("a damaged present: %v", err)
	}
}

// TestRepairInterrupted ends a repair between any two of its steps. The store doesn't open, and running it again
// finishes it.
func TestRepairInterrupted(t *testing.T) {
	for step := range 4 {
		dir, kvs := checkpointed(t, 4, 2)
		flip(t, dir, 2*blockSize+headerSize)
		path, logDir := filepath.Join(dir, "present.db"), filepath.Join(dir, "log")
		if _, err := DropHistory(t.Context(), dir, false); err != nil {
			t.Fatal(err)
		}
		// Back to before the steps that were not done.
		aside, err := filepath.Glob(filepath.Join(dir, "*"+damagedSuffix+"*"))
		if err != nil || len(aside) != 2 {
			t.Fatal(aside, err)
		}
		os.Rename(path, path+repairedSuffix)
		if step < 3 {
			os.Remove(logDir)
		}
		for i, old := range aside { // log, present.db: in the opposite order of their moving
			if step < 2-i {
				os.Rename(old, old[:strings.Index(old, damagedSuffix)])
			}
		}
		if _, err := Open(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Fatalf("step %d: Open: %v", step, err)
		}
		if _, err := DropHistory(t.Context(), dir, false); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		repaired(t, dir, kvs)
	}
}
