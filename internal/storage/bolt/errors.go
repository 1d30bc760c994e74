package bolt

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// CorruptError says that a file does not hold what was written to it. The store does not open then,
// and puts nothing in its place.
type CorruptError struct {
	Path     string
	Offset   int64  // in bytes; -1 where it is unknown
	Sequence uint64 // of the batch; 0 where it is unknown
	What     string

	dataDir string // of a store whose present is whole
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("storage: %s is damaged", e.Path)
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", e.Offset)
	}
	if e.Sequence > 0 {
		s += fmt.Sprintf(" (batch %d)", e.Sequence)
	}
	s += ": " + e.What + ". Nothing was changed. Keep a copy of the directory, and put the last good copy of all of it in its place"
	if e.dataDir != "" {
		s += "; or give up history and keep the objects:\n  operatord store repair --drop-history --data-dir " + e.dataDir
	}
	return s
}

// ErrGone: there is no store where one was served from before (Options.Existing).
var ErrGone = errors.New("the store that was served from here is gone")

// FormatError says that a newer program wrote a file. Older formats are always read.
type FormatError struct {
	Path          string
	Format, Known uint32 // Known is the newest that this program knows
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("storage: %s is of format %d, and this program knows formats up to %d: run a version of operatord that is as new as the one that wrote it. Nothing was changed", e.Path, e.Format, e.Known)
}

// reason is why something does not go, nil while it does.
type reason struct{ p atomic.Pointer[error] }

func (r *reason) get() error {
	if p := r.p.Load(); p != nil {
		return *p
	}
	return nil
}

// set gives the reason, if there is none yet, and says so.
func (r *reason) set(err error) (first bool) { return r.p.CompareAndSwap(nil, &err) }

// clear ends it and says whether there was one.
func (r *reason) clear() bool { return r.p.Swap(nil) != nil }
