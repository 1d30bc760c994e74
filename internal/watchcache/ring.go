package watchcache

import (
	"slices"
	"sort"
	"strings"
	"sync"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// ring holds the most recent events of one kind, oldest first: every one above floor and at or below the
// cache's progress. It exists while the kind is watched.
type ring struct {
	prefix string // of the kind's keys
	open   int    // watches; guarded by the cache's mu

	events int   // how many at most
	bytes  int64 // and how large, by their values

	mu      sync.Mutex
	entries []*entry // the first head of them have been dropped
	head    int
	size    int64
	floor   storage.Rev

	waiters broadcast
}

// entry is one event, with its objects made when the first watch needs them.
type entry struct {
	event storage.Event
	// fence marks a change of the CRD that declares the kind: not an event of the kind itself.
	fence bool
	gone  bool // the CRD was deleted

	mu       sync.Mutex
	kind     *resource.Kind
	new, old *Object
}

// append adds an event; the oldest make room. The caller wakes the waiters afterwards.
func (r *ring) append(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
	r.size += e.bytes()
	for n := len(r.entries) - r.head; n > 1 && (n > r.events || r.size > r.bytes); n-- {
		oldest := r.entries[r.head]
		r.entries[r.head] = nil
		r.head++
		r.size -= oldest.bytes()
		r.floor = oldest.event.Rev
	}
	if r.head > 64 && r.head > len(r.entries)/2 {
		r.entries = slices.Clone(r.entries[r.head:])
		r.head = 0
	}
}

// reset empties the ring; its history begins above floor.
func (r *ring) reset(floor storage.Rev) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries, r.head, r.size = nil, 0, 0
	r.floor = floor
}

// after fills dst with entries above rev, oldest first, and tells how many there are and whether more
// follow. ok is false when the ring no longer holds them all.
func (r *ring) after(rev storage.Rev, dst []*entry) (n int, more, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rev < r.floor {
		return 0, false, false
	}
	have := r.entries[r.head:]
	// A watch is usually at the end, or one event before it.
	start := len(have)
	if start > 0 && have[start-1].event.Rev > rev {
		start = sort.Search(len(have), func(i int) bool { return have[i].event.Rev > rev })
	}
	n = copy(dst, have[start:])
	return n, start+n < len(have), true
}

// covers tells whether everything above rev is in the ring.
func (r *ring) covers(rev storage.Rev) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rev >= r.floor
}

// bytes is what an event holds on to.
func (e *entry) bytes() int64 {
	n := 0
	if e.event.New != nil {
		n += len(e.event.New.Value)
	}
	if e.event.Old != nil {
		n += len(e.event.Old.Value)
	}
	return int64(n)
}

// objects are the new state and the old one, both at the event's revision. Watches of the same kind share
// them.
func (e *entry) objects(k *resource.Kind, born storage.Rev) (now, before *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kind != k {
		e.kind, e.new, e.old = k, nil, nil
		if e.event.New != nil {
			e.new = newObject(k, e.event.New, e.event.Rev, born)
			e.new.shared = true
		}
		if e.event.Old != nil {
			e.old = newObject(k, e.event.Old, e.event.Rev, born)
			e.old.shared = true
		}
	}
	return e.new, e.old
}

// kindPrefix is the part of a key that names the kind: /GROUP/PLURAL/.
func kindPrefix(key string) string {
	if i := strings.IndexByte(key[1:], '/'); i >= 0 {
		if j := strings.IndexByte(key[i+2:], '/'); j >= 0 {
			return key[:i+2+j+1]
		}
	}
	return key
}

const crdPrefix = "/apiextensions.k8s.io/customresourcedefinitions/"

// declared is the prefix of the kind that a CRD's key declares: CRDs are named PLURAL.GROUP.
func declared(key string) (prefix string, ok bool) {
	name, ok := strings.CutPrefix(key, crdPrefix)
	if !ok {
		return "", false
	}
	plural, group, ok := strings.Cut(name, ".")
	return "/" + group + "/" + plural + "/", ok
}
