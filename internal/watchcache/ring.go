package watchcache

import (
	"sort"
	"strings"
	"sync"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// ring holds the most recent events of one kind, oldest first, each with a sequence number. It holds every
// event of the kind above floor and at or below the cache's progress.
type ring struct {
	size int

	mu      sync.Mutex
	entries []*entry // entry of sequence n is at n % size once the ring is full
	first   uint64   // sequence number of the oldest
	next    uint64   // sequence number of the next to come
	floor   storage.Rev
	waiters broadcast
	open    int // watches, for the listener
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

func newRing(size int, floor storage.Rev) *ring { return &ring{size: size, floor: floor} }

// append adds an event; the oldest makes room.
func (r *ring) append(e *entry) {
	r.mu.Lock()
	if len(r.entries) < r.size {
		r.entries = append(r.entries, e)
	} else {
		at := int(r.next % uint64(r.size))
		r.floor = r.entries[at].event.Rev
		r.entries[at] = e
		r.first++
	}
	r.next++
	r.mu.Unlock()
	r.waiters.wake()
}

// reset empties the ring; its history begins above floor.
func (r *ring) reset(floor storage.Rev) {
	r.mu.Lock()
	r.entries = nil
	r.first, r.next = 0, 0
	r.floor = floor
	r.mu.Unlock()
	r.waiters.wake()
}

// after gives up to len(dst) entries above rev, oldest first, and whether more follow. ok is false when
// the ring no longer holds them all.
func (r *ring) after(rev storage.Rev, dst []*entry) (n int, more, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rev < r.floor {
		return 0, false, false
	}
	count := int(r.next - r.first)
	// Watches are usually near the end: look there before searching.
	start := count
	if count > 0 && r.at(count-1).event.Rev > rev {
		start = sort.Search(count, func(i int) bool { return r.at(i).event.Rev > rev })
	}
	for start < count && n < len(dst) {
		dst[n] = r.at(start)
		n++
		start++
	}
	return n, start < count, true
}

// at is the i-th entry from the oldest.
func (r *ring) at(i int) *entry {
	if len(r.entries) < r.size {
		return r.entries[i]
	}
	return r.entries[int((r.first+uint64(i))%uint64(r.size))]
}

// covers tells whether everything above rev is in the ring.
func (r *ring) covers(rev storage.Rev) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rev >= r.floor
}

func (r *ring) count(delta int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open += delta
	return r.open
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
