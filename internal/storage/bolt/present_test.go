package bolt

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// TestDropPagesKeepsNeighbours has a file that ends behind its map, as bbolt makes one that grows in steps, and
// memory of somebody else there.
func TestDropPagesKeepsNeighbours(t *testing.T) {
	const mapped = 4 << 20
	path := filepath.Join(t.TempDir(), "present.db")
	for range 20 {
		// The kernel puts a map into the highest hole that it fits in. This makes one, below memory of ours.
		both, err := unix.MmapPtr(-1, 0, nil, 2*mapped, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.MunmapPtr(both, mapped); err != nil {
			t.Fatal(err)
		}
		above := unsafe.Add(both, mapped)
		defer unix.MunmapPtr(above, mapped)
		neighbour := unsafe.Slice((*byte)(above), mapped)
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{InitialMmapSize: mapped})
		if err != nil {
			t.Fatal(err)
		}
		if db.Info().Data != uintptr(both) { // another hole: it stays filled
			defer db.Close()
			path += "+"
			continue
		}
		defer db.Close()
		db.AllocSize = allocSize
		if err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(presentBucket)
			if err != nil {
				return err
			}
			return b.Put([]byte("key"), make([]byte, mapped-allocSize/2))
		}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() <= mapped || db.Info().Data != uintptr(both) {
			t.Fatalf("the file has %d bytes, its map %d: this test needs a file that is longer", info.Size(), mapped)
		}
		pattern := bytes.Repeat([]byte{0xa5}, mapped)
		copy(neighbour, pattern)
		(&present{db: db, path: path}).dropPages()
		if !bytes.Equal(neighbour, pattern) {
			t.Fatal("memory behind the map was cleared")
		}
		return
	}
	t.Fatal("no map below memory of this test's")
}
