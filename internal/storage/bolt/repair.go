package bolt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/mirror"
)

// Repaired says what DropHistory has done.
type Repaired struct {
	Rev  storage.Rev
	Keys int
	Kept []string // where the damaged files are now
	Loss string   // what was accepted to be lost; empty: nothing was
}

// ErrWhole: there is nothing to repair, and nothing was changed.
var ErrWhole = errors.New("storage: the store is whole")

// LossError says what repairing a store would lose of what was acknowledged. Nothing was changed.
type LossError struct{ What string }

func (e *LossError) Error() string {
	return "storage: acknowledged writes are or may be lost: " + e.What + ". Nothing was changed. To go on without them, add --accept-loss"
}

const (
	repairedSuffix = ".repaired"
	damagedSuffix  = ".damaged-"
)

// revisionsLost is how many revisions are left out where some were lost: those are never given to other writes.
const revisionsLost = 1 << 20

// DropHistory repairs a store that does not open because its log is damaged, as far as the present does not depend
// on that. It keeps all keys at their revisions and gives up history, so that whoever watches starts again; the damaged
// files stay beside the new ones under other names. The store becomes another one, with an id of its own, so
// that the old files are never taken for its.
//
// Where acknowledged writes would be lost it is a *LossError, unless that is accepted. A store that another process
// has open, or whose present is damaged, is refused. A repair that was interrupted is finished.
func DropHistory(ctx context.Context, dir string, acceptLoss bool) (*Repaired, error) {
	held, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer held.Close()
	path := filepath.Join(dir, "present.db")
	if _, err := os.Stat(path + repairedSuffix); err == nil {
		return takePlaces(dir, &Repaired{})
	}
	p, m, keys, err := openPresent(path, needRoom)
	if err != nil {
		return nil, err // without a present there is nothing to keep
	}
	defer p.close()
	open := func() (*log, *mirror.Mirror) {
		return newLog(filepath.Join(dir, "log"), m, Options{Dir: dir}.orDefaults()), mirror.New(m.rev, m.compacted, keys, mirror.Options{})
	}
	l, mir := open()
	defer mir.Close()
	_, err = recoverLog(l, m, mir)
	if err == nil {
		return nil, errors.Join(ErrWhole, l.close())
	}
	if damage := (*CorruptError)(nil); !errors.As(err, &damage) {
		return nil, err
	}
	l, whole := open()
	defer whole.Close()
	s := salvage{recovery: recovery{log: l, mirror: whole, meta: m, changed: make(map[string]struct{})}}
	defer s.close()
	loss, err := s.run()
	if err != nil {
		return nil, err
	}
	if loss != "" && !acceptLoss {
		return nil, &LossError{loss}
	}
	view, err := whole.View(ctx, storage.Any())
	if err != nil {
		return nil, err
	}
	done := &Repaired{Rev: view.Rev(), Keys: whole.Len(), Loss: loss}
	if loss != "" {
		done.Rev = max(done.Rev, s.lastRev) + revisionsLost
	}
	fresh := meta{rev: done.Rev, compacted: done.Rev}
	if _, err := rand.Read(fresh.id[:]); err != nil {
		return nil, err
	}
	if _, err := rand.Read(fresh.salt[:]); err != nil {
		return nil, err
	}
	if _, err := fillPresent(path+repairedSuffix, fresh, view.Range("", "")); err != nil {
		return nil, fmt.Errorf("storage: write %s: %w", path+repairedSuffix, err)
	}
	return takePlaces(dir, done)
}

// takePlaces moves the damaged files aside and the repaired present to where they were. Until it has, the repaired
// present has its own name, and Open refuses the store.
func takePlaces(dir string, done *Repaired) (*Repaired, error) {
	path, logDir := filepath.Join(dir, "present.db"), filepath.Join(dir, "log")
	suffix := damagedSuffix + time.Now().UTC().Format("20060102T150405.000")
	entries, err := os.ReadDir(logDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	aside := []string{path}
	if len(entries) > 0 {
		aside = append(aside, logDir)
	}
	for _, old := range aside {
		err := os.Rename(old, old+suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue // by the repair that was interrupted
		}
		if err != nil {
			return nil, err
		}
		done.Kept = append(done.Kept, old+suffix)
	}
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(path+repairedSuffix, path); err != nil {
		return nil, err
	}
	return done, syncDir(dir)
}

// notRepairing is an error if a repair was interrupted: the files are those of two stores then.
func notRepairing(path string) error {
	if _, err := os.Stat(path + repairedSuffix); err == nil {
		return fmt.Errorf("storage: a repair of %s was interrupted: run `operatord store repair --drop-history` again", path)
	}
	return nil
}

// salvage reads what verifies of a damaged log.
type salvage struct {
	recovery
	segments []*segment
	batches  map[uint64]place // that verify
	unread   []string         // segments with something in them of which no header verifies
	reached  uint64           // up to this batch nothing is missing
	lastRev  storage.Rev      // of all that verifies
	present  bool             // the place of the last batch before the checkpoint is known
}

type place struct {
	g   *segment
	off int64
}

func (s *salvage) close() { closeAll(s.segments) }

// run brings the mirror as far as batches follow the checkpoint, and says what of acknowledged writes it can't or
// may not have reached.
func (s *salvage) run() (loss string, err error) {
	s.batches = make(map[uint64]place)
	paths, err := filepath.Glob(filepath.Join(s.log.dir, "log-*"))
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		f, err := s.log.open(path, false)
		if err != nil {
			return "", fmt.Errorf("storage: open log segment: %w", err)
		}
		g := &segment{path: path, f: f}
		s.segments = append(s.segments, g)
		if g.size, err = f.Size(); err != nil {
			return "", err
		}
		if err := s.scan(g); err != nil {
			return "", fmt.Errorf("storage: read %s: %w", path, err)
		}
	}
	last := s.meta.sequence
	for s.reached = last; ; s.reached++ {
		at, ok := s.batches[s.reached+1]
		if !ok {
			break
		}
		from := scanner{f: at.g.f, salt: s.log.salt, size: at.g.size}
		h, body, _, err := from.batch(at.off)
		if err != nil {
			return "", err
		}
		if s.apply(h, body) != nil {
			break
		}
	}
	return s.loss()
}

func (s *salvage) loss() (string, error) {
	var losses []string
	for sequence, at := range s.batches {
		if sequence > s.reached {
			losses = append(losses, fmt.Sprintf("batch %d is missing, and batch %d, written after it, is in %s", s.reached+1, sequence, at.g.path))
			break
		}
	}
	for _, path := range s.unread {
		losses = append(losses, fmt.Sprintf("%s is not readable as a part of this log", path))
	}
	if known, err := s.endKnown(); err != nil {
		return "", err
	} else if !known && len(losses) == 0 {
		losses = append(losses, fmt.Sprintf("the log's files don't reach batch %d, from which the present was written, and whatever came after it", s.reached))
	}
	return strings.Join(losses, "; "), nil
}

// scan finds the batches of a segment. They may be anywhere: what stands before them may be damaged.
func (s *salvage) scan(g *segment) error {
	from := scanner{f: g.f, salt: s.log.salt, size: g.size}
	used, headers := false, false
	for off := int64(0); off < g.size; off += blockSize {
		h, ok, err := from.header(off)
		if err != nil {
			return err
		}
		if !ok {
			p, err := from.bytes(off, blockSize)
			if err != nil {
				return err
			}
			used = used || !zero(p)
			continue
		}
		headers = true
		s.present = s.present || h.sequence == s.meta.sequence
		if _, _, whole, err := from.batch(off); err != nil {
			return err
		} else if whole {
			s.batches[h.sequence] = place{g, off}
			s.lastRev = max(s.lastRev, h.last())
		}
	}
	p, err := from.bytes(0, headerSize)
	if err != nil {
		return err
	}
	if used && !headers && foreign(p, s.log.id) == nil {
		s.unread = append(s.unread, g.path)
	}
	return nil
}

// endKnown says whether the place is known where the first batch after the checkpoint would be: behind the last one
// before it, whose header verifies, or which is damaged in its place.
func (s *salvage) endKnown() (bool, error) {
	if s.present || s.reached > s.meta.sequence || s.meta.sequence == 0 && len(s.segments) > 0 {
		return true, nil
	}
	at, ok := s.batches[s.meta.sequence-1]
	if !ok {
		return false, nil
	}
	from := scanner{f: at.g.f, salt: s.log.salt, size: at.g.size}
	h, _, err := from.header(at.off)
	if err != nil {
		return false, err
	}
	p, err := from.bytes(at.off+h.size(), sector)
	return !zero(p), err
}
