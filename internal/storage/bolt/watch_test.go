package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"operatord.io/operatord/internal/storage"
)

// TestLostDirectory: a store whose files are removed or replaced under it is noticed by whoever asks how it
// is, and by the next write. Nothing is acknowledged that went nowhere.
func TestLostDirectory(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"all":        os.RemoveAll,
		"the log":    func(dir string) error { return os.RemoveAll(filepath.Join(dir, "log")) },
		"present.db": func(dir string) error { return os.Remove(filepath.Join(dir, "present.db")) },
		"the log, replaced": func(dir string) error {
			log := filepath.Join(dir, "log")
			return errors.Join(os.Rename(log, log+".old"), copyTree(log+".old", log))
		},
		"moved": func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), copyTree(dir+".old", dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, asked := range []bool{true, false} {
				s := mustOpen(t, Options{Dir: filepath.Join(t.TempDir(), "store")})
				kvs := write(t, s, "/a", 3)
				if err := s.Status().Err; err != nil {
					t.Fatal(err)
				}
				if err := lose(s.options.Dir); err != nil {
					t.Fatal(err)
				}
				if asked {
					if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "was removed or replaced") || !strings.Contains(err.Error(), s.options.Dir) {
						t.Fatalf("Status says %v", err)
					}
				} else if name != "all" && name != "the log" {
					// The file that is written to has its name, of a kind: the next checkpoint finds out.
					if err := s.Compact(t.Context(), kvs[1].Rev); !errors.Is(err, storage.ErrReadOnly) {
						t.Fatalf("Compact: %v, want %v", err, storage.ErrReadOnly)
					}
				} else if _, err := s.Commit(t.Context(), storage.Write{Key: "/b", Value: []byte("x")}); !errors.Is(err, storage.ErrUnknown) {
					t.Fatalf("Commit: %v, want %v", err, storage.ErrUnknown)
				}
				if _, err := s.Commit(t.Context(), storage.Write{Key: "/b", Value: []byte("x")}); !errors.Is(err, storage.ErrReadOnly) {
					t.Fatalf("Commit: %v, want %v", err, storage.ErrReadOnly)
				}
				wantHistory(t, s, kvs)
			}
		})
	}
}

// TestHangingSync: a sync that doesn't return makes the store say so, until it does.
func TestHangingSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layer := &faults{}
		s := mustOpen(t, Options{Dir: t.TempDir(), openLog: layer.open})
		write(t, s, "/a", 1)
		release := make(chan struct{})
		layer.set(func(l *faults) { l.sync = func(string) error { <-release; return nil } })
		done := make(chan error, 1)
		go func() {
			_, err := s.Commit(context.Background(), storage.Write{Key: "/b", Value: []byte("x")})
			done <- err
		}()
		time.Sleep(hangs - time.Millisecond)
		if err := s.Status().Err; err != nil {
			t.Fatalf("after less than %v: %v", hangs, err)
		}
		time.Sleep(2 * time.Second)
		if err := s.Status().Err; !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "waiting for the disk for 7s") {
			t.Fatalf("Status says %v", err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := s.Status().Err; err != nil {
			t.Fatalf("after the sync: %v", err)
		}
		s.Close()
	})
}
