package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A copy of a file with holes has the same holes: what a backup doesn't take on its disk, a member's data doesn't
// either.
func TestCopyKeepsHoles(t *testing.T) {
	const size = 1 << 40
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	f, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{0, 64 << 20, size - 5} {
		if _, err := f.WriteAt([]byte("words"), at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		size int64
	}{{"data at the end", size}, {"a hole at the end", size + 1<<20}} {
		if err := f.Truncate(c.size); err != nil {
			t.Fatal(err)
		}
		steps := 0
		step := func() error {
			if steps++; steps > 100 {
				return os.ErrDeadlineExceeded
			}
			return nil
		}
		if err := (osDisk{}).Copy(step, from, to, 0o600); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		g, err := os.Open(to)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		info, err := g.Stat()
		if err != nil || info.Size() != c.size || info.Sys().(*syscall.Stat_t).Blocks > 1<<10 {
			t.Errorf("%s: %d bytes in %d blocks, %v", c.name, info.Size(), info.Sys().(*syscall.Stat_t).Blocks, err)
		}
		for _, at := range []int64{0, 64 << 20, size - 5} {
			got := make([]byte, 5)
			if _, err := g.ReadAt(got, at); err != nil || !bytes.Equal(got, []byte("words")) {
				t.Errorf("%s: at %d: %q, %v", c.name, at, got, err)
			}
		}
		if err := os.Remove(to); err != nil {
			t.Fatal(err)
		}
	}
}
