package controller

import (
	"math/rand/v2"
	"sync"
	"time"
)

// BackOff is the delay after the n-th error of one key in a row: Base · 2^(n-1), at most Max, less a
// random part of it up to Jitter.
type BackOff struct {
	Base   time.Duration // 0: 5 ms
	Max    time.Duration // 0: 5 min
	Jitter float64       // 0: 0.2
}

func (b BackOff) withDefaults() BackOff {
	if b.Base <= 0 {
		b.Base = 5 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 5 * time.Minute
	}
	if b.Jitter <= 0 {
		b.Jitter = 0.2
	}
	return b
}

// delay is for the n-th error in a row, n ≥ 1.
func (b BackOff) delay(n int) time.Duration {
	d := b.Max
	if shift := n - 1; shift < 40 && b.Base <= b.Max>>shift {
		d = b.Base << shift
	}
	return d - time.Duration(rand.Float64()*b.Jitter*float64(d))
}

// limiter is a workqueue.TypedRateLimiter with one back-off per key. A key that fails while an earlier
// delay still runs (an event had it tried early) keeps that delay: a burst of events costs it nothing.
type limiter[K comparable] struct {
	backOff BackOff
	mu      sync.Mutex
	failed  map[K]failures
}

type failures struct {
	n     int
	until time.Time // when the last delay is over
	cause string    // the last error's text
}

func newLimiter[K comparable](b BackOff) *limiter[K] {
	return &limiter[K]{backOff: b.withDefaults(), failed: map[K]failures{}}
}

// When counts a failure and says how long to wait.
func (l *limiter[K]) When(key K) time.Duration {
	delay, _ := l.fail(key, "", l.backOff.Max)
	return delay
}

// fail counts a failure and says how long to wait, longest at most, and whether the last failure's cause was another. An
// empty cause is of no interest.
func (l *limiter[K]) fail(key K, cause string, longest time.Duration) (delay time.Duration, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	f := l.failed[key]
	if news = cause != "" && f.cause != cause; news {
		f.cause = cause
	}
	if left := f.until.Sub(now); left > 0 && left <= longest {
		l.failed[key] = f
		return left, news
	}
	f.n++
	d := min(l.backOff.delay(f.n), longest)
	f.until = now.Add(d)
	l.failed[key] = f
	return d, news
}

// Forget ends the row of errors.
func (l *limiter[K]) Forget(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, key)
}

// NumRequeues is the number of errors in a row.
func (l *limiter[K]) NumRequeues(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed[key].n
}
