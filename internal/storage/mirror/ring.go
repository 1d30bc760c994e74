package mirror

import (
	"sort"

	"operatord.io/operatord/internal/storage"
)

// ring is the recent past: batches of events, each immutable once pushed, so that a reader copies the
// slices' headers under the lock and reads the events without it. It is bounded by events and by
// bytes; the newest batch is always kept.
type ring struct {
	maxEvents int
	maxBytes  int64

	batches []batch // circular; len is a power of two
	first   int     // index of the oldest
	n       int

	floor  storage.Rev // events at or below it have left the ring, or were never in it
	events int
	bytes  int64
}

type batch struct {
	events []storage.Event
	bytes  int64
}

func (b batch) last() storage.Rev { return b.events[len(b.events)-1].Rev }

func newRing(floor storage.Rev, maxEvents int, maxBytes int64) ring {
	return ring{maxEvents: maxEvents, maxBytes: maxBytes, batches: make([]batch, 64), floor: floor}
}

func (r *ring) at(i int) *batch { return &r.batches[(r.first+i)&(len(r.batches)-1)] }

// While a batch has not been looked at by notify, it is kept over the bounds by this much: an idle
// watcher must not be taken for one that lost its place because notify had to wait for a processor.
const (
	slackEvents = 4096
	slackBytes  = 16 << 20
)

// push adds a batch, not empty and newer than all others. Events up to scanned have been looked at.
func (r *ring) push(events []storage.Event, scanned storage.Rev) {
	if r.n == len(r.batches) {
		grown := make([]batch, 2*len(r.batches))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.batches, r.first = grown, 0
	}
	b := batch{events: events}
	for _, e := range events {
		b.bytes += size(e)
	}
	*r.at(r.n) = b
	r.n++
	r.events += len(events)
	r.bytes += b.bytes
	for r.n > 1 && (r.events > r.maxEvents || r.bytes > r.maxBytes) {
		old := r.at(0)
		if old.last() > scanned && r.events <= r.maxEvents+slackEvents && r.bytes <= r.maxBytes+slackBytes {
			break
		}
		r.floor = old.last()
		r.events -= len(old.events)
		r.bytes -= old.bytes
		*old = batch{}
		r.first = (r.first + 1) & (len(r.batches) - 1)
		r.n--
	}
}

// newest is the last event's revision.
func (r *ring) newest() storage.Rev {
	if r.n == 0 {
		return r.floor
	}
	return r.at(r.n - 1).last()
}

// after gives up to limit batches that hold the events after rev, the first of them without the
// events at or below it, and the revision up to which these are all. ok is false where some of them
// have left the ring.
func (r *ring) after(rev storage.Rev, limit int) (batches [][]storage.Event, reached storage.Rev, ok bool) {
	if rev < r.floor {
		return nil, 0, false
	}
	i := sort.Search(r.n, func(i int) bool { return r.at(i).last() > rev })
	if i == r.n {
		return nil, rev, true
	}
	batches = make([][]storage.Event, 0, min(limit, r.n-i))
	for ; i < r.n && len(batches) < limit; i++ {
		events := r.at(i).events
		if len(batches) == 0 {
			events = events[sort.Search(len(events), func(i int) bool { return events[i].Rev > rev }):]
		}
		batches = append(batches, events)
		reached = r.at(i).last()
	}
	return batches, reached, true
}

// size is what an event may keep alive, in bytes.
func size(e storage.Event) int64 {
	const kv = 96 // the struct and its allocation's rounding
	n := int64(0)
	if e.Old != nil {
		n += kv + int64(len(e.Old.Key)+len(e.Old.Value))
	}
	if e.New != nil {
		n += kv + int64(len(e.New.Key)+len(e.New.Value))
	}
	return n
}
