package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// Loop runs one function over keys from a queue: deduplicated, no key by two workers at once, errors with
// back-off, panics caught. Controller is a Loop over the objects of one kind; what isn't keyed by one kind
// (the garbage collector) uses it directly.
type Loop[K comparable] struct {
	opts    LoopOptions[K]
	limiter *limiter[K]
	queue   workqueue.TypedRateLimitingInterface[K]
	waiters sync.WaitGroup // of keys that wait for the views, one a key

	mu      sync.Mutex
	floors  map[K]*floor // of keys whose last run wrote something
	waiting map[K]bool   // keys that are added again when the views hold that
}

// LoopOptions say what a Loop runs. Name and Reconcile are required.
type LoopOptions[K comparable] struct {
	Name      string
	Reconcile func(ctx context.Context, key K) (Result, error)
	// AtLeast waits for the views to reach a revision, and says at once that they have, whether its context has ended
	// or not; before a key is run again, they hold what its last run wrote through a Tracked writer. nil: no waiting.
	AtLeast func(ctx context.Context, revision string) error
	Workers int // 0: 4
	BackOff BackOff
	Metrics Metrics
	Queue   workqueue.MetricsProvider
	Log     *slog.Logger
}

const (
	// floorWait bounds the wait for the views, which no worker does; they are normally milliseconds behind.
	floorWait = 10 * time.Second
	// drainWait is how long a run that is under way at shutdown may go on.
	drainWait = 5 * time.Second
)

// NewLoop makes a loop. Keys may be added at once; Run must be called, for it owns the queue.
func NewLoop[K comparable](o LoopOptions[K]) *Loop[K] {
	if o.Workers <= 0 {
		o.Workers = 4
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	limiter := newLimiter[K](o.BackOff)
	return &Loop[K]{
		opts:    o,
		limiter: limiter,
		floors:  map[K]*floor{},
		waiting: map[K]bool{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig[K](limiter,
			workqueue.TypedRateLimitingQueueConfig[K]{Name: o.Name, MetricsProvider: o.Queue}),
	}
}

// Add has a key run as soon as a worker is free, whatever back-off it is in.
func (l *Loop[K]) Add(key K) { l.queue.Add(key) }

// AddAfter has a key run after a delay, and meanwhile whenever something else has it run.
func (l *Loop[K]) AddAfter(key K, d time.Duration) { l.queue.AddAfter(key, d) }

// Run runs the workers until ctx ends, then waits for what is under way, for drainWait at most before its
// context is cancelled. What is still queued is left: the next start looks at everything anyway.
func (l *Loop[K]) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range l.opts.Workers {
		workers.Go(func() {
			for l.next(ctx, work) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	timer := time.AfterFunc(drainWait, cancel)
	defer timer.Stop()
	workers.Wait()
	l.waiters.Wait()
}

func (l *Loop[K]) next(ctx, work context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	if l.caughtUp(ctx, key) {
		l.run(work, key)
	}
	return true
}

// caughtUp tells whether the views hold what the key's last run wrote. If they don't, no worker waits for them: the
// key is added again when they do.
func (l *Loop[K]) caughtUp(ctx context.Context, key K) bool {
	l.mu.Lock()
	before := l.floors[key]
	l.mu.Unlock()
	now, cancel := context.WithCancel(ctx)
	cancel()
	if before.wait(now, l.opts.AtLeast) == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting[key] {
		l.waiting[key] = true
		l.waiters.Go(func() { l.await(ctx, key, before) })
	}
	return false
}

// await adds a key again when the views have reached its floor, or after floorWait.
func (l *Loop[K]) await(ctx context.Context, key K, before *floor) {
	start := time.Now()
	patience, cancel := context.WithTimeout(ctx, floorWait)
	defer cancel()
	err := before.wait(patience, l.opts.AtLeast)
	l.mu.Lock()
	delete(l.waiting, key)
	if err == nil && l.floors[key] == before {
		delete(l.floors, key)
	}
	l.mu.Unlock()
	switch {
	case err == nil:
		l.queue.Add(key)
	case ctx.Err() == nil:
		l.finish(key, Result{}, fmt.Errorf("the views don't hold what was written last: %w", err), start)
	}
}

// run runs one key.
func (l *Loop[K]) run(ctx context.Context, key K) {
	start := time.Now()
	result, err := l.reconcile(ctx, key)
	l.finish(key, result, err, start)
}

// finish does with the outcome of a run what it asks for.
func (l *Loop[K]) finish(key K, result Result, err error, start time.Time) {
	outcome := "success"
	switch {
	case err == nil:
		if n := l.queue.NumRequeues(key); n > 1 {
			l.opts.Log.Info("reconcile works again", "key", key, "failures", n)
		}
		l.queue.Forget(key)
		if result.RequeueAfter > 0 {
			outcome = "requeue"
			l.queue.AddAfter(key, result.RequeueAfter)
		}
		if result.Again {
			outcome = "requeue"
			l.queue.Add(key)
		}
	case IsTerminal(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The next change has it run again.
		outcome = "terminal"
		l.queue.Forget(key)
		l.opts.Log.Warn("reconcile failed for good", "key", key, "cause", err)
	case apierrors.IsConflict(err):
		// Seen too old a state: the floor has been raised to the present one.
		outcome = "conflict"
		l.queue.AddRateLimited(key)
	default:
		outcome = "error"
		var p *panicError
		if errors.As(err, &p) {
			outcome = "panic"
			l.opts.Log.Error("reconcile panicked", "key", key, "cause", p.value, "stack", string(p.stack))
		}
		longest := l.limiter.backOff.Max
		if Passes(err) {
			longest = min(longest, passingMax)
		}
		delay, news := l.limiter.fail(key, err.Error(), longest)
		l.queue.AddAfter(key, delay)
		// Each cause once: what fails again and again for the same one is counted.
		level := slog.LevelDebug
		if news {
			level = slog.LevelWarn
		}
		l.opts.Log.Log(context.Background(), level, "reconcile failed", "key", key, "failures", l.queue.NumRequeues(key), "cause", err)
	}
	if l.opts.Metrics.Reconciled != nil {
		l.opts.Metrics.Reconciled(l.opts.Name, outcome, time.Since(start))
	}
}

// reconcile calls the function, with a new floor for what it writes.
func (l *Loop[K]) reconcile(ctx context.Context, key K) (result Result, err error) {
	written := &floor{}
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r, stack: debug.Stack()}
		}
		l.mu.Lock()
		if written.isZero() {
			delete(l.floors, key)
		} else {
			l.floors[key] = written
		}
		l.mu.Unlock()
	}()
	return l.opts.Reconcile(context.WithValue(ctx, floorKey{}, written), key)
}

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
