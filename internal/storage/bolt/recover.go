package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/mirror"
)

// recovery reads a log back at open.
type recovery struct {
	log    *log
	mirror *mirror.Mirror // at the checkpoint; brought up to the end of the log
	meta   meta

	changed map[string]struct{} // since the checkpoint
	tail    int64               // bytes of log since the checkpoint
	bare    storage.Rev         // of the newest write without its previous value: history begins behind it

	last     *segment // where the newest batch lies
	lastOff  int64
	lastSize int64
}

// recoverLog opens the segments in the log's directory and replays what the present does not hold yet. A
// batch that was being written when the store ended is cut off: nobody was told that it happened.
// Anything else that does not verify is damage, and an error; the log is closed then.
func recoverLog(l *log, m meta, mir *mirror.Mirror) (*recovery, error) {
	r := &recovery{log: l, mirror: mir, meta: m, changed: make(map[string]struct{})}
	used, unused, err := r.openSegments()
	if err == nil {
		unused, err = r.replay(used, unused)
	}
	if err == nil {
		err = r.settle()
	}
	if err != nil {
		closeAll(append(used, unused...))
		return nil, err
	}
	for _, g := range unused {
		if g.sequence == 0 {
			continue
		}
		if err := g.blank(0); err != nil { // its first batch was torn
			closeAll(append(used, unused...))
			return nil, err
		}
	}
	for _, g := range unused {
		l.recycle(g)
	}
	return r, nil
}

func closeAll(segments []*segment) {
	for _, g := range segments {
		_ = g.f.Close()
	}
}

// openSegments opens every file of the log, from the disk, and tells those that start with a batch,
// in order, from the others.
func (r *recovery) openSegments() (used, unused []*segment, err error) {
	entries, err := os.ReadDir(r.log.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, &CorruptError{Path: r.log.dir, Offset: -1, What: "the directory is missing, and the present beside it had a log"}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "log-") {
			continue
		}
		path := filepath.Join(r.log.dir, e.Name())
		f, err := r.log.open(path, false)
		if err != nil {
			return used, unused, fmt.Errorf("storage: open log segment: %w", err)
		}
		g := &segment{path: path, f: f}
		unused = append(unused, g)
		if g.size, err = f.Size(); err != nil {
			return used, unused, err
		}
		if err := f.Datasync(); err != nil {
			return used, unused, err
		}
		f.Forget()
		r.log.names[path] = true
		r.log.bytes += g.size
		s := scanner{f: f, salt: r.log.salt, size: g.size, single: true}
		h, ok, err := s.header(0)
		if err != nil {
			return used, unused, fmt.Errorf("storage: read %s: %w", path, err)
		}
		if !ok {
			if err := r.neverUsed(g, &s); err != nil {
				return used, unused, err
			}
			continue
		}
		g.sequence, g.first = h.sequence, h.first // end and marks: when it is read
		used, unused = append(used, g), unused[:len(unused)-1]
	}
	sort.Slice(used, func(i, j int) bool { return used[i].sequence < used[j].sequence })
	return used, unused, nil
}

// sector is what a disk writes as a whole.
const sector = 512

// neverUsed is an error if a segment whose first header does not verify was used: bytes of unknown meaning never
// count as none. A header lies within one sector, so where its batch was torn that sector is zero, or as it was
// before, or whole. That of a new segment is zero, that of one used again is whole.
func (r *recovery) neverUsed(g *segment, s *scanner) error {
	p, err := s.bytes(0, sector)
	if err != nil {
		return fmt.Errorf("storage: read %s: %w", g.path, err)
	}
	if zero(p) {
		return nil
	}
	why := foreign(p, r.log.id)
	if newer := (*FormatError)(nil); errors.As(why, &newer) {
		newer.Path = g.path
		return newer
	}
	if why == nil {
		why = errors.New("it begins with neither a batch of this store nor zeros")
	}
	return &CorruptError{Path: g.path, Offset: 0, What: why.Error()}
}

func zero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }

// replay goes through the batches from the segment on that holds the checkpoint's. It returns the
// segments that hold none.
func (r *recovery) replay(used, unused []*segment) ([]*segment, error) {
	l := r.log
	used, unused, err := r.distinct(used, unused)
	if err != nil {
		return unused, err
	}
	start := sort.Search(len(used), func(i int) bool { return used[i].sequence > r.meta.sequence }) - 1
	sequence := uint64(1) // the one to come next
	if start >= 0 {
		sequence = used[start].sequence
		l.segments = append(l.segments, used[:start]...)
	}
	at, off := (*segment)(nil), int64(0)
	for _, g := range used[max(start, 0):] {
		if g.sequence > sequence {
			break
		}
		if g.sequence < sequence {
			if err := r.overlaps(g, sequence); err != nil {
				return unused, err
			}
			unused = append(unused, g)
			continue
		}
		at = g
		if sequence, off, err = r.segment(g, sequence); err != nil {
			return unused, err
		}
		if off > 0 {
			l.segments = append(l.segments, g)
		} else {
			unused = append(unused, g)
		}
	}
	if sequence <= r.meta.sequence {
		return unused, &CorruptError{Path: pathOf(at, l), Offset: off, Sequence: sequence,
			What: fmt.Sprintf("the log ends here, and the present was written from batch %d", r.meta.sequence)}
	}
	if n := len(used); n > 0 && used[n-1].sequence > sequence {
		return unused, laterVerifies(pathOf(at, l), off, sequence, used[n-1].sequence)
	}
	if at != nil && off > 0 {
		if err := r.nothingAfter(at, off, sequence); err != nil {
			return unused, err
		}
	}
	for _, g := range unused {
		if err := r.nothingAfter(g, 0, sequence); err != nil {
			return unused, err
		}
		if sequence > 1 || g.sequence > 0 {
			continue
		}
		if err := r.allZero(g); err != nil { // or the store would open as empty
			return unused, err
		}
	}
	l.sequence = sequence - 1
	return unused, nil
}

// distinct takes segments whose first batch is torn, and begins another segment too, from those used.
func (r *recovery) distinct(used, unused []*segment) (left, out []*segment, err error) {
	for i := 0; i+1 < len(used); {
		a, b := used[i], used[i+1]
		switch {
		case a.sequence != b.sequence:
			i++
			continue
		case r.overlaps(a, a.sequence+1) == nil:
			used, unused = slices.Delete(used, i, i+1), append(unused, a)
		default:
			if err := r.overlaps(b, b.sequence+1); err != nil {
				return used, unused, err
			}
			used, unused = slices.Delete(used, i+1, i+2), append(unused, b)
		}
	}
	return used, unused, nil
}

// overlaps is an error if a segment begins with a batch whose sequence another segment has too: one of them isn't what
// was acknowledged. A torn one is nothing.
func (r *recovery) overlaps(g *segment, sequence uint64) error {
	s := scanner{f: g.f, salt: r.log.salt, size: g.size}
	_, _, ok, err := s.batch(0)
	if err != nil {
		return fmt.Errorf("storage: read %s: %w", g.path, err)
	}
	if !ok {
		return nil
	}
	return &CorruptError{Path: g.path, Offset: 0, Sequence: g.sequence,
		What: fmt.Sprintf("it begins with this batch, and without it the log goes to batch %d", sequence-1)}
}

func pathOf(g *segment, l *log) string {
	if g == nil {
		return l.dir
	}
	return g.path
}

// segment reads the batches of one segment, the first being sequence, and returns the sequence and the
// offset behind the last.
func (r *recovery) segment(g *segment, sequence uint64) (uint64, int64, error) {
	s := scanner{f: g.f, salt: r.log.salt, size: g.size}
	off := int64(0)
	for {
		h, body, ok, err := s.batch(off)
		if err != nil {
			return 0, 0, fmt.Errorf("storage: read %s: %w", g.path, err)
		}
		if !ok || h.sequence != sequence {
			return sequence, off, nil
		}
		if sequence > r.meta.sequence {
			if err := r.apply(h, body); err != nil {
				return 0, 0, &CorruptError{Path: g.path, Offset: off, Sequence: sequence, What: err.Error()}
			}
			r.tail += h.size()
		}
		g.note(h)
		r.last, r.lastOff, r.lastSize = g, off, h.size()
		off += h.size()
		sequence++
	}
}

// apply does a batch's writes again. Each says what it found, so each can be checked.
func (r *recovery) apply(h header, body []byte) error {
	if h.first <= r.mirror.Rev() {
		return fmt.Errorf("it starts at revision %d, and revision %d was before it", h.first, r.mirror.Rev())
	}
	events := make([]storage.Event, 0, h.count)
	pending := make(map[string]*storage.KV)
	var mismatch error
	err := h.records(body, nil, func(rec record) bool {
		e := rec.event
		was, ok := pending[e.Key()]
		if !ok {
			was, _ = r.mirror.Get(e.Key())
		}
		if (was != nil) != (e.Old != nil) || was != nil && was.Rev != e.Old.Rev {
			mismatch = fmt.Errorf("its write of revision %d is to a state of %q that the store wasn't in", e.Rev, e.Key())
			return false
		}
		if rec.bare {
			r.bare = e.Rev
		}
		e.Old = was // the one that is there already
		pending[e.Key()] = e.New
		r.changed[e.Key()] = struct{}{}
		events = append(events, e)
		return true
	})
	if err := errors.Join(err, mismatch); err != nil {
		return err
	}
	r.mirror.Publish(events)
	return nil
}

func laterVerifies(path string, off int64, sequence, later uint64) error {
	return &CorruptError{Path: path, Offset: off, Sequence: sequence,
		What: fmt.Sprintf("the batch is missing or does not verify, and batch %d, written after it, does", later)}
}

// nothingAfter looks for a batch behind one that does not verify. One that does was written after the
// sync of the one that doesn't had returned: then that isn't torn but damaged.
func (r *recovery) nothingAfter(g *segment, off int64, sequence uint64) error {
	s := scanner{f: g.f, salt: r.log.salt, size: g.size}
	for at := off; at+headerSize <= g.size; at += blockSize {
		h, ok, err := s.header(at)
		if err != nil {
			return fmt.Errorf("storage: read %s: %w", g.path, err)
		}
		if !ok || h.sequence <= sequence {
			continue
		}
		if _, _, ok, err = s.batch(at); err != nil {
			return fmt.Errorf("storage: read %s: %w", g.path, err)
		} else if ok {
			return laterVerifies(g.path, off, sequence, h.sequence)
		}
	}
	return nil
}

// allZero is an error if a segment holds anything.
func (r *recovery) allZero(g *segment) error {
	s := scanner{f: g.f, size: g.size}
	for off := int64(0); off < g.size; off += blockSize {
		p, err := s.bytes(off, blockSize)
		if err != nil {
			return fmt.Errorf("storage: read %s: %w", g.path, err)
		}
		if !zero(p) {
			return &CorruptError{Path: g.path, Offset: off, What: "the log begins with no batch, and there is something in it"}
		}
	}
	return nil
}

// settle writes the last whole batch again and syncs it. It may have been read from the page cache of
// a process that was killed before its sync; nothing may be served that a power cut could take back.
func (r *recovery) settle() error {
	if r.last == nil {
		return nil
	}
	p := make([]byte, r.lastSize)
	if _, err := r.last.f.ReadAt(p, r.lastOff); err != nil && err != io.EOF { // a file may end without the padding
		return err
	}
	if _, err := r.last.f.WriteAt(p, r.lastOff); err != nil {
		return err
	}
	return r.last.f.Datasync()
}
