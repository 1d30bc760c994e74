package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"operatord.io/operatord/internal/controller"
)

// lane bounds how many jobs of one kind run at once; further ones wait for a place.
type lane struct {
	what   string // that runs in it
	places chan struct{}
}

func newLane(what string, places int) *lane { return &lane{what, make(chan struct{}, places)} }

// lanes keep what is quick from waiting behind what takes long, and what is on the daemon's own disk behind what isn't.
type lanes struct{ quick, copies, removals *lane }

func newLanes() lanes {
	return lanes{
		quick:    newLane("new directories", 16),
		copies:   newLane("copies", 4),
		removals: newLane("removals", 2),
	}
}

// stalledAtMost is how many jobs that hang may have lent their places to others.
const stalledAtMost = 64

// jobs are what is made or removed outside the workers, by the directory. There is at most one for a directory. One
// that has ended is remembered until it was asked for: then, if it succeeded, it is forgotten, and if it failed, begun
// again.
type jobs struct {
	*outside
	mu      sync.Mutex
	byDir   map[string]*job
	stalled int // jobs that have lent their places
}

// job is one of them. What isn't said otherwise is guarded by jobs.mu.
type job struct {
	key    controller.Key
	dir    string
	lane   *lane
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended; then err and at may be read
	err    error
	at     time.Time
	told   bool        // the failure was reported; the next do begins again
	left   bool        // someone counts on a hint
	waits  string      // what it waits for; empty while it moves
	moved  *time.Timer // fires when it hasn't moved for stallAfter
	lent   bool        // its place is another's
}

func newJobs(o *outside) *jobs { return &jobs{outside: o, byDir: make(map[string]*job)} }

// do has work make or remove a directory; it must do nothing if that is done. It begins the job, or joins the one that
// runs: controller.ErrRunning says that it goes on, and that its key will be hinted when it has ended. work calls step
// between any two things that may take long, and ends when that is an error.
func (js *jobs) do(key controller.Key, dir string, in *lane, work func(step func() error) error) error {
	js.mu.Lock()
	j := js.byDir[dir]
	if j == nil || j.told {
		if err := js.ctx.Err(); err != nil {
			js.mu.Unlock()
			return err
		}
		j = &job{key: key, dir: dir, lane: in, done: make(chan struct{})}
		ctx, cancel := context.WithCancel(js.ctx)
		j.cancel = cancel
		js.byDir[dir] = j
		js.mu.Unlock()
		js.launch(func() { js.run(ctx, j, work) })
		js.mu.Lock()
	}
	defer js.mu.Unlock()
	return js.join(j)
}

// wait is do for a job that was begun before; nil if there is none.
func (js *jobs) wait(dir string) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j := js.byDir[dir]; j != nil {
		return js.join(j)
	}
	return nil
}

// join is how j ended, if it has. js.mu is held.
func (js *jobs) join(j *job) error {
	if j.ended() {
		return js.tell(j)
	}
	j.left = true
	return controller.ErrRunning
}

// tell is how j ended. js.mu is held.
func (js *jobs) tell(j *job) error {
	j.told = true
	if j.err == nil && js.byDir[j.dir] == j {
		delete(js.byDir, j.dir)
	}
	return j.err
}

// run is a job from its wait for a place to its end.
func (js *jobs) run(ctx context.Context, j *job, work func(step func() error) error) {
	defer j.cancel()
	err := js.enter(ctx, j)
	if err == nil {
		err = work(func() error { return js.step(ctx, j) })
		js.leave(j)
	}
	js.mu.Lock()
	j.err, j.at = err, js.now()
	if js.byDir[j.dir] == j && errors.Is(err, context.Canceled) {
		delete(js.byDir, j.dir)
	}
	close(j.done)
	left := j.left
	js.mu.Unlock()
	if left {
		js.hint(j.key)
	}
}

// enter waits for a place. That it does, and no longer, is hinted, so that a status says so.
func (js *jobs) enter(ctx context.Context, j *job) error {
	select {
	case j.lane.places <- struct{}{}:
	default:
		js.setWaits(j, fmt.Sprintf("waits for others: %d %s go on at once", cap(j.lane.places), j.lane.what))
		select {
		case j.lane.places <- struct{}{}:
			js.setWaits(j, "")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	j.moved = time.AfterFunc(stallAfter, func() { js.stall(j) })
	return nil
}

// step notes that a job has moved, and tells whether it is still wanted.
func (js *jobs) step(ctx context.Context, j *job) error {
	js.mu.Lock()
	stalled := j.waits != ""
	j.waits = ""
	j.moved.Reset(stallAfter)
	js.mu.Unlock()
	if stalled {
		js.hint(j.key)
	}
	return ctx.Err()
}

// stall lends the place of a job that hangs, on a mount whose server is gone say, to another.
func (js *jobs) stall(j *job) {
	js.mu.Lock()
	if j.ended() {
		js.mu.Unlock()
		return
	}
	if !j.lent && js.stalled < stalledAtMost {
		j.lent = true
		js.stalled++
		<-j.lane.places
	}
	js.mu.Unlock()
	js.setWaits(j, fmt.Sprintf("the disk has not answered for %s; it goes on by itself when it does", stallAfter))
}

func (js *jobs) leave(j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j.moved.Stop()
	if j.lent {
		js.stalled--
		return
	}
	j.lent = true // so that a stall that comes too late lends nothing
	<-j.lane.places
}

func (js *jobs) setWaits(j *job, what string) {
	js.mu.Lock()
	j.waits = what
	js.mu.Unlock()
	js.hint(j.key)
}

// waits is what the job of a directory, or of one in it, waits for; empty if there is none, or it moves.
func (js *jobs) waits(home string) string {
	js.mu.Lock()
	defer js.mu.Unlock()
	for dir, j := range js.byDir {
		if (dir == home || strings.HasPrefix(dir, home+"/")) && !j.ended() && j.waits != "" {
			return j.waits
		}
	}
	return ""
}

// running tells whether dir is being made, or has been and nobody was told yet.
func (js *jobs) running(dir string) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	j := js.byDir[dir]
	return j != nil && (!j.ended() || j.err == nil)
}

// settle forgets that dir has been made: nobody will ask for it.
func (js *jobs) settle(dir string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j := js.byDir[dir]; j != nil && j.ended() {
		_ = js.tell(j)
	}
}

// failure is when and why the last job of dir failed; nil if none did, or a new one runs.
func (js *jobs) failure(dir string) (time.Time, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j := js.byDir[dir]
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

// cancel ends the jobs for which which holds and forgets them. It doesn't wait for them: one that hangs ends when it
// can.
func (js *jobs) cancel(which func(*job) bool) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for dir, j := range js.byDir {
		if which(j) {
			j.cancel()
			delete(js.byDir, dir)
		}
	}
}
