package bolt

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// Sizes of a store follow from the file system that it is on: a log that is right for a disk would be all
// of a small one. Each may be set in Options instead.
const (
	largestSegment  = 16 << 20
	smallestSegment = 256 << 10
	segmentPart     = 128 // of the file system

	checkpointSegments = 2
	historySegments    = 8
)

// segmentFor is the size of a log segment on a file system of some size.
func segmentFor(total int64) int64 {
	size := int64(smallestSegment)
	for size < largestSegment && 2*size <= total/segmentPart {
		size *= 2
	}
	return size
}

// fileSystem is the size of the one that a directory is on, and what of it is left, in bytes.
func fileSystem(dir string) (total, left int64, err error) {
	var s unix.Statfs_t
	for {
		err = unix.Statfs(dir, &s)
		if err == nil {
			return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
}

// spareRoom is left on the file system, for others and for what the file system itself needs.
const spareRoom = 1 << 20

// needRoom is an error if the file system of dir does not have n bytes for us. To run into the end of
// the disk instead would take the last of it from everyone else, and leave half a file.
func needRoom(dir string, n int64) error {
	_, left, err := fileSystem(dir)
	if err != nil {
		return err
	}
	if left < n+spareRoom {
		return fmt.Errorf("storage: %d bytes are needed and %d are left: %w", n+spareRoom, left, &os.PathError{Op: "write", Path: dir, Err: unix.ENOSPC})
	}
	return nil
}

// newStoreNeeds is the room that a new store must find: a log that turns over, the present's file, and the
// reserve for writing that anew.
func newStoreNeeds(o Options) int64 {
	segments := int64(checkpointSegments + historySegments + 1)
	return segments*min(o.SegmentBytes, smallestSegment) + 2*o.reserveAhead(0)
}

// Room of the present's file. What bbolt makes of keys in order is bounded by footprint, and by the part
// of a page that each may leave empty; see reserved.
const (
	elementSize = 16 + 20                 // of bbolt's page element and of what this package stores with a value
	leafFill    = 4096 * 9 / 10           // fill goes on to the next page behind it
	perLeaf     = 2                       // bbolt never puts fewer keys in a page
	fileFloor   = 256 << 10               // of a file with next to nothing in it
	smallest    = 64 << 10                // room that is worth speaking of
	slackGrowth = 256                     // numbers and times that take more digits
	slackRoom   = fileFloor - fileFloor/4 // what such growth may use of the floor in all
)

// footprint is what a key takes of the present's file, in bytes, whatever its neighbours are.
func footprint(kv *storage.KV) int64 {
	if kv == nil {
		return 0
	}
	n := int64(elementSize + len(kv.Key) + len(kv.Value))
	if n > leafFill/perLeaf {
		return n + 4096
	}
	return min(n*5/3, 4096/perLeaf)
}

// fileNeeds is what a file with keys of these footprints may take. Some of it is for what changes while
// there is no more, and for what fill writes twice.
func fileNeeds(footprints int64) int64 {
	n := footprints + footprints/8 + fileFloor
	if footprints > transaction {
		n += footprints / 8
	}
	return n
}

// reserveAhead is what the present's file and its reserve are made large enough for.
func (o Options) reserveAhead(footprints int64) int64 {
	ahead := min(o.SegmentBytes/4, 1<<20) + footprints/8
	return fileNeeds(footprints) + ahead
}
