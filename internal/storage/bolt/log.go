package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"operatord.io/operatord/internal/storage"
)

// log is the write-ahead log: segments in order, the last of them written to. Only the committer
// appends; anyone may read.
type log struct {
	dir          string
	id           storeID
	salt         salt
	segmentBytes int64
	open         func(path string, create bool) (file, error)
	room         func(dir string, n int64) error

	// The committer's own.
	sequence uint64 // of the last batch
	spare    spare

	mu       sync.Mutex
	segments []*segment // those with batches, oldest first
	bytes    int64      // of all files, spare ones included
	names    map[string]bool
}

// spare is how the committer gets its next segment: filling one with zeros takes time, so it asks a
// goroutine of its own for it before the last is used up.
//
// While there is no room for it, full says why, and the goroutine tries again until there is.
type spare struct {
	asked bool            // by the committer, and not received yet
	want  chan int64      // bytes needed; capacity 1
	got   chan newSegment // capacity 1
	free  chan *segment   // recycled, to be used before a new one is made; capacity maxFree

	full   reason
	noRoom chan struct{} // capacity 1: full has been set
}

type newSegment struct {
	segment *segment
	err     error
}

// roomRetry is how often a store without room looks whether there is some again. Nothing tells.
const roomRetry = time.Second

// maxFree is how many segments out of use are kept for reuse; more are deleted.
const maxFree = 2

func newLog(dir string, m meta, o Options) *log {
	return &log{
		dir: dir, id: m.id, salt: m.salt, segmentBytes: o.SegmentBytes, open: o.openLog, room: o.room,
		names: make(map[string]bool),
		spare: spare{
			want:   make(chan int64, 1),
			got:    make(chan newSegment, 1),
			free:   make(chan *segment, maxFree),
			noRoom: make(chan struct{}, 1),
		},
	}
}

// active is the segment being written, nil before the first batch.
func (l *log) active() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// ask has the next segment made, if it isn't already being made.
func (l *log) ask(need int64) {
	if !l.spare.asked {
		l.spare.asked = true
		l.spare.want <- need
	}
}

// prepare makes the segments that the committer asks for, until stop closes. changed is told when
// there is no room for one, and with nil when there is again.
func (l *log) prepare(stop <-chan struct{}, changed func(error)) {
	again := time.NewTicker(roomRetry)
	defer again.Stop()
	for {
		retry := again.C
		if l.full() == nil {
			retry = nil
		}
		select {
		case need := <-l.spare.want:
			g, err := l.obtain(need, again.C, stop, changed)
			if g == nil && err == nil {
				return
			}
			l.spare.got <- newSegment{g, err}
		case <-retry:
			if l.room(l.dir, l.segmentBytes) == nil && l.spare.full.clear() {
				changed(nil)
			}
		case <-stop:
			return
		}
	}
}

// obtain gets a segment of at least need bytes, waiting for room or for one to be recycled. Both
// results are nil when stop closes.
func (l *log) obtain(need int64, retry <-chan time.Time, stop <-chan struct{}, changed func(error)) (*segment, error) {
	for {
		select {
		case g := <-l.spare.free:
			if err := l.enlarge(g, need); err == nil || !isFull(err) {
				return g, err // that there is room is not said by it
			}
		default:
		}
		g, err := l.create(need)
		if err == nil && l.spare.full.clear() {
			changed(nil)
		}
		if err == nil || !isFull(err) {
			return g, err
		}
		if l.spare.full.set(err) {
			changed(err)
		}
		signal(l.spare.noRoom)
		select {
		case g := <-l.spare.free:
			l.recycle(g) // back to where it came from: the loop begins with it
		case <-retry:
		case <-stop:
			return nil, nil
		}
	}
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// enlarge makes a recycled segment as large as needed. On an error it is recycled again.
func (l *log) enlarge(g *segment, need int64) error {
	before := g.size
	if before >= need {
		return nil
	}
	if err := g.grow(need); err != nil {
		l.recycle(g)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += g.size - before
	return nil
}

// create makes a new segment.
func (l *log) create(need int64) (*segment, error) {
	size := max(need, l.segmentBytes)
	l.mu.Lock()
	if len(l.names) == 0 {
		size = max(need, min(firstSegment, l.segmentBytes)) // a new store starts fast and small
	}
	l.mu.Unlock()
	if err := l.room(l.dir, size); err != nil {
		return nil, err
	}
	l.mu.Lock()
	path := l.freeName()
	l.mu.Unlock()
	g, err := createSegment(l.open, l.dir, path, size)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.names, path)
		return nil, err
	}
	l.bytes += g.size
	return g, nil
}

const firstSegment = 1 << 20

// freeName takes a name that no segment has. The caller holds mu.
func (l *log) freeName() string {
	for i := 0; ; i++ {
		path := filepath.Join(l.dir, fmt.Sprintf("log-%04d", i))
		if !l.names[path] {
			l.names[path] = true
			return path
		}
	}
}

// space makes sure that n bytes fit behind the last batch, moving on to the next segment if they
// don't. It waits for that segment to be made, but not for room on the disk.
func (l *log) space(n int64) (*segment, error) {
	g := l.active()
	if g != nil && g.end+n <= g.size {
		if g.end+n > g.size/2 {
			l.ask(n)
		}
		return g, nil
	}
	for {
		l.ask(n)
		select {
		case ready := <-l.spare.got:
			l.spare.asked = false
			if ready.err != nil {
				return nil, ready.err
			}
			if ready.segment.size >= n {
				return ready.segment, nil
			}
			l.recycle(ready.segment) // a smaller batch asked for it
		case <-l.spare.noRoom:
			if err := l.full(); err != nil {
				signal(l.spare.noRoom) // for the next batch
				return nil, err
			}
		}
	}
}

// append writes the batch and returns when it is durable, with the time that the sync took. After an
// error from the sync nothing may be written any more: what is on the disk is unknown. Before it,
// nothing that verifies was.
func (l *log) append(b *batchBuffer, now time.Time) (h header, took time.Duration, synced bool, err error) {
	h, p := b.seal(l.id, l.salt, l.sequence+1, now)
	g, err := l.space(int64(len(p)))
	if err != nil {
		return h, 0, false, err
	}
	if _, err := g.f.WriteAt(p, g.end); err != nil {
		if !isFull(err) {
			return h, 0, true, err
		}
		if blank := g.blank(g.end); blank != nil {
			return h, 0, true, errors.Join(err, blank)
		}
		if g != l.active() {
			l.recycle(g)
		}
		return h, 0, false, err
	}
	start := time.Now()
	if err := g.f.Datasync(); err != nil {
		return h, 0, true, err
	}
	took = time.Since(start)
	l.sequence = h.sequence
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 || l.segments[len(l.segments)-1] != g {
		l.segments = append(l.segments, g)
	}
	g.note(h)
	return h, took, true, nil
}

// reclaim takes segments out of the log that hold nothing but batches up to a sequence and revisions
// up to another; never the one being written.
func (l *log) reclaim(sequence uint64, compacted storage.Rev) {
	l.mu.Lock()
	var out []*segment
	for len(l.segments) > 1 {
		next := l.segments[1] // starts where the first ends
		if next.sequence > sequence+1 || next.first > compacted+1 {
			break
		}
		out = append(out, l.segments[0])
		l.segments = append([]*segment(nil), l.segments[1:]...)
	}
	var idle []*segment
	for _, g := range out {
		g.dead = true
		if g.readers == 0 {
			idle = append(idle, g)
		}
	}
	l.mu.Unlock()
	for _, g := range idle {
		l.recycle(g)
	}
}

// recycle keeps a segment nobody uses for later, or deletes it.
func (l *log) recycle(g *segment) {
	l.mu.Lock()
	g.sequence, g.first, g.end, g.marks, g.marked, g.dead = 0, 0, 0, nil, false, false
	l.mu.Unlock()
	if g.size >= l.segmentBytes {
		select {
		case l.spare.free <- g:
			return
		default:
		}
	}
	// What can't be removed is found and kept for reuse at the next start.
	_ = g.f.Close()
	_ = os.Remove(g.path)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= g.size
	delete(l.names, g.path)
}

// beyond is the revision up to which history must go for the segments to take at most limit bytes; 0
// where they do.
func (l *log) beyond(limit int64) storage.Rev {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segments) - 1; i > 0; i-- {
		if limit -= l.segments[i].size; limit < l.segments[i-1].size {
			return l.segments[i].first - 1
		}
	}
	return 0
}

// behindSegment is the last revision of the segment in a file, upTo if it is the one being written.
func (l *log) behindSegment(path string, upTo storage.Rev) storage.Rev {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, g := range l.segments {
		if g.path == path && i+1 < len(l.segments) {
			return l.segments[i+1].first - 1
		}
	}
	return upTo
}

// full says why there is no room for another segment; nil if there is, or none was needed.
func (l *log) full() error { return l.spare.full.get() }

// beforeActive is the last revision that isn't in the segment being written.
func (l *log) beforeActive() storage.Rev {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) < 2 {
		return 0
	}
	return l.segments[len(l.segments)-1].first - 1
}

// oldest is the first revision that the log still holds, 0 if it holds none.
func (l *log) oldest() storage.Rev {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 {
		return 0
	}
	return l.segments[0].first
}

func (l *log) diskBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// close closes all files. Nobody may be reading or writing.
func (l *log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	closeFile := func(g *segment) {
		if err := g.f.Close(); err != nil && first == nil {
			first = err
		}
	}
	for _, g := range l.segments {
		closeFile(g)
	}
	for {
		select {
		case g := <-l.spare.free:
			closeFile(g)
		case ready := <-l.spare.got:
			if ready.segment != nil {
				closeFile(ready.segment)
			}
		default:
			return first
		}
	}
}
