package bolt

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"

	"operatord.io/operatord/internal/storage"
)

// segment is one file of the log, zero-filled before use: a sync into blocks that were written before
// need not touch the file system's own records, which halves its time. Its name means nothing; its
// place in the log is the sequence of its first batch.
type segment struct {
	path string
	f    file
	size int64

	// Of the batches in it, from offset 0; guarded by log.mu.
	sequence uint64      // of the first; 0: it holds none
	first    storage.Rev // of the first
	end      int64       // behind the last, once marked
	marks    []mark      // some places, in order, the first at 0
	marked   bool        // marks reach to end; false only for a segment not read since open
	readers  int
	dead     bool // out of the log; recycled by the last reader

	walking sync.Mutex // one reader finds the marks of a segment, the others wait
}

// mark is where a batch starts.
type mark struct {
	first storage.Rev
	off   int64
}

// markEvery is about how many bytes of a segment lie between two marks.
const markEvery = 64 << 10

// note adds a batch behind the last one.
func (g *segment) note(h header) {
	if g.end == 0 {
		g.sequence, g.first, g.marked = h.sequence, h.first, true
	}
	if g.marked && (len(g.marks) == 0 || g.end-g.marks[len(g.marks)-1].off >= markEvery) {
		g.marks = append(g.marks, mark{h.first, g.end})
	}
	g.end += h.size()
}

// from is an offset at or before the batch that holds the revision.
func (g *segment) from(rev storage.Rev) int64 {
	i := sort.Search(len(g.marks), func(i int) bool { return g.marks[i].first > rev })
	if i == 0 {
		return 0
	}
	return g.marks[i-1].off
}

// createSegment makes a segment ready for use. Where that fails it leaves nothing behind.
func createSegment(open func(string, bool) (file, error), dir, path string, size int64) (*segment, error) {
	f, err := open(path, true)
	if err != nil {
		return nil, fmt.Errorf("storage: create log segment: %w", err)
	}
	g := &segment{path: path, f: f}
	err = g.grow(size)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return g, nil
}

// grow zero-fills the segment up to a size.
func (g *segment) grow(size int64) error {
	zeros := make([]byte, 256<<10)
	for off := g.size; off < size; {
		n, err := g.f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		off += int64(n)
		if err != nil {
			return errors.Join(fmt.Errorf("storage: fill log segment: %w", err), g.f.Truncate(g.size))
		}
	}
	if err := g.f.Datasync(); err != nil {
		return fmt.Errorf("storage: fill log segment: %w", err)
	}
	g.size = size
	return nil
}

// blank makes sure that no batch is found at an offset, where one was being written that did not come to be: its
// sequence is about to be used again, maybe somewhere else.
func (g *segment) blank(off int64) error {
	if _, err := g.f.WriteAt(make([]byte, blockSize), off); err != nil {
		return err
	}
	return g.f.Datasync()
}

// cut makes a segment out of use smaller. It doesn't begin with a batch then, for that may not fit any more.
func (g *segment) cut(size int64) error {
	if _, err := g.f.WriteAt(make([]byte, blockSize), 0); err != nil {
		return err
	}
	if err := g.f.Datasync(); err != nil {
		return err
	}
	return g.f.Truncate(size)
}

// scanner reads batches of a segment one after another through a window.
type scanner struct {
	f    file
	salt salt
	size int64

	single bool // one header is all that will be asked for
	window []byte
	start  int64
}

const scanWindow = 256 << 10

// bytes gives n bytes at an offset, good until the next call; fewer at the end of the file.
func (s *scanner) bytes(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.size-off))
	if n <= 0 {
		return nil, nil
	}
	if off < s.start || off+int64(n) > s.start+int64(len(s.window)) {
		ahead := scanWindow
		if s.single {
			ahead = blockSize
		}
		want := int(min(int64(max(n, ahead)), s.size-off))
		if cap(s.window) < want {
			s.window = make([]byte, want)
		}
		s.window, s.start = s.window[:want], off
		got, err := s.f.ReadAt(s.window, off)
		s.window = s.window[:got]
		if got < n {
			return nil, err
		}
	}
	at := off - s.start
	return s.window[at : at+int64(n)], nil
}

// header reads the header at an offset; ok is false where none verifies.
func (s *scanner) header(off int64) (h header, ok bool, err error) {
	p, err := s.bytes(off, headerSize)
	if err != nil {
		return header{}, false, err
	}
	h, ok = parseHeader(p, s.salt)
	return h, ok && off+int64(h.before)+int64(h.length) <= s.size, nil
}

// batch reads the batch at an offset; ok is false where none verifies. The body is good until the
// next call.
func (s *scanner) batch(off int64) (h header, body []byte, ok bool, err error) {
	h, ok, err = s.header(off)
	if err != nil || !ok {
		return h, nil, false, err
	}
	body, err = s.bytes(off+int64(h.before), h.length)
	if err != nil {
		return h, nil, false, err
	}
	return h, body, h.verifies(body, s.salt), nil
}
