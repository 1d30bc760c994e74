package apiserver

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// failureEvery is how often one cause of failed requests is logged.
	failureEvery = time.Minute
	// maxFailures is how many causes are told apart.
	maxFailures = 256
)

// failures logs why requests failed: each cause when it is first seen, and while it goes on once a minute, with
// how often it was seen since. All methods may be called concurrently.
type failures struct {
	log *slog.Logger

	mu     sync.Mutex
	causes map[failure]*repeats
}

// failure is one cause: which error of which requests.
type failure struct {
	verb, resource string
	code           int32
	reason         string
}

type repeats struct {
	logged time.Time
	since  int // not logged
}

// add counts a failed request and logs it when it is time to.
func (f *failures) add(cause failure, attrs ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.causes[cause]
	now := time.Now()
	if r != nil && now.Sub(r.logged) < failureEvery {
		r.since++
		return
	}
	if r == nil {
		if f.causes == nil || len(f.causes) >= maxFailures {
			f.causes = map[failure]*repeats{}
		}
		r = &repeats{}
		f.causes[cause] = r
	}
	attrs = append(attrs, "code", cause.code)
	if r.since > 0 {
		attrs = append(attrs, "unlogged", r.since)
	}
	r.logged, r.since = now, 0
	f.log.Warn("request failed", attrs...)
}
