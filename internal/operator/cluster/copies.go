package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"operatord.io/operatord/internal/controller"
)

const (
	copiesAtOnce = 4  // further ones wait for a place
	hintsKept    = 64 // ended copies whose key nobody has taken yet; further ones wait
)

// copies are the copies of directories that run outside the workers, by the directory they make. There is at
// most one for a directory. One that has ended is remembered until it was asked for: then, if it succeeded, it is
// forgotten (its directory is there), and if it failed, begun again.
type copies struct {
	now      func() time.Time
	patience time.Duration // how long do waits
	hints    chan controller.Key
	places   chan struct{}

	ctx  context.Context // ends with close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	jobs map[string]*job
}

type job struct {
	key    controller.Key
	dir    string
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended; then err and at may be read
	err    error
	at     time.Time
	told   bool // the failure was reported; the next do begins again. Guarded by copies.mu
	left   bool // someone stopped waiting and counts on a hint. Guarded by copies.mu
}

func newCopies(now func() time.Time, patience time.Duration) *copies {
	ctx, stop := context.WithCancel(context.Background())
	return &copies{
		now: now, patience: patience, ctx: ctx, stop: stop,
		hints:  make(chan controller.Key, hintsKept),
		places: make(chan struct{}, copiesAtOnce),
		jobs:   make(map[string]*job),
	}
}

// do makes a directory by copy, which must do nothing if it is there. It begins the copy, or joins the one that
// runs, and waits a little: controller.ErrRunning says that the copy goes on, and that its key will be hinted
// when it has ended.
func (c *copies) do(ctx context.Context, key controller.Key, dir string, copy func(context.Context) error) error {
	c.mu.Lock()
	j := c.jobs[dir]
	if j == nil || j.told {
		if c.ctx.Err() != nil {
			c.mu.Unlock()
			return c.ctx.Err()
		}
		j = &job{key: key, dir: dir, done: make(chan struct{})}
		var jobCtx context.Context
		jobCtx, j.cancel = context.WithCancel(c.ctx)
		c.jobs[dir] = j
		c.wg.Go(func() { c.run(jobCtx, j, copy) })
	}
	c.mu.Unlock()
	return c.join(ctx, j)
}

// wait is do for a copy that was begun before; nil if there is none.
func (c *copies) wait(ctx context.Context, dir string) error {
	c.mu.Lock()
	j := c.jobs[dir]
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	return c.join(ctx, j)
}

func (c *copies) join(ctx context.Context, j *job) error {
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	select {
	case <-j.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.tell(j)
	case <-patience.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		if j.ended() {
			return c.tell(j)
		}
		j.left = true
		return controller.ErrRunning
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell is how j ended. c.mu is held.
func (c *copies) tell(j *job) error {
	j.told = true
	if j.err == nil && c.jobs[j.dir] == j {
		delete(c.jobs, j.dir)
	}
	return j.err
}

func (c *copies) run(ctx context.Context, j *job, copy func(context.Context) error) {
	defer j.cancel()
	select {
	case c.places <- struct{}{}:
		j.err = copy(ctx)
		<-c.places
	case <-ctx.Done():
		j.err = ctx.Err()
	}
	j.at = c.now()
	c.mu.Lock()
	if c.jobs[j.dir] == j && errors.Is(j.err, context.Canceled) {
		delete(c.jobs, j.dir)
	}
	close(j.done)
	left := j.left
	c.mu.Unlock()
	if left {
		select {
		case c.hints <- j.key:
		case <-c.ctx.Done():
		}
	}
}

// running tells whether dir is being made, or has been and nobody was told yet.
func (c *copies) running(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[dir]
	return j != nil && (!j.ended() || j.err == nil)
}

// settle forgets that dir has been made: nobody will ask for it.
func (c *copies) settle(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.jobs[dir]; j != nil && j.ended() {
		_ = c.tell(j)
	}
}

// failure is when and why the last copy to dir failed; nil if none did, or a new one runs.
func (c *copies) failure(dir string) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[dir]
	if j == nil || !j.ended() {
		return time.Time{}, nil
	}
	j.told = true
	return j.at, j.err
}

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// cancel ends the copies of the keys for which which holds, forgets those that failed, and waits.
func (c *copies) cancel(which func(controller.Key) bool) {
	c.mu.Lock()
	var ending []*job
	for dir, j := range c.jobs {
		if which(j.key) {
			j.cancel()
			ending = append(ending, j)
			delete(c.jobs, dir)
		}
	}
	c.mu.Unlock()
	for _, j := range ending {
		<-j.done
	}
}

// close ends all copies and waits for them.
func (c *copies) close() {
	c.stop()
	c.wg.Wait()
}
