package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPodsJudgedSince: from the beginning in a new directory, from the first start on in one that was there, and
// neither changes any more.
func TestPodsJudgedSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 700_000_000, time.UTC)
	for _, tc := range []struct {
		name    string
		prepare func(dir string) error
		want    time.Time
	}{
		{"new", func(string) error { return nil }, time.Time{}},
		{"old", func(dir string) error { return os.Mkdir(filepath.Join(dir, storeDir), 0o700) }, now},
		{"damaged", func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, storeDir), 0o700), os.WriteFile(filepath.Join(dir, judgedFile), []byte("2026-05"), 0o600))
		}, now},
	} {
		d := &dataDir{path: t.TempDir()}
		if err := tc.prepare(d.path); err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{now, now.Add(time.Hour)} {
			since, err := d.podsJudgedSince(at, slog.New(slog.DiscardHandler))
			if err != nil || !since.Equal(tc.want) {
				t.Errorf("%s at %s: %s, %v", tc.name, at, since, err)
			}
			if err := os.MkdirAll(filepath.Join(d.path, storeDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
}
