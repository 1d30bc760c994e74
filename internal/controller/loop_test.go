package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

var quiet = slog.New(slog.DiscardHandler)

// runs records when each key was run, and with which result.
type runs struct {
	mu      sync.Mutex
	at      map[string][]time.Duration
	results map[string]int
	start   time.Time
}

func newRuns() *runs {
	return &runs{at: map[string][]time.Duration{}, results: map[string]int{}, start: time.Now()}
}

func (r *runs) add(key string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[key] = append(r.at[key], time.Since(r.start))
	return len(r.at[key])
}

func (r *runs) of(key string) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at[key])
}

func (r *runs) result(result string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[result]
}

func (r *runs) metrics() Metrics {
	return Metrics{Reconciled: func(_, result string, _ time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.results[result]++
	}}
}

// startLoop runs a loop in the test's bubble until the returned func is called.
func startLoop(o LoopOptions[string], r *runs) (*Loop[string], func()) {
	o.Name, o.Log, o.Metrics = "test", quiet, r.metrics()
	l := NewLoop(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	return l, func() {
		cancel()
		<-done
	}
}

// An event meanwhile has the key run at once, and the timer still fires when it was due.
func TestS58RequeueAfterAndEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		l, stop := startLoop(LoopOptions[string]{Reconcile: func(_ context.Context, key string) (Result, error) {
			if r.add(key) == 1 {
				return Result{RequeueAfter: 5 * time.Second}, nil
			}
			return Result{}, nil
		}}, r)
		defer stop()
		l.Add("a")
		time.Sleep(2 * time.Second)
		l.Add("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := r.of("a"), []time.Duration{0, 2 * time.Second, 5 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("runs at %v, want %v", got, want)
		}
	})
}

func TestS58ErrorWinsOverRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		l, stop := startLoop(LoopOptions[string]{
			BackOff: BackOff{Base: time.Second, Jitter: 1e-9},
			Reconcile: func(_ context.Context, key string) (Result, error) {
				if r.add(key) < 4 {
					return Result{RequeueAfter: time.Millisecond}, errors.New("no")
				}
				return Result{}, nil
			},
		}, r)
		defer stop()
		l.Add("a")
		time.Sleep(time.Hour)
		synctest.Wait()
		got := r.of("a")
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second}
		if len(got) != len(want) {
			t.Fatalf("runs at %v, want %v", got, want)
		}
		for i := range want {
			if d := want[i] - got[i]; d < 0 || d > time.Millisecond {
				t.Errorf("run %d at %v, want %v", i, got[i], want[i])
			}
		}
		if r.result("error") != 3 || r.result("success") != 1 {
			t.Errorf("results %v", r.results)
		}
	})
}

func TestS58PanicIsCountedAndTheWorkerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		l, stop := startLoop(LoopOptions[string]{Workers: 1, Reconcile: func(_ context.Context, key string) (Result, error) {
			if r.add(key); key == "bad" {
				panic("no")
			}
			return Result{}, nil
		}}, r)
		defer stop()
		l.Add("bad")
		l.Add("good")
		time.Sleep(time.Second)
		synctest.Wait()
		if len(r.of("good")) != 1 {
			t.Error("the key behind a panic was not run")
		}
		if n := len(r.of("bad")); n < 2 || r.result("panic") != n {
			t.Errorf("%d runs of the key that panics, %d counted", n, r.result("panic"))
		}
	})
}

// A correction is served at once although the key is deep in its back-off; and a flood of events for a key
// that fails lengthens nobody's delay, its own included.
func TestS56CorrectionAndFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		var corrected atomic.Bool
		l, stop := startLoop(LoopOptions[string]{
			BackOff: BackOff{Base: 5 * time.Millisecond, Max: 1000 * time.Second},
			Reconcile: func(_ context.Context, key string) (Result, error) {
				r.add(key)
				if corrected.Load() && key == "a" {
					return Result{}, nil
				}
				return Result{}, errors.New("no")
			},
		}, r)
		defer stop()
		l.Add("a")
		for len(r.of("a")) < 15 {
			time.Sleep(10 * time.Millisecond)
		}
		l.Add("b")
		synctest.Wait()
		before := len(r.of("b"))
		for range 10_000 {
			l.Add("b")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		// 5+10+20+… ms: about eight tries in a second, plus what the flood itself caused before it was deduplicated.
		if left := l.queue.NumRequeues("b"); left > 10 {
			t.Errorf("a flood of events counted as %d failures", left)
		}
		if before == 0 {
			t.Error("the second key waited for the first one's delay")
		}

		corrected.Store(true)
		n := len(r.of("a"))
		l.Add("a")
		synctest.Wait()
		if len(r.of("a")) != n+1 || r.result("success") != 1 {
			t.Error("the correction waited for the back-off")
		}
		if l.queue.NumRequeues("a") != 0 {
			t.Error("success did not end the row of errors")
		}
	})
}

func TestTerminalErrorsAreNotRetried(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, err := range map[string]error{
		"marked":                      Terminal(errors.New("no")),
		"wrapped":                     fmt.Errorf("act: %w", Terminal(errors.New("no"))),
		"S46 namespace being deleted": fmt.Errorf("create: %w", terminating),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuns()
				l, stop := startLoop(LoopOptions[string]{Reconcile: func(_ context.Context, key string) (Result, error) {
					r.add(key)
					return Result{RequeueAfter: time.Second}, err
				}}, r)
				defer stop()
				l.Add("a")
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(r.of("a")); n != 1 || r.result("terminal") != 1 {
					t.Errorf("%d runs, results %v", n, r.results)
				}
			})
		})
	}
}

func TestOneKeyIsNeverWithTwoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		var mu sync.Mutex
		running, most, together := map[string]int{}, 0, 0
		l, stop := startLoop(LoopOptions[string]{Workers: 8, Reconcile: func(_ context.Context, key string) (Result, error) {
			mu.Lock()
			running[key]++
			most = max(most, running[key])
			n := 0
			for _, v := range running {
				n += v
			}
			together = max(together, n)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			running[key]--
			mu.Unlock()
			return Result{Again: r.add(key) < 20, RequeueAfter: time.Millisecond}, nil
		}}, r)
		defer stop()
		for range 100 {
			for k := range 5 {
				l.Add(fmt.Sprint(k))
			}
			time.Sleep(3 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if most != 1 {
			t.Errorf("a key was with %d workers", most)
		}
		if together != 5 {
			t.Errorf("%d keys at once, want 5", together)
		}
	})
}

// After a write a key waits until the views hold it; a conflict and a write without an answer count too.
func TestFloors(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context, w Writer, world *world) error{
		"create": func(ctx context.Context, w Writer, _ *world) error { return w.Create(ctx, configMap("x")) },
		"patch": func(ctx context.Context, w Writer, _ *world) error {
			return w.Patch(ctx, configMaps, key("old"), "", nil, "")
		},
		"delete": func(ctx context.Context, w Writer, _ *world) error {
			return w.Delete(ctx, configMaps, key("old"), metav1.DeleteOptions{})
		},
		"conflict": func(ctx context.Context, w Writer, world *world) error {
			stale := copyOf(world.present(configMaps, key("old")))
			world.change(configMaps, key("old"), func(Object) {}) // somebody else is faster
			return w.Update(ctx, stale)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := newWorld()
				if err := world.Create(context.Background(), configMap("old")); err != nil {
					t.Fatal(err)
				}
				world.lag = 500 * time.Millisecond
				tracked := Tracked(world)
				r := newRuns()
				l, stop := startLoop(LoopOptions[string]{
					AtLeast: world.AtLeast,
					Reconcile: func(ctx context.Context, key string) (Result, error) {
						if r.add(key) == 1 && key == "a" {
							err := write(ctx, tracked, world)
							return Result{Again: true}, err
						}
						return Result{}, nil
					},
				}, r)
				defer stop()
				l.Add("a")
				l.Add("other")
				time.Sleep(time.Minute)
				synctest.Wait()
				got := r.of("a")
				if len(got) < 2 || got[1] < 500*time.Millisecond {
					t.Errorf("runs at %v: the second didn't wait for the view", got)
				}
				if len(l.floors) != 0 {
					t.Errorf("%d floors are kept for keys that wrote nothing last", len(l.floors))
				}
			})
		})
	}
}

// What is under way ends in order; what is queued is left.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		var cancelled, finished atomic.Bool
		l, stop := startLoop(LoopOptions[string]{Workers: 1, Reconcile: func(ctx context.Context, key string) (Result, error) {
			r.add(key)
			time.Sleep(time.Second)
			cancelled.Store(ctx.Err() != nil)
			finished.Store(true)
			return Result{}, nil
		}}, r)
		l.Add("a")
		l.Add("b")
		time.Sleep(time.Millisecond)
		stop()
		if !finished.Load() || cancelled.Load() {
			t.Errorf("finished %v, cancelled %v", finished.Load(), cancelled.Load())
		}
		if len(r.of("b")) != 0 {
			t.Error("a queued key was run after the end")
		}
	})
}

func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuns()
		l, stop := startLoop(LoopOptions[string]{Reconcile: func(ctx context.Context, key string) (Result, error) {
			r.add(key)
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}, r)
		l.Add("a")
		time.Sleep(time.Millisecond)
		begin := time.Now()
		stop()
		if d := time.Since(begin); d != drainWait {
			t.Errorf("drained for %v, want %v", d, drainWait)
		}
	})
}

func TestBackOffBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := BackOff{
			Base:   time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "base")),
			Max:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "max")),
			Jitter: rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
		}.withDefaults()
		n := rapid.IntRange(1, 200).Draw(t, "n")
		whole := b.Max
		if n <= 40 && b.Base<<(n-1)>>(n-1) == b.Base {
			whole = min(b.Max, b.Base<<(n-1))
		}
		d := b.delay(n)
		if d > whole || float64(d) < float64(whole)*(1-b.Jitter)-1 {
			t.Fatalf("delay %v after error %d, want at most %v less %.2f of it", d, n, whole, b.Jitter)
		}
	})
}
