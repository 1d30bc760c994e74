package bolt

import (
	"context"
	"testing"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/storagetest"
)

func TestStore(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.Harness {
		dir := t.TempDir()
		return storagetest.Harness{Open: func(t *testing.T, o storagetest.Options) storage.Store {
			t.Helper()
			s, err := Open(context.Background(), small(dir, Options{HistoryRevisions: o.History, RingEvents: o.Ring}))
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			return s
		}}
	})
}

// small makes checkpoints and new segments happen within a test.
func small(dir string, o Options) Options {
	o.Dir = dir
	o.SegmentBytes = 64 << 10
	o.CheckpointBytes = 128 << 10
	return o
}
