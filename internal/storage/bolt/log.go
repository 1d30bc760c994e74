package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"operatord.io/operatord/internal/storage"
)

// log is the write-ahead log: segments in order, the last of them written to. Only the committer
// appends; anyone may read.
type log struct {
	dir          string
	id           storeID
	salt         salt
	segmentBytes atomic.Int64 // of a new segment; the largest value in the store fits
	open         func(path string, create bool) (file, error)
	room         func(dir string, n int64) error

	// The committer's own.
	sequence uint64 // of the last batch
	spare    spare

	mu       sync.Mutex
	segments []*segment // those with batches, oldest first
	bytes    int64      // of all files, spare ones included
	names    map[string]bool

	reclaimed atomic.Uint64 // segments taken out of the log and ready for use
}

// spare is how the committer gets its next segment: filling one with zeros takes time, so a goroutine of
// its own makes it as soon as the last is in use. From then on the log can go on without the disk's help:
// while one segment is written, the other is there, and the one before it is recycled.
//
// Where none can be made, for whatever reason, the goroutine tries again until one can.
type spare struct {
	wanted uint64        // the newest wish; the committer's own
	asked  bool          // by the committer, and not received yet
	want   chan wish     // capacity 1: the newest counts
	got    chan grant    // capacity 1
	failed chan failure  // capacity 1: the newest counts
	free   chan *segment // recycled, to be used before a new one is made; capacity maxFree
	held   atomic.Int32  // recycled soon: taken out of the log, and perhaps still being read
}

// wish is for a segment of at least need bytes.
type wish struct {
	number uint64
	need   int64
}

// grant is the segment wished for; it may be smaller where a later wish was for a larger one.
type grant struct {
	wish    uint64
	segment *segment
}

// failure says why a wish could not be granted yet.
type failure struct {
	wish uint64
	err  error
}

// replace puts a value in a channel of capacity 1, in the place of one nobody took.
func replace[T any](c chan T, v T) {
	for {
		select {
		case c <- v:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// roomRetry is how often a store without room looks whether there is some again. Nothing tells.
const roomRetry = time.Second

// maxFree is how many segments out of use are kept for reuse; more are deleted.
const maxFree = 2

func newLog(dir string, m meta, o Options) *log {
	l := &log{
		dir: dir, id: m.id, salt: m.salt, open: o.openLog, room: o.room,
		names: make(map[string]bool),
		spare: spare{
			want:   make(chan wish, 1),
			got:    make(chan grant, 1),
			failed: make(chan failure, 1),
			free:   make(chan *segment, maxFree),
		},
	}
	l.segmentBytes.Store(o.SegmentBytes)
	return l
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
		l.wish(need)
	}
}

func (l *log) wish(need int64) {
	l.spare.asked = true
	l.spare.wanted++
	replace(l.spare.want, wish{l.spare.wanted, need})
}

// atLeast makes segments for later until there are n in all, as far as that goes now.
func (l *log) atLeast(n int) error {
	for l.count() < n {
		g, err := l.create(blockSize)
		if err != nil {
			return err
		}
		l.recycle(g)
	}
	return nil
}

func (l *log) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names)
}

// prepare makes the segments that the committer asks for, until stop closes. tight is told when there
// is none to be had.
func (l *log) prepare(stop <-chan struct{}, tight func(error)) {
	for {
		select {
		case w := <-l.spare.want:
			g := l.obtain(w, stop, tight)
			if g.segment == nil {
				return
			}
			select {
			case l.spare.got <- g:
			case <-stop:
				l.recycle(g.segment)
				return
			}
		case <-stop:
			return
		}
	}
}

// obtain gets a segment, waiting until one can be made or is recycled. Its segment is nil when stop closes.
func (l *log) obtain(w wish, stop <-chan struct{}, tight func(error)) grant {
	again := time.NewTicker(roomRetry)
	defer again.Stop()
	var small []*segment // recycled, and not to be made large enough now
	defer func() {
		for _, g := range small {
			l.recycle(g)
		}
	}()
	for told := uint64(0); ; {
		g, err := l.make(w.need, &small)
		if err == nil {
			return grant{w.number, g}
		}
		if told != w.number {
			told = w.number
			tight(err)
		}
		replace(l.spare.failed, failure{w.number, err})
		select {
		case g := <-l.spare.free:
			small = append(small, g) // tried with the others
		case w = <-l.spare.want:
		case <-again.C:
		case <-stop:
			return grant{}
		}
	}
}

// make gets a segment of at least need bytes: of those given, of those recycled, or a new one.
func (l *log) make(need int64, small *[]*segment) (*segment, error) {
	for len(*small) < maxFree {
		select {
		case g := <-l.spare.free:
			*small = append(*small, g)
			continue
		default:
		}
		break
	}
	var failed error
	for i, g := range *small {
		err := l.enlarge(g, max(need, l.nextSize()))
		if g.size >= need {
			*small = slices.Delete(*small, i, i+1)
			return g, nil
		}
		failed = err
	}
	g, err := l.create(need)
	if err != nil {
		return nil, errors.Join(err, failed)
	}
	return g, nil
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// enlarge makes a recycled segment as large as needed. On an error it is as it was.
func (l *log) enlarge(g *segment, need int64) error {
	before := g.size
	if before >= need {
		return nil
	}
	if err := l.room(l.dir, need-before); err != nil {
		return err
	}
	if err := g.grow(need); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += g.size - before
	return nil
}

// create makes a new segment.
func (l *log) create(need int64) (*segment, error) {
	size := max(need, l.nextSize())
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
		if !errors.Is(err, os.ErrExist) { // or the next try would meet the same file
			delete(l.names, path)
		}
		return nil, err
	}
	l.bytes += g.size
	return g, nil
}

// nextSize is how large the next segment is made: a new store starts fast and small.
func (l *log) nextSize() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.segmentBytes.Load(), max(firstSegment, l.bytes))
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
// don't. It waits for that segment to be made, and for one that is about to be recycled, but not for room
// on the disk.
func (l *log) space(n int64) (*segment, error) {
	if g := l.active(); g != nil && g.end+n <= g.size {
		l.ask(blockSize)
		return g, nil
	}
	return l.next(n)
}

// next waits for a segment of at least n bytes.
func (l *log) next(n int64) (*segment, error) {
	if g := l.ready(n); g != nil {
		return g, nil
	}
	l.wish(n) // also where the last one failed: it is tried at once
	for {
		select {
		case made := <-l.spare.got:
			if g := l.take(made, n); g != nil {
				return g, nil
			}
			l.ask(n)
		case f := <-l.spare.failed:
			if f.wish != l.spare.wanted || l.spare.held.Load() > 0 {
				continue
			}
			if g := l.ready(n); g != nil { // the one before was granted
				return g, nil
			}
			l.wish(blockSize) // what is written next may need less
			return nil, f.err
		}
	}
}

// ready is next without waiting: nil if there is none.
func (l *log) ready(n int64) *segment {
	select {
	case made := <-l.spare.got:
		return l.take(made, n)
	default:
		return nil
	}
}

// largest is called before a value is written for the first time, alone in a batch of n bytes. It makes sure that
// it can be written again and again: two segments are as large.
func (l *log) largest(n int64) error {
	before := l.segmentBytes.Load()
	if n = aligned(int(n)); n <= before {
		return nil
	}
	l.segmentBytes.Store(n)
	for range 2 {
		g, err := l.next(n)
		if err != nil {
			l.segmentBytes.Store(before)
			return err
		}
		defer l.recycle(g)
	}
	return nil
}

// take receives a segment that was made; nil where it has less than n bytes: it was asked for when less
// was needed.
func (l *log) take(made grant, n int64) *segment {
	l.spare.asked = made.wish != l.spare.wanted
	if made.segment.size < n {
		l.recycle(made.segment)
		return nil
	}
	return made.segment
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
	if !g.f.Linked() {
		return h, 0, true, gone(g.path)
	}
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
		l.spare.held.Add(1)
		if g.readers == 0 {
			idle = append(idle, g)
		}
	}
	l.mu.Unlock()
	for _, g := range idle {
		l.giveBack(g)
	}
}

// giveBack recycles a segment that was taken out of the log.
func (l *log) giveBack(g *segment) {
	l.recycle(g)
	l.reclaimed.Add(1)
	l.spare.held.Add(-1)
}

// recycle keeps a segment nobody uses for later, or deletes it. What made it larger than others is given
// back.
func (l *log) recycle(g *segment) {
	l.mu.Lock()
	g.sequence, g.first, g.end, g.marks, g.marked, g.dead = 0, 0, 0, nil, false, false
	l.mu.Unlock()
	if size := l.segmentBytes.Load(); g.size > size && g.cut(size) == nil {
		l.mu.Lock()
		l.bytes -= g.size - size
		g.size = size
		l.mu.Unlock()
	}
	select {
	case l.spare.free <- g:
		return
	default:
	}
	select {
	case other := <-l.spare.free: // the larger of them is worth more
		if other.size < g.size {
			g, other = other, g
		}
		select {
		case l.spare.free <- other:
		default:
			l.remove(other)
		}
	default:
	}
	l.remove(g)
}

// remove deletes a segment.
func (l *log) remove(g *segment) {
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

// oldestEnd is the last revision of the oldest segment with at least n bytes; 0 if there is none but the one
// being written.
func (l *log) oldestEnd(n int64) storage.Rev {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range len(l.segments) - 1 {
		if l.segments[i].size >= n {
			return l.segments[i+1].first - 1
		}
	}
	return 0
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
		case made := <-l.spare.got:
			closeFile(made.segment)
		default:
			return first
		}
	}
}

// batchBytes bounds a batch of many writes: it must fit into a segment.
func (l *log) batchBytes() int64 { return min(batchBytes, l.segmentBytes.Load()/2) }
