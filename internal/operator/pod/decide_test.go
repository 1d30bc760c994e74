package pod

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/process"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// run makes an attempt in words: its state, with options behind it.
//
//	running · starting · created · exited CODE · lost · rebooted (lost by a reboot) · leaving (exited, not empty)
//
// note=N counts deaths before it; ago=D says how long ago it ended, lived=D how long it ran.
func run(words string) process.Process {
	p := process.Process{ID: process.ID{Group: "uid", Name: "main"}, PID: 100, Started: noon.Add(-time.Minute)}
	ended := func(ago, lived time.Duration) {
		p.Finished = noon.Add(-ago)
		p.Started = p.Finished.Add(-lived)
	}
	fields := strings.Fields(words)
	switch fields[0] {
	case "running":
		p.State = process.Running
	case "starting":
		p.State, p.PID, p.Started = process.Starting, 0, time.Time{}
	case "created":
		p.State, p.PID, p.Empty = process.Created, 0, true
	case "exited":
		p.State, p.Empty = process.Exited, true
		p.ExitCode, _ = strconv.Atoi(fields[1])
		ended(0, time.Second)
	case "leaving":
		p.State = process.Exited
		ended(0, time.Second)
	case "lost":
		p.State, p.Empty = process.Lost, true
	case "rebooted":
		p.State, p.Empty, p.Rebooted = process.Lost, true, true
	default:
		panic(words)
	}
	ago, lived := time.Duration(0), time.Second
	for _, f := range fields[1:] {
		switch key, value, _ := strings.Cut(f, "="); key {
		case "note":
			p.Note = value
		case "ago":
			ago, _ = time.ParseDuration(value)
			ended(ago, lived)
		case "lived":
			lived, _ = time.ParseDuration(value)
			ended(ago, lived)
		}
	}
	return p
}

// subject is a Pod with one container of a policy and these attempts.
func subject(policy corev1.RestartPolicy, runs ...string) (*corev1.Pod, *observation) {
	pod := sh("p", "true")
	pod.UID, pod.Spec.RestartPolicy = "uid", policy
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	c := &container{spec: &pod.Spec.Containers[0], role: roleMain, policy: policy}
	for i, words := range runs {
		p := run(words)
		p.Attempt = i
		c.runs = append(c.runs, p)
	}
	return pod, &observation{now: noon, containers: []*container{c}}
}

// does says in words what a plan does.
func (p plan) does() string {
	var words []string
	for _, c := range p.start {
		words = append(words, "start "+c.spec.Name+"/"+strconv.Itoa(c.launch.Attempt))
	}
	for _, s := range p.stop {
		words = append(words, "stop "+s.id.Name+"/"+strconv.Itoa(s.id.Attempt))
	}
	for _, id := range p.kill {
		words = append(words, "kill "+id.Name+"/"+strconv.Itoa(id.Attempt))
	}
	for _, id := range p.forget {
		words = append(words, "forget "+id.Name+"/"+strconv.Itoa(id.Attempt))
	}
	if p.finish {
		words = append(words, "finish")
	}
	if p.after > 0 {
		words = append(words, "look again in "+p.after.String())
	}
	return strings.Join(words, ", ")
}

func TestDecide(t *testing.T) {
	const (
		always    = corev1.RestartPolicyAlways
		onFailure = corev1.RestartPolicyOnFailure
		never     = corev1.RestartPolicyNever
	)
	deleting := func(left time.Duration) func(*corev1.Pod, *observation) {
		return func(p *corev1.Pod, _ *observation) {
			p.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(left)))
			p.DeletionGracePeriodSeconds = ptr.To[int64](30)
		}
	}
	for _, c := range []struct {
		name   string
		policy corev1.RestartPolicy
		runs   []string
		change func(*corev1.Pod, *observation)
		does   string
		over   corev1.PodPhase
	}{
		{name: "new", policy: always, does: "start main/0"},
		{name: "blocked", policy: always, change: func(_ *corev1.Pod, o *observation) { o.containers[0].blocked = &blocked{} }},
		{name: "blocked, worth a try", policy: always, change: func(_ *corev1.Pod, o *observation) { o.containers[0].blocked = &blocked{retry: true} }, does: "start main/0"},
		{name: "an earlier Pod's processes are left", policy: always, change: func(_ *corev1.Pod, o *observation) { o.waiting = "them" }},
		{name: "recorded, not begun", policy: always, runs: []string{"created"}, does: "start main/0"},
		{name: "could not be begun", policy: always, runs: []string{"created"}, change: notBegun(time.Second), does: "look again in 4s"},
		{name: "could not be begun, 5 s ago", policy: always, runs: []string{"created"}, change: notBegun(5 * time.Second), does: "start main/0"},
		{name: "runs", policy: always, runs: []string{"running"}},
		{name: "first death", policy: always, runs: []string{"exited 1 note=0"}, does: "start main/1"},
		{name: "second death", policy: always, runs: []string{"exited 1 note=0", "exited 1 note=1"}, does: "look again in 10s"},
		{name: "second death, 9 s ago", policy: always, runs: []string{"exited 1", "exited 1 note=1 ago=9s"}, does: "look again in 1s"},
		{name: "second death, 10 s ago", policy: always, runs: []string{"exited 1", "exited 1 note=1 ago=10s"}, does: "start main/2"},
		{name: "third death", policy: always, runs: []string{"exited 1 note=2"}, does: "look again in 20s"},
		{name: "many deaths", policy: always, runs: []string{"exited 1 note=40"}, does: "look again in 5m0s"},
		{name: "many deaths, then ten minutes", policy: always, runs: []string{"exited 1 note=40 lived=601s"}, does: "start main/1"},
		{name: "ended well, always", policy: always, runs: []string{"exited 0"}, does: "start main/1"},
		{name: "ended well, on failure", policy: onFailure, runs: []string{"exited 0"}, over: corev1.PodSucceeded},
		{name: "ended badly, on failure", policy: onFailure, runs: []string{"exited 2"}, does: "start main/1"},
		{name: "ended well, never", policy: never, runs: []string{"exited 0"}, over: corev1.PodSucceeded},
		{name: "ended badly, never", policy: never, runs: []string{"exited 2"}, over: corev1.PodFailed},
		{name: "lost, never", policy: never, runs: []string{"lost"}, over: corev1.PodFailed},
		{name: "reboot, never", policy: never, runs: []string{"rebooted"}, does: "start main/1"},
		{name: "reboot, after many deaths", policy: always, runs: []string{"rebooted note=40"}, does: "start main/1"},
		{name: "leftovers", policy: always, runs: []string{"leaving"}, does: "kill main/0"},
		{name: "old records", policy: always, runs: []string{"exited 1", "exited 1", "running"}, does: "forget main/0"},
		{name: "deleted", policy: always, runs: []string{"running"}, change: deleting(30 * time.Second), does: "stop main/0, look again in 30s"},
		{name: "deleted, asked", policy: always, runs: []string{"running"}, change: both(deleting(0), asked(29900*time.Millisecond)), does: "stop main/0, look again in 100ms"},
		{name: "deleted, grace is over", policy: always, runs: []string{"running"}, change: both(deleting(0), asked(30*time.Second)), does: "kill main/0"},
		{name: "deleted long ago, while nobody was there to ask", policy: always, runs: []string{"running"}, change: deleting(-time.Hour), does: "stop main/0, look again in 30s"},
		{name: "deleted, leftovers", policy: always, runs: []string{"leaving"}, change: deleting(30 * time.Second), does: "kill main/0"},
		{name: "deleted, nothing left", policy: always, runs: []string{"exited 143"}, change: deleting(30 * time.Second), does: "finish", over: corev1.PodFailed},
		{name: "deleted before it ran", policy: always, change: deleting(30 * time.Second), does: "finish", over: corev1.PodFailed},
		{name: "deleted, held by another's finalizer", policy: always, runs: []string{"exited 143"}, over: corev1.PodFailed,
			change: func(p *corev1.Pod, o *observation) {
				deleting(0)(p, o)
				p.DeletionGracePeriodSeconds = ptr.To[int64](0)
				p.Finalizers = []string{"example.org/keep"}
			}},
		{name: "deadline ahead", policy: always, runs: []string{"running"}, change: deadline(60, 50), does: "look again in 11s"},
		{name: "deadline passed", policy: always, runs: []string{"running"}, change: deadline(60, 61), does: "stop main/0, look again in 30s", over: corev1.PodFailed},
		{name: "deadline within its last second", policy: always, change: deadline(60, 60), does: "start main/0, look again in 1s"},
		{name: "deadline counts from the first process", policy: always, runs: []string{"running"}, change: func(p *corev1.Pod, o *observation) {
			deadline(60, 60)(p, o)
			o.containers[0].runs[0].Started = noon.Add(-59400 * time.Millisecond)
		}, does: "look again in 600ms"},
		{name: "deadline and grace passed", policy: always, runs: []string{"running"}, change: both(deadline(60, 91), asked(30*time.Second)), does: "kill main/0", over: corev1.PodFailed},
		{name: "over before", policy: always, runs: []string{"exited 1"}, change: func(p *corev1.Pod, _ *observation) { p.Status.Phase = corev1.PodFailed }, over: corev1.PodFailed},
		{name: "unhealthy", policy: always, runs: []string{"running"}, change: func(_ *corev1.Pod, o *observation) {
			o.containers[0].probed = probed{unhealthy: "it"}
		}, does: "stop main/0, look again in 30s"},
		{name: "unhealthy, asked", policy: always, runs: []string{"running"}, change: both(asked(10*time.Second), func(_ *corev1.Pod, o *observation) {
			o.containers[0].probed = probed{unhealthy: "it"}
		}), does: "stop main/0, look again in 20s"},
		{name: "bound past the scheduler", policy: always, change: func(_ *corev1.Pod, o *observation) { o.unadmitted = []string{"Insufficient cpu"} }, over: corev1.PodFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod, o := subject(c.policy, c.runs...)
			if c.change != nil {
				c.change(pod, o)
			}
			p := decide(pod, o)
			if p.does() != c.does || p.over != c.over {
				t.Errorf("it does %q and is over %q, wanted %q and %q", p.does(), p.over, c.does, c.over)
			}
		})
	}
}

// asked has the stop signal sent some time ago.
func asked(ago time.Duration) func(*corev1.Pod, *observation) {
	return func(_ *corev1.Pod, o *observation) { o.containers[0].asked = noon.Add(-ago) }
}

func both(a, b func(*corev1.Pod, *observation)) func(*corev1.Pod, *observation) {
	return func(p *corev1.Pod, o *observation) {
		a(p, o)
		b(p, o)
	}
}

// notBegun has a shim that failed some time ago.
func notBegun(ago time.Duration) func(*corev1.Pod, *observation) {
	return func(_ *corev1.Pod, o *observation) {
		last := o.containers[0].last()
		last.Error, last.Finished = "disk full", noon.Add(-ago)
	}
}

// deadline gives a Pod so many seconds, of which some have passed.
func deadline(seconds, passed int64) func(*corev1.Pod, *observation) {
	return func(p *corev1.Pod, _ *observation) {
		p.Spec.ActiveDeadlineSeconds = &seconds
		p.Status.StartTime = ptr.To(metav1.NewTime(noon.Add(-time.Duration(passed) * time.Second)))
	}
}

func TestStopSignal(t *testing.T) {
	for name, want := range map[string]syscall.Signal{"": 15, "SIGINT": 2, "SIGQUIT": 3, "SIGRTMIN+3": 37, "SIGRTMAX-1": 63} {
		c := &corev1.Container{}
		if name != "" {
			c.Lifecycle = &corev1.Lifecycle{StopSignal: ptr.To(corev1.Signal(name))}
		}
		if got := stopSignal(c); got != want {
			t.Errorf("%q is %d, want %d", name, got, want)
		}
	}
}

// From any state, with kills of the daemon anywhere (nothing is remembered between two decisions), a Pod comes
// to rest: running, over, or gone. No container is started beside itself, and nothing that is over runs again.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, o := anyPod(t)
		over := corev1.PodPhase("")
		for step := 0; ; step++ {
			if step > 300 {
				t.Fatalf("no rest after %d steps: %+v", step, o.containers)
			}
			p := decide(pod, o)
			next := report(pod, o, p)
			if again := report(pod, o, decide(pod, o)); !sameStatus(next, again) {
				t.Fatal("deciding twice gives two answers")
			}
			if over != "" && next.Phase != over {
				t.Fatalf("phase went from %s to %s", over, next.Phase)
			}
			if next.Phase == corev1.PodSucceeded || next.Phase == corev1.PodFailed {
				if over = next.Phase; !o.empty() {
					t.Fatal("it is over while something of it is left")
				}
			}
			checkTransitions(t, pod, &next)
			pod.Status = next
			for _, c := range o.containers {
				c.stored = statusOf(next.ContainerStatuses, c.spec.Name)
				if c.role != roleMain {
					c.stored = statusOf(next.InitContainerStatuses, c.spec.Name)
				}
			}
			for _, c := range p.start {
				if over != "" || pod.DeletionTimestamp != nil {
					t.Fatal("something is started that is over or being deleted")
				}
				if last := c.last(); last != nil && !last.Empty {
					t.Fatalf("%s is started beside itself", c.spec.Name)
				}
				if last := c.last(); last != nil && last.State == process.Created {
					c.runs = c.runs[:len(c.runs)-1]
				}
				c.runs = append(c.runs, process.Process{
					ID:    process.ID{Group: "uid", Name: c.spec.Name, Attempt: c.launch.Attempt},
					State: process.Running, PID: 1000 + step, Started: o.now, Note: c.launch.Note,
				})
				c.probed, c.asked = probed{started: true, ready: true}, time.Time{}
			}
			for _, s := range p.stop {
				for _, c := range o.containers {
					if last := c.last(); last != nil && last.ID == s.id && c.asked.IsZero() {
						c.asked = o.now
					}
				}
				if rapid.Bool().Draw(t, "obeys") {
					end(o, s.id, 0)
				}
			}
			for _, id := range p.kill {
				end(o, id, 9)
			}
			if p.finish {
				return
			}
			if len(p.start)+len(p.stop)+len(p.kill) == 0 {
				if p.after == 0 {
					return // at rest
				}
				o.now = o.now.Add(p.after)
			} else {
				o.now = o.now.Add(time.Second)
			}
			if step < 100 {
				misfortune(t, o)
			}
		}
	})
}

// anyPod draws a Pod with containers in any state that the world may have left them in.
func anyPod(t *rapid.T) (*corev1.Pod, *observation) {
	pod := sh("p", "true")
	pod.UID = "uid"
	pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}).Draw(t, "policy")
	o := &observation{now: noon, address: "127.1.1.1", hostIP: hostIP}
	add := func(name string, role role) {
		spec := &corev1.Container{Name: name, Image: "host"}
		c := &container{spec: spec, role: role, policy: pod.Spec.RestartPolicy}
		switch {
		case role == roleSidecar:
			c.policy = corev1.RestartPolicyAlways
			spec.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		case role == roleInit && c.policy == corev1.RestartPolicyAlways:
			c.policy, c.rerun = corev1.RestartPolicyOnFailure, true
		}
		states := []string{"created", "running", "starting", "exited 0", "exited 1 note=3", "lost", "rebooted", "leaving"}
		for i := range rapid.IntRange(0, 3).Draw(t, name+" attempts") {
			words := "exited 1"
			if rapid.Bool().Draw(t, "last") {
				words = rapid.SampledFrom(states).Draw(t, "state")
			}
			p := run(words)
			p.Name, p.Attempt, p.PID = name, i, 10+i
			c.runs = append(c.runs, p)
			if words != "exited 1" {
				break
			}
		}
		if last := c.last(); last != nil && last.State == process.Running {
			c.probed.started = true
		}
		o.containers = append(o.containers, c)
		if role == roleMain {
			pod.Spec.Containers = append(pod.Spec.Containers, *spec)
		} else {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, *spec)
		}
	}
	pod.Spec.Containers = nil
	for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		role := roleInit
		if rapid.Bool().Draw(t, "sidecar") {
			role = roleSidecar
		}
		add("init"+strconv.Itoa(i), role)
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		add("main"+strconv.Itoa(i), roleMain)
	}
	if rapid.Bool().Draw(t, "deleting") {
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(30 * time.Second)))
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	}
	if rapid.Bool().Draw(t, "deadline") {
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](90)
	}
	return pod, o
}

func end(o *observation, id process.ID, signal int) {
	for _, c := range o.containers {
		for i := range c.runs {
			p := &c.runs[i]
			if p.ID != id {
				continue
			}
			if !p.Over() {
				p.State, p.Finished = process.Exited, o.now
				if p.Signal = signal; signal != 0 {
					p.ExitCode = 128 + signal
				}
			}
			p.Empty = true
		}
	}
}

// misfortune lets something happen that nobody decided.
func misfortune(t *rapid.T, o *observation) {
	c := rapid.SampledFrom(o.containers).Draw(t, "who")
	if rapid.Bool().Draw(t, "another daemon") {
		c.asked = time.Time{}
	}
	last := c.last()
	if last == nil || last.Over() || last.State == process.Created {
		return
	}
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0:
		last.State, last.ExitCode, last.Finished, last.Empty = process.Exited, 0, o.now, true
	case 1:
		last.State, last.ExitCode, last.Finished = process.Exited, 1, o.now
	case 2:
		last.State = process.Lost
	case 3:
		last.State, last.PID = process.Running, 7
	case 4: // a reboot takes all
		for _, c := range o.containers {
			for i := range c.runs {
				p := &c.runs[i]
				p.Rebooted, p.Empty = true, true
				if !p.Over() && p.State != process.Created {
					p.State = process.Lost
				}
			}
		}
	}
}

// checkTransitions has the API's rule: what has ended for good in the status never runs again.
func checkTransitions(t *rapid.T, pod *corev1.Pod, next *corev1.PodStatus) {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return
	}
	check := func(old, now []corev1.ContainerStatus, specs []corev1.Container) {
		for i, b := range old {
			s := now[i]
			sidecar := specs[i].RestartPolicy != nil
			if sidecar || b.State.Terminated == nil || s.State.Terminated != nil {
				continue
			}
			if pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && b.State.Terminated.ExitCode != 0 {
				continue
			}
			t.Fatalf("%s was over with %d and is %+v", b.Name, b.State.Terminated.ExitCode, s.State)
		}
	}
	check(pod.Status.ContainerStatuses, next.ContainerStatuses, pod.Spec.Containers)
	check(pod.Status.InitContainerStatuses, next.InitContainerStatuses, pod.Spec.InitContainers)
}

func sameStatus(a, b corev1.PodStatus) bool {
	return a.Phase == b.Phase && len(a.Conditions) == len(b.Conditions)
}
