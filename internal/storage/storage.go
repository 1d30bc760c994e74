// Package storage keeps keys at revisions: compare-and-swap, views of one moment, and watch.
//
// It knows nothing of Kubernetes. A backend (storage/bolt, storage/etcd) implements Store over
// storage/mirror, which holds the present and the recent past in memory; storagetest is the contract
// as a suite.
//
// # Consistency
//
// Writes are linearizable: a Commit that has returned is in every View(Latest) taken afterwards, on
// every replica. A revision becomes visible only after it is durable. Views and events of one store
// agree: the view at revision r is the result of exactly the events up to r.
package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Rev orders all writes of a store: one write, one key, one revision. Revisions only grow, across
// restarts and restores. They are dense in the embedded store; nothing may count on that.
type Rev uint64

// KV is one key at one revision. It is immutable and shared by everyone who reads it.
type KV struct {
	Key     string
	Value   []byte
	Rev     Rev // of the write that made this value
	Created Rev // of the write that made the key
}

// Event is one write as a watcher sees it. Old is nil for a key that was created, New for one that
// was deleted.
type Event struct {
	Rev      Rev
	Old, New *KV
}

// Key is the key that the event is about.
func (e Event) Key() string {
	if e.New != nil {
		return e.New.Key
	}
	return e.Old.Key
}

// Guard is a condition on another key than the one written: fencing. Rev 0 means that the key must
// not exist.
type Guard struct {
	Key string
	Rev Rev
}

// Write is one compare-and-swap. There is no blind write.
type Write struct {
	Key    string
	Value  []byte  // nil deletes
	If     Rev     // the key's present revision; 0: it must not exist
	Guards []Guard // other keys that must still be at a revision
	Note   string  // who and why, for history; at most MaxNote bytes
}

// Limits of one write, in bytes. A Write over one of them is ErrTooLarge.
const (
	MaxKey   = 1024
	MaxValue = 8 << 20
	MaxNote  = 256
)

var (
	// Nothing was written.
	ErrFenced   = errors.New("storage: a guard no longer holds")
	ErrTooLarge = errors.New("storage: the write is over a size limit")
	ErrFull     = errors.New("storage: no room; deletes and compaction still work")
	ErrReadOnly = errors.New("storage: nothing is written until a restart")
	ErrClosed   = errors.New("storage: the store is closed")

	// ErrUnavailable: nothing was written either, for a cause that is tried again and may end by itself,
	// as a lack of descriptors.
	ErrUnavailable = errors.New("storage: nothing can be written for now")

	// ErrUnknown: the write may or may not have happened.
	ErrUnknown = errors.New("storage: the outcome of the write is unknown")

	// ErrCompacted: the revision is below the window of history that is kept, or the watcher was too
	// slow and has lost its place in it. Start again from a view.
	ErrCompacted = errors.New("storage: the revision has been compacted")

	// ErrFuture: View(Exact(r)) with r above the store's revision.
	ErrFuture = errors.New("storage: the revision is in the future")
)

// ConflictError says that the key was not at the revision the write named.
type ConflictError struct {
	Key     string
	Present *KV // durable; nil when the key does not exist
}

func (e *ConflictError) Error() string {
	if e.Present == nil {
		return fmt.Sprintf("storage: conflict: %s does not exist", e.Key)
	}
	return fmt.Sprintf("storage: conflict: %s is at revision %d", e.Key, e.Present.Rev)
}

// At says how fresh a view must be. The zero value is Latest.
type At struct {
	mode atMode
	rev  Rev
}

type atMode uint8

const (
	atLatest atMode = iota
	atAny
	atNotOlder
	atExact
)

// Latest asks for a view that holds every write acknowledged before the call.
func Latest() At { return At{mode: atLatest} }

// Any asks for whatever view is at hand.
func Any() At { return At{mode: atAny} }

// NotOlder asks for a view at r or later, and waits for it as long as the context allows.
func NotOlder(r Rev) At { return At{mode: atNotOlder, rev: r} }

// Exact asks for the view at r itself: ErrCompacted below the window, ErrFuture above the present.
func Exact(r Rev) At { return At{mode: atExact, rev: r} }

// IsLatest, IsAny, NotOlderRev and ExactRev take an At apart, for backends.
func (a At) IsLatest() bool           { return a.mode == atLatest }
func (a At) IsAny() bool              { return a.mode == atAny }
func (a At) NotOlderRev() (Rev, bool) { return a.rev, a.mode == atNotOlder }
func (a At) ExactRev() (Rev, bool)    { return a.rev, a.mode == atExact }

// Store is a set of keys with history. All methods may be called concurrently.
type Store interface {
	// Commit does one write: durable, then visible, then returned. It returns the key's new state; for
	// a delete, a KV with a nil Value and the deletion's revision.
	//
	// Nothing was written: *ConflictError, ErrFenced, ErrTooLarge, ErrFull, ErrUnavailable, ErrReadOnly,
	// ErrClosed, or the context's error while the write was still queued. It may have been written: ErrUnknown.
	// The store keeps the value: nobody may change it any more.
	Commit(ctx context.Context, w Write) (*KV, error)

	// View is the store at one revision, as fresh as at asks.
	View(ctx context.Context, at At) (View, error)

	// Watch gives every event of keys with the prefix after a revision: ordered, unique, reliable and
	// resumable, across restarts and replicas, while the window of history lasts. It never delays a
	// writer or another watcher: one that is too slow, or asks for too old a revision, gets
	// ErrCompacted (here or from Next). A revision in the future is allowed: nothing comes until then.
	Watch(ctx context.Context, prefix string, after Rev) (Watcher, error)

	// Compact forgets history up to and including r; the present is never lost. Views at r and later
	// stay possible.
	Compact(ctx context.Context, r Rev) error

	Status() Status
	Close() error
}

// View is the store at one revision. It is immutable, O(1) to take, holds no lock and needs no Close.
type View interface {
	Rev() Rev
	Get(key string) (*KV, bool)
	// Range gives the keys with the prefix that are not below from, in order of their bytes.
	Range(prefix, from string) iter.Seq[*KV]
	// Count is the number of keys with the prefix.
	Count(prefix string) int
}

// Watcher is one place in the stream of events. Next and Progress are for one goroutine; Close may be
// called from any.
type Watcher interface {
	// Next waits for events and returns at least one, oldest first, or an error: ErrCompacted,
	// ErrClosed, or the context's. Others read the same slice: it may not be changed.
	Next(ctx context.Context) ([]Event, error)
	// Progress is a revision such that Next has returned every event at or below it: what a bookmark
	// may say. It grows also while no event matches.
	Progress() Rev
	Close()
}

// Status is what the store says about itself.
type Status struct {
	Rev       Rev   // the newest visible revision
	Compacted Rev   // history at or below it is gone
	Keys      int   // present keys
	DiskBytes int64 // on disk, all files
	Err       error // why nothing can be written; nil when all is well
}
