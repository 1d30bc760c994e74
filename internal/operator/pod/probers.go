package pod

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/process"
)

type probeKind int

const (
	readiness probeKind = iota
	liveness
	startup
)

// probeKey is one probe of one attempt.
type probeKey struct {
	id   process.ID
	kind probeKind
}

// probeJob is what a prober does.
type probeJob struct {
	probeKey
	spec    *corev1.Container
	probe   *corev1.Probe
	address string
	started time.Time
	verdict bool // what holds until the probe says otherwise
}

// result is what a probe has come to, by its thresholds.
type result struct {
	ok  bool
	why string
	at  time.Time
}

// tellAgain is how often a probe that goes on failing may have another reason told.
const tellAgain = 10 * time.Second

// probers probe containers outside the workers: a goroutine for each probe of each running attempt, started and
// ended by the reconciles of its Pod. A result that turns wakes the Pod's key. Results live in memory: until a
// new daemon has its first, what the Pod's status says goes on to hold.
type probers struct {
	check checker
	hints chan<- controller.Key
	now   func() time.Time
	ctx   context.Context
	end   context.CancelFunc
	wait  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running map[probeKey]context.CancelFunc
	results map[probeKey]result
}

func newProbers(r *process.Runtime, hints chan<- controller.Key, now func() time.Time) *probers {
	ctx, end := context.WithCancel(context.Background())
	return &probers{
		check: newChecker(r), hints: hints, now: now, ctx: ctx, end: end,
		running: map[probeKey]context.CancelFunc{}, results: map[probeKey]result{},
	}
}

// close ends all probes and waits for them.
func (ps *probers) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.end()
	ps.wait.Wait()
}

// probesOf are the probes that a Pod's running containers need.
func probesOf(pod *corev1.Pod, o *observation, p plan) []probeJob {
	if pod.DeletionTimestamp != nil || p.over != "" {
		return nil
	}
	var jobs []probeJob
	for _, c := range o.containers {
		last := c.last()
		if !c.running() || c.role == roleInit {
			continue
		}
		job := func(kind probeKind, probe *corev1.Probe, verdict bool) {
			if probe != nil {
				jobs = append(jobs, probeJob{probeKey{last.ID, kind}, c.spec, probe, o.address, last.Started, verdict})
			}
		}
		if !c.probed.started {
			job(startup, c.spec.StartupProbe, false)
			continue
		}
		job(readiness, c.spec.ReadinessProbe, c.probed.ready)
		job(liveness, c.spec.LivenessProbe, true)
	}
	return jobs
}

// sync has exactly these probes run for a Pod. None: its results are forgotten too.
func (ps *probers) sync(key controller.Key, uid types.UID, jobs []probeJob) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	wanted := map[probeKey]bool{}
	attempts := map[process.ID]bool{}
	for _, j := range jobs {
		wanted[j.probeKey] = true
		attempts[j.id] = true
		if _, ok := ps.running[j.probeKey]; ok || ps.closed || ps.final(j) {
			continue
		}
		ctx, cancel := context.WithCancel(ps.ctx)
		ps.running[j.probeKey] = cancel
		ps.wait.Go(func() { ps.run(ctx, key, j) })
	}
	for k, cancel := range ps.running {
		if k.id.Group == string(uid) && !wanted[k] {
			cancel()
			delete(ps.running, k)
		}
	}
	for k := range ps.results {
		if k.id.Group == string(uid) && !attempts[k.id] {
			delete(ps.results, k)
		}
	}
}

// final tells whether a probe has said all it has to say about an attempt.
func (ps *probers) final(j probeJob) bool {
	r, ok := ps.results[j.probeKey]
	return ok && (j.kind == startup || j.kind == liveness && !r.ok)
}

// of is what the probes say about an attempt.
func (ps *probers) of(last process.Process, c *container) probed {
	if last.State != process.Running {
		return probed{}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	// What the status says holds for the same process only.
	stored := c.stored != nil && c.stored.ContainerID == containerID(&last)
	p := probed{started: c.spec.StartupProbe == nil}
	if r, ok := ps.results[probeKey{last.ID, startup}]; ok {
		p.started = r.ok
		if !r.ok {
			p.unhealthy = "Startup probe failed: " + r.why
		}
	} else if stored && ptr.Deref(c.stored.Started, false) {
		p.started = true
	}
	if !p.started {
		return p
	}
	p.ready = c.spec.ReadinessProbe == nil
	if r, ok := ps.results[probeKey{last.ID, readiness}]; ok {
		if p.ready = r.ok; !r.ok {
			p.unready = "Readiness probe failed: " + r.why
		}
	} else if stored && c.stored.Ready {
		p.ready = true
	}
	if r, ok := ps.results[probeKey{last.ID, liveness}]; ok && !r.ok {
		p.unhealthy = "Liveness probe failed: " + r.why
	}
	return p
}

// eagerly is how often a probe that has never succeeded is tried in its first period, so that a container
// is ready when it is and not a period later: 20 ms, 40 ms, … Failures don't count then.
const eagerly = 20 * time.Millisecond

// run probes until ctx ends or there is nothing more to find out.
func (ps *probers) run(ctx context.Context, key controller.Key, j probeJob) {
	period := time.Duration(max(j.probe.PeriodSeconds, 1)) * time.Second
	first := j.started.Add(time.Duration(j.probe.InitialDelaySeconds) * time.Second)
	eager := j.kind != liveness && !j.verdict && j.probe.Exec == nil
	pause := eagerly
	next := first
	timer := time.NewTimer(max(0, next.Sub(ps.now())))
	defer timer.Stop()
	successes, failures := 0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		ok, why := ps.check.check(ctx, j.id, j.spec, j.address, j.probe)
		if ctx.Err() != nil {
			return
		}
		now := ps.now()
		early := eager && successes == 0 && now.Before(first.Add(period))
		switch {
		case ok:
			successes, failures = successes+1, 0
		case !early:
			successes, failures = 0, failures+1
		}
		verdict, decided := j.verdict, false
		if ok && successes >= int(max(j.probe.SuccessThreshold, 1)) {
			verdict, decided = true, true
		}
		if !ok && !early && failures >= int(max(j.probe.FailureThreshold, 1)) {
			verdict, decided = false, true
		}
		if decided && ps.publish(j, result{ok: verdict, why: why, at: now}) {
			if !send(ctx, ps.hints, key) {
				return
			}
			if j.kind == startup || j.kind == liveness && !verdict {
				return
			}
		}
		if early && !ok {
			timer.Reset(min(pause, max(0, first.Add(period).Sub(now))))
			pause *= 2
			continue
		}
		// On the beat of its period, without making up for what was missed.
		for !next.After(now) {
			next = next.Add(period)
		}
		timer.Reset(next.Sub(now))
	}
}

// publish keeps a result and tells whether it is news.
func (ps *probers) publish(j probeJob, r result) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	before, known := ps.results[j.probeKey]
	if known && before.ok == r.ok && (r.ok || r.why == before.why || r.at.Sub(before.at) < tellAgain) {
		return false
	}
	ps.results[j.probeKey] = r
	return true
}
