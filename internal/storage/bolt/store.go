// Package bolt is the embedded store: a log that acknowledges, and a bbolt file behind it.
//
// A write is queued; one goroutine, the committer, makes a batch of what is queued, checks it against
// the present, appends it to the log with one fdatasync, publishes it to the mirror and answers. The
// log is also history: watchers and old views that the mirror's ring no longer serves read it. The
// present is written to bbolt much later, in large sorted transactions (checkpoints), so that opening
// reads bbolt and then only the end of the log. What is below both the checkpoint and the window of
// history is recycled.
//
// Nothing is visible before it is durable. After a failed sync nothing is written any more: what the
// disk holds is only known after reading it again, at the next open.
package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/mirror"
)

// Store is an open store. Open makes one; Close must be called.
type Store struct {
	options Options
	lock    *os.File
	log     *log
	present *present
	mirror  *mirror.Mirror

	queue         chan *request
	closing       chan struct{}
	committerDone chan struct{}
	tasks         sync.WaitGroup
	closeOnce     sync.Once
	closeErr      error

	failed   reason      // why nothing is written until a restart
	stalled  reason      // why the last checkpoint failed
	refusing reason      // why what grows is refused
	tight    atomic.Bool // the log needs a segment and can't have one made: give up history for it

	begun      bool // the present was written from a batch of the log; the committer's own
	committing stopwatch
	footprints atomic.Int64 // of all present keys; the committer's to change

	behind        behind
	checkpointDue chan struct{} // capacity 1
	checkpointed  chan struct{} // capacity 1

	checkpointing sync.Mutex
	durable       meta // guarded by checkpointing: what the present's file says
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in a directory, or makes one if there is none. It refuses a directory that
// another process has open, and with a *CorruptError one whose files don't hold what was written to
// them.
func Open(ctx context.Context, options Options) (storage.Store, error) {
	o := options.orDefaults()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	held, err := lock(ctx, filepath.Join(o.Dir, "lock"))
	if err != nil {
		return nil, err
	}
	s, err := open(o)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	s.lock = held
	return s, nil
}

func open(o Options) (*Store, error) {
	total, _, err := fileSystem(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	o = o.sized(total)
	logDir, path := filepath.Join(o.Dir, "log"), filepath.Join(o.Dir, "present.db")
	if err := create(o, logDir, path); err != nil {
		return nil, err
	}
	p, m, keys, err := openPresent(path, o.room)
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: o, present: p, durable: m,
		log:           newLog(logDir, m, o),
		queue:         make(chan *request, queueLength),
		closing:       make(chan struct{}),
		committerDone: make(chan struct{}),
		checkpointDue: make(chan struct{}, 1),
		checkpointed:  make(chan struct{}, 1),
		committing:    stopwatch{epoch: time.Now()},
	}
	s.mirror = mirror.New(m.rev, m.compacted, keys, mirror.Options{
		RingEvents: o.RingEvents, RingBytes: o.RingBytes, History: history{s}, Listener: o.Listener,
	})
	r, err := recoverLog(s.log, m, s.mirror)
	if err != nil {
		s.mirror.Close()
		if damage := (*CorruptError)(nil); errors.As(err, &damage) {
			damage.dataDir = filepath.Dir(filepath.Clean(o.Dir))
		}
		return nil, errors.Join(err, p.close())
	}
	s.behind = behind{changed: r.changed, tail: r.tail, sequence: s.log.sequence}
	if window := storage.Rev(o.HistoryRevisions); s.mirror.Rev() > window {
		s.mirror.Compact(s.mirror.Rev() - window)
	}
	s.mirror.Compact(r.bare)
	s.log.reclaim(m.sequence, m.compacted)
	if oldest := s.log.oldest(); oldest > firstRev+1 {
		s.mirror.Compact(oldest - 1)
	}
	err = s.measure()
	if err == nil {
		err = s.upgrade()
	}
	if err != nil {
		s.mirror.Close()
		return nil, errors.Join(err, s.log.close(), p.close())
	}
	if err := s.log.atLeast(2); err != nil {
		s.options.Log.Warn("the store's log has one segment alone, and can go on when there is room for another", "err", err)
	}
	s.log.ask(blockSize) // the next write need not wait for it
	s.begun = s.durable.sequence > 0
	if s.behind.tail >= s.options.CheckpointBytes { // written where checkpoints were further apart
		signal(s.checkpointDue)
	}
	s.tasks.Go(func() { s.log.prepare(s.committerDone, s.needSegment) })
	s.tasks.Go(s.checkpointer)
	s.tasks.Go(s.committer)
	return s, nil
}

// measure finds what the present needs of its files, and makes them as large.
func (s *Store) measure() error {
	v, err := s.mirror.View(context.Background(), storage.Any())
	if err != nil {
		return err
	}
	footprints, largest := int64(0), s.log.segmentBytes.Load()
	for kv := range v.Range("", "") {
		footprints += footprint(kv)
		largest = max(largest, aligned(headerSize+int(recordSize(storage.Write{Key: kv.Key, Value: kv.Value}, nil))))
	}
	s.footprints.Store(footprints)
	s.log.segmentBytes.Store(largest)
	// What can't be had now is refused to those who need it.
	if err := s.present.reserve.grow(s.options.reserveAhead(footprints)); err != nil && s.present.reserve.bytes() < fileNeeds(footprints) {
		s.refusing.set(err)
		s.options.Log.Warn("no room: creates and larger values are refused", "err", err)
	}
	return nil
}

// upgrade brings a present that an earlier program wrote up to the log, which raises its format. Without room for
// that it stays as it is until a later checkpoint.
func (s *Store) upgrade() error {
	if s.durable.format == presentFormat {
		return nil
	}
	err := s.tryCheckpoint(0)
	if isFull(err) {
		s.options.Log.Warn("no room to raise the format of the store's file: an earlier version must not open it", "file", s.present.path, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage: raise the format of %s: %w", s.present.path, err)
	}
	return nil
}

// create makes the files of a new store where there are none. Either way their names are durable when it returns:
// whoever made them may have been killed before that.
func create(o Options, logDir, path string) error {
	if err := removeUnfinished(path); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if err := notRepairing(path); err != nil {
		return err
	}
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil {
		if entries, err := os.ReadDir(logDir); err == nil && len(entries) > 0 {
			return &CorruptError{Path: path, Offset: -1, What: "the file is missing, and there is a log of a store beside it"}
		}
		if o.Existing {
			return fmt.Errorf("storage: %w: %s is missing, and so is its log", ErrGone, path)
		}
		if err := o.room(o.Dir, newStoreNeeds(o)); err != nil {
			return fmt.Errorf("storage: no store is created in %s: %w. Free some room, or choose a data directory on a larger file system", o.Dir, err)
		}
		if err := os.MkdirAll(logDir, 0o700); err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		if err := createPresent(path); err != nil {
			return fmt.Errorf("storage: create %s: %w", path, err)
		}
	}
	for _, dir := range []string{o.Dir, filepath.Dir(filepath.Clean(o.Dir))} {
		if err := o.syncDir(dir); err != nil {
			return fmt.Errorf("storage: %w", err)
		}
	}
	return nil
}

// View is the store at one revision; see storage.Store.
func (s *Store) View(ctx context.Context, at storage.At) (storage.View, error) {
	return s.mirror.View(ctx, at)
}

// Watch gives events of keys with the prefix after a revision; see storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after storage.Rev) (storage.Watcher, error) {
	return s.mirror.Watch(ctx, prefix, after)
}

// Compact forgets history up to and including r, for good when it returns.
func (s *Store) Compact(ctx context.Context, r storage.Rev) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r > s.mirror.Rev() {
		return storage.ErrFuture
	}
	if r <= s.mirror.Compacted() {
		return nil
	}
	return s.checkpoint(r)
}

// Status is what the store says about itself.
func (s *Store) Status() storage.Status {
	st := storage.Status{
		Rev: s.mirror.Rev(), Compacted: s.mirror.Compacted(), Keys: s.mirror.Len(),
		DiskBytes: s.log.diskBytes(),
	}
	for _, path := range []string{s.present.path, s.present.reserve.path} {
		if info, err := os.Stat(path); err == nil {
			st.DiskBytes += onDisk(info)
		}
	}
	if st.Err = s.failure(); st.Err == nil {
		if err := s.lost(); err != nil {
			s.fail(err)
			st.Err = err
			return st
		}
		if err := s.hanging(); err != nil {
			st.Err = refusal(err)
			return st
		}
		if err := s.trouble(); err != nil {
			st.Err = refusal(err)
		}
	}
	return st
}

// fail ends writing until the store is opened again.
func (s *Store) fail(err error) {
	if s.failed.set(err) {
		s.options.Log.Error("storage is read-only until a restart", "err", err)
		s.options.Listener.Failed(err)
	}
}

func (s *Store) failure() error { return s.failed.get() }

// trouble says why not everything can be written that should be, for now.
func (s *Store) trouble() error {
	if err := s.stalled.get(); err != nil {
		return err
	}
	return s.refusing.get()
}

// roomChanged reports that something can't be written, or with nil that it can again.
func (s *Store) roomChanged(err error) {
	if err != nil {
		s.options.Log.Error("not everything can be written for now", "err", err)
		s.options.Listener.Failed(refusal(err))
	} else if s.trouble() == nil {
		s.options.Log.Info("everything can be written again")
		s.options.Listener.Failed(s.failure())
	}
}

// roomAgain ends the refusal of what grows.
func (s *Store) roomAgain() {
	if s.refusing.clear() {
		s.roomChanged(nil)
	}
}

// needSegment has the oldest history given up for the log's next segment, which can't be made.
func (s *Store) needSegment(cause error) {
	s.options.Log.Warn("no new segment of the log can be made; the oldest history is given up for one", "err", cause)
	s.tight.Store(true)
	signal(s.checkpointDue)
}

// readOnly is the answer to whoever wants to write after a failure.
func readOnly(cause error) error { return fmt.Errorf("%w: %w", storage.ErrReadOnly, cause) }

// closeKeys is up to how many changed keys Close writes a checkpoint: stopping must be quick, and reading
// the log's end at the next start is quicker than writing many keys now.
const closeKeys = 4096

// Close ends writers and watchers with ErrClosed, brings the present up to date and lets go of the
// directory. Everything acknowledged is durable without it.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.tasks.Wait()
		var err error
		s.behind.mu.Lock()
		changed := len(s.behind.changed)
		s.behind.mu.Unlock()
		if s.failure() == nil && changed <= closeKeys {
			err = s.checkpoint(0)
		}
		s.mirror.Close()
		s.closeErr = errors.Join(err, s.log.close(), s.present.close(), s.lock.Close())
	})
	return s.closeErr
}

// history is the log as the mirror's past.
type history struct{ s *Store }

func (h history) Read(ctx context.Context, prefix string, after storage.Rev, max int) ([]storage.Event, storage.Rev, error) {
	m := h.s.mirror
	if after < m.Compacted() {
		return nil, 0, storage.ErrCompacted
	}
	events, reached, err := h.s.log.read(ctx, prefix, after, m.Rev(), max)
	if damage := (*CorruptError)(nil); errors.As(err, &damage) {
		// The present does not depend on it: give up that part of history, and whoever needs it starts
		// again from a view.
		h.s.options.Log.Error("history is damaged and given up", "err", err)
		m.Compact(h.s.log.behindSegment(damage.Path, m.Rev()))
		return nil, 0, storage.ErrCompacted
	}
	return events, reached, err
}
