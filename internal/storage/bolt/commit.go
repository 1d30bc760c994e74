package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"operatord.io/operatord/internal/storage"
)

// Bounds of the queue and of a batch. A writer that finds the queue full waits for room in it.
const (
	queueLength = 1024
	batchWrites = 1024
	batchBytes  = 4 << 20 // of keys and values; one write more may go over it
)

// gather is how long the committer waits for more writers while a batch is less than half of the one
// before: those that were just answered are on their way back.
const gather = 200 * time.Microsecond

// request is one write on its way. Either the writer gives it up or the committer takes it, whichever
// is first.
type request struct {
	write storage.Write
	owned atomic.Bool
	done  chan outcome // capacity 1
}

type outcome struct {
	kv  *storage.KV
	err error
}

// take says whether the caller is the first to take the request.
func (r *request) take() bool { return r.owned.CompareAndSwap(false, true) }

// Commit does one write; see storage.Store. The store keeps the value: it must not be changed any more.
func (s *Store) Commit(ctx context.Context, w storage.Write) (*storage.KV, error) {
	if err := checkLimits(w); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &request{write: w, done: make(chan outcome, 1)}
	select {
	case s.queue <- r:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, storage.ErrClosed
	}
	select {
	case o := <-r.done:
		return o.kv, o.err
	case <-ctx.Done():
		if r.take() {
			return nil, ctx.Err()
		}
		select {
		case o := <-r.done:
			return o.kv, o.err
		default:
			return nil, fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
		}
	case <-s.committerDone:
		if r.take() {
			return nil, storage.ErrClosed
		}
		o := <-r.done
		return o.kv, o.err
	}
}

func checkLimits(w storage.Write) error {
	tooLarge := func(what string, n, limit int) error {
		return fmt.Errorf("%w: the %s of %.64q has %d bytes, at most %d are allowed", storage.ErrTooLarge, what, w.Key, n, limit)
	}
	switch {
	case w.Key == "":
		return errors.New("storage: a write needs a key")
	case len(w.Key) > storage.MaxKey:
		return tooLarge("key", len(w.Key), storage.MaxKey)
	case len(w.Value) > storage.MaxValue:
		return tooLarge("value", len(w.Value), storage.MaxValue)
	case len(w.Note) > storage.MaxNote:
		return tooLarge("note", len(w.Note), storage.MaxNote)
	}
	return nil
}

// committer is the one goroutine that writes. It makes a batch of whatever was queued during the last
// one, makes it durable, publishes it and answers.
func (s *Store) committer() {
	defer close(s.committerDone)
	previous := 0
	c := batchInProgress{store: s, pending: make(map[string]*storage.KV)}
	for {
		s.committing.start()
		goOn, blocked := s.waitForCheckpoint()
		s.committing.stop()
		if !goOn {
			return
		}
		requests := s.gather(previous)
		if len(requests) == 0 {
			return
		}
		previous = len(requests)
		for len(requests) > 0 {
			requests = requests[c.run(requests, blocked):]
		}
	}
}

// gather takes the next batch off the queue, waiting for the first; empty when the store closes.
func (s *Store) gather(previous int) []*request {
	var batch []*request
	size := 0
	add := func(r *request) {
		if r.take() {
			batch = append(batch, r)
			size += len(r.write.Key) + len(r.write.Value)
		}
	}
	for len(batch) == 0 {
		select {
		case r := <-s.queue:
			add(r)
		case <-s.closing:
			return nil
		}
	}
	var more <-chan time.Time
	for len(batch) < batchWrites && size < batchBytes {
		select {
		case r := <-s.queue:
			add(r)
			continue
		default:
		}
		if 2*len(batch) >= previous {
			return batch
		}
		if more == nil {
			t := time.NewTimer(gather)
			defer t.Stop()
			more = t.C
		}
		select {
		case r := <-s.queue:
			add(r)
		case <-more:
			return batch
		case <-s.closing:
			return batch
		}
	}
	return batch
}

// batchInProgress is the committer's work on one batch.
type batchInProgress struct {
	store    *Store
	buffer   batchBuffer
	events   []storage.Event
	pending  map[string]*storage.KV // what the batch makes of keys; nil: deleted
	notes    []string               // of the events
	grown    int64                  // what the present's footprint grows by
	outcomes []outcome
}

// run does as many of the requests as make a batch, at least one, and says how many.
func (c *batchInProgress) run(requests []*request, blocked error) int {
	s := c.store
	c.events, c.notes, c.outcomes, c.grown = nil, c.notes[:0], c.outcomes[:0], 0
	clear(c.pending)
	rev := s.mirror.Rev()
	c.buffer.reset(rev + 1)
	if failed := s.failure(); failed != nil {
		blocked = readOnly(failed)
	} else if blocked != nil {
		blocked = refusal(blocked)
	}
	for _, r := range requests {
		if blocked != nil {
			c.outcomes = append(c.outcomes, outcome{err: blocked})
			continue
		}
		old := c.present(r.write.Key)
		if c.buffer.count > 0 && c.buffer.size()+recordSize(r.write, old) > s.log.batchBytes() {
			break
		}
		kv, err := c.apply(r.write, old, rev+1+storage.Rev(len(c.events)))
		c.outcomes = append(c.outcomes, outcome{kv, err})
	}
	if len(c.events) > 0 {
		c.commit()
	}
	done := len(c.outcomes)
	for i, r := range requests[:done] {
		r.done <- c.outcomes[i]
	}
	clear(c.outcomes)
	return done
}

// present is a key's state with the batch so far.
func (c *batchInProgress) present(key string) *storage.KV {
	if kv, ok := c.pending[key]; ok {
		return kv
	}
	kv, _ := c.store.mirror.Get(key)
	return kv
}

// apply checks a write and adds it to the batch at a revision.
func (c *batchInProgress) apply(w storage.Write, old *storage.KV, rev storage.Rev) (*storage.KV, error) {
	if revOf(old) != w.If || old == nil && w.Value == nil {
		return nil, &storage.ConflictError{Key: w.Key, Present: old}
	}
	for _, g := range w.Guards {
		if revOf(c.present(g.Key)) != g.Rev {
			return nil, fmt.Errorf("%w: %s is not at revision %d", storage.ErrFenced, g.Key, g.Rev)
		}
	}
	e := storage.Event{Rev: rev, Old: old}
	result := &storage.KV{Key: w.Key, Value: w.Value, Rev: rev, Created: rev}
	if old != nil {
		result.Key, result.Created = old.Key, old.Created
	}
	if w.Value != nil {
		e.New = result
	}
	grown := c.grown + footprint(e.New) - footprint(old)
	if grown > c.grown {
		if err := c.store.roomFor(grown, old != nil && len(w.Value) <= len(old.Value)+slackGrowth); err != nil {
			return nil, err
		}
		if err := c.store.log.largest(headerSize + recordSize(w, nil)); err != nil {
			return nil, refusal(err)
		}
	}
	c.grown = grown
	c.pending[w.Key] = e.New
	c.events, c.notes = append(c.events, e), append(c.notes, w.Note)
	c.buffer.add(record{event: e, note: w.Note})
	return result, nil
}

func revOf(kv *storage.KV) storage.Rev {
	if kv == nil {
		return 0
	}
	return kv.Rev
}

// commit makes the batch durable, then visible. Until then nobody has seen anything of it, so on an
// error there is nothing to take back but the answers.
func (c *batchInProgress) commit() {
	s := c.store
	s.committing.start()
	defer s.committing.stop()
	reclaimed := s.log.reclaimed.Load()
	h, took, started, err := s.log.append(&c.buffer, time.Now())
	for err != nil && !started && (s.makeRoom(c.buffer.padded(), reclaimed) || c.leaveOutPrevious()) {
		reclaimed = s.log.reclaimed.Load()
		h, took, started, err = s.log.append(&c.buffer, time.Now())
	}
	if err != nil {
		c.refuse(started, err)
		return
	}
	s.options.Publishing(c.events)
	s.publish(h, c.events, c.grown)
	if !s.begun {
		// Before the first answer: where the log's files are lost then, the present says that there was something in
		// them. An error stalls the store, and it has been said why.
		s.begun = s.checkpoint(0) == nil
	}
	s.options.Listener.Committed(len(c.events), took)
}

// leaveOutPrevious makes the batch again without previous values, where that makes it smaller: a large key
// can be deleted where there is no room to keep it in history. Watchers that need the log to get over the
// batch start again from a view.
func (c *batchInProgress) leaveOutPrevious() bool {
	before := c.buffer.padded()
	c.buffer.reset(c.buffer.first)
	for i, e := range c.events {
		c.buffer.add(record{event: e, note: c.notes[i], bare: e.Old != nil})
	}
	return c.buffer.padded() < before
}

// refuse turns the answers of a batch that isn't durable into errors. Where its write or sync was tried, the
// disk may yet hold it, and what may be written after it is unknown.
func (c *batchInProgress) refuse(started bool, err error) {
	wrote := refusal(err)
	others := wrote
	if started {
		wrote, others = fmt.Errorf("%w: %w", storage.ErrUnknown, err), readOnly(err)
		c.store.fail(err)
	}
	for i, o := range c.outcomes {
		if o.err == nil {
			c.outcomes[i] = outcome{err: wrote}
		} else {
			c.outcomes[i] = outcome{err: others} // what it lost against may not have happened
		}
	}
}

// refusal is the answer to a write that can't be done for now. Nothing of it was written.
func refusal(cause error) error {
	if isFull(cause) {
		return fmt.Errorf("%w: %w", storage.ErrFull, cause)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, cause)
}

// makeRoom gives up the oldest history for a segment of at least n bytes, if there is one, and says whether
// the log has got any since that many were reclaimed.
func (s *Store) makeRoom(n int64, reclaimed uint64) bool {
	if upTo := s.log.oldestEnd(n); upTo > 0 && s.checkpoint(upTo) == nil {
		return true
	}
	return s.log.spare.held.Load() > 0 || s.log.reclaimed.Load() != reclaimed // in this order: see giveBack
}

// roomFor makes sure that the present's file and its reserve can hold what the batch makes it grow by.
// Slack says that it is a little more of what is there, as numbers take more digits: there is some room
// for that when there is none for anything else.
func (s *Store) roomFor(grown int64, slack bool) error {
	footprints, r := s.footprints.Load()+grown, &s.present.reserve
	r.admitted.Store(fileNeeds(footprints))
	if fileNeeds(footprints) <= r.bytes() {
		return nil
	}
	err := r.grow(s.options.reserveAhead(footprints))
	if err == nil {
		s.roomAgain()
		return nil
	}
	if r.grow(fileNeeds(footprints)) == nil {
		return nil
	}
	if slack && footprints+fileFloor-slackRoom <= r.bytes() {
		return nil
	}
	if s.refusing.set(err) {
		s.roomChanged(err)
	}
	return refusal(err)
}
