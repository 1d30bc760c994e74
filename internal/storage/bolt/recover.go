package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
		if err := r.blank(g); err != nil {
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
		if ok {
			g.sequence, g.first = h.sequence, h.first // end and marks: when it is read
			used, unused = append(used, g), unused[:len(unused)-1]
		}
	}
	sort.Slice(used, func(i, j int) bool { return used[i].sequence < used[j].sequence })
	return used, unused, nil
}

// replay goes through the batches from the segment on that holds the checkpoint's. It returns the
// segments that hold none.
func (r *recovery) replay(used, unused []*segment) ([]*segment, error) {
	l := r.log
	start := sort.Search(len(used), func(i int) bool { return used[i].sequence > r.meta.sequence }) - 1
	sequence := uint64(1) // the one to come next
	if start >= 0 {
		sequence = used[start].sequence
		l.segments = append(l.segments, used[:start]...)
	}
	at, off := (*segment)(nil), int64(0)
	for _, g := range used[max(start, 0):] {
		if g.sequence != sequence {
			break
		}
		var err error
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
	}
	l.sequence = sequence - 1
	return unused, nil
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

// blank makes sure that a segment whose first batch was torn does not look like one that starts with
// it: the same sequence is about to be written somewhere else.
func (r *recovery) blank(g *segment) error {
	if g.sequence == 0 {
		return nil
	}
	if _, err := g.f.WriteAt(make([]byte, blockSize), 0); err != nil {
		return err
	}
	return g.f.Datasync()
}
