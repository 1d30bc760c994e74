package e2e

import (
	le "encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreRepair flips a bit of the log that a checkpoint covers. The daemon doesn't start and prints a command; that
// one refuses while a daemon runs, loses nothing, and members go on.
func TestStoreRepair(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 2)
	e.ready("demo", 2)
	pids := e.pids("demo")
	repair := []string{"store", "repair", "--drop-history", "--data-dir", e.Dir()}
	if out, err := e.operatord(repair...); err == nil || !strings.Contains(out, "in use by another operatord") {
		t.Errorf("a repair beside a daemon: %v\n%s", err, out)
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := e.operatord(repair...); err != nil || !strings.Contains(out, "whole") {
		t.Errorf("a repair of a whole store: %v\n%s", err, out)
	}
	flipLastBatch(t, e.File("store/log"))
	if err := e.Launch(); err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	if command := "operatord " + strings.Join(repair, " "); !strings.Contains(e.Log(), command) {
		t.Fatalf("it doesn't print %q:\n%s", command, e.Log())
	}
	out, err := e.operatord(repair...)
	if err != nil || !strings.Contains(out, "objects are kept") || !strings.Contains(out, ".damaged-") {
		t.Fatalf("%v\n%s", err, out)
	}
	e.start()
	e.ready("demo", 2)
	if after := e.pids("demo"); !maps.Equal(pids, after) {
		t.Errorf("pids before: %v, after: %v", pids, after)
	}
}

// flipLastBatch flips a bit in the body of the newest batch of a log.
func flipLastBatch(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "log-*"))
	if err != nil {
		t.Fatal(err)
	}
	newest, path, at := uint64(0), "", 0
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for off := 0; off+16 <= len(data); off += 4096 {
			if sequence := le.LittleEndian.Uint64(data[off+8:]); string(data[off:off+4]) == "opdb" && sequence > newest {
				newest, path, at = sequence, p, off+70
			}
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}
