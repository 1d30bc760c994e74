package cluster

import (
	"context"
	"sync"
	"time"

	"operatord.io/operatord/internal/controller"
)

const (
	hintsKept  = 64               // keys that nobody has taken yet; further ones wait
	stallAfter = 10 * time.Second // what hasn't moved for so long is said to hang
	closeWait  = 5 * time.Second  // for what hangs when the operator ends
)

// outside is where whatever waits for a disk goes on, beside the workers, which never do.
type outside struct {
	now    func() time.Time
	launch func(func()) // runs something beside the caller
	hints  chan controller.Key

	ctx     context.Context // ends with close
	stop    context.CancelFunc
	running sync.WaitGroup
}

// newOutside is what jobs and looks are run by. launch nil: each on a goroutine of its own.
func newOutside(now func() time.Time, launch func(func())) *outside {
	ctx, stop := context.WithCancel(context.Background())
	o := &outside{now: now, launch: launch, ctx: ctx, stop: stop, hints: make(chan controller.Key, hintsKept)}
	if launch == nil {
		o.launch = func(f func()) { o.running.Go(f) }
	}
	return o
}

// hint has a key looked at again.
func (o *outside) hint(key controller.Key) {
	select {
	case o.hints <- key:
	case <-o.ctx.Done():
	}
}

// close ends all that goes on and waits for it; not for ever for what hangs, which ends with the process.
func (o *outside) close() {
	o.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.running.Wait()
	}()
	patience := time.NewTimer(closeWait)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
}
