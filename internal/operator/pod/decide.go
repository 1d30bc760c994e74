package pod

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"operatord.io/operatord/internal/process"
)

// plan is what a reconcile does, and the reasons that the status tells.
type plan struct {
	start  []*container // their next attempts
	stop   []stop       // signal main processes
	kill   []process.ID // kill everything in these
	forget []process.ID // attempts whose records nobody needs
	finish bool         // being deleted, and nothing is left: take the object away

	initialised bool            // the init containers have done their part
	over        corev1.PodPhase // Succeeded or Failed for good; empty: not so
	reason      string          // why it Failed, beyond its containers
	message     string
	backing     map[string]time.Duration // containers in their back-off, and how long it is

	after time.Duration // look again then; 0: when something changes
}

type stop struct {
	id        process.ID
	signal    syscall.Signal
	unhealthy string // which probe has given it up, and why; empty: none
}

// standing is how a container stands.
type standing int

const (
	fresh     standing = iota // to be started: never run, or ended by a reboot
	alive                     // runs, or something of it does
	again                     // has ended and is to be started again
	succeeded                 // for good
	failed                    // for good
)

func (c *container) standing(anyMainWanted bool) standing {
	last := c.last()
	switch {
	case last == nil:
		return c.storedStanding()
	case last.State == process.Created:
		return fresh
	case !last.Empty:
		return alive
	case last.State == process.Lost && last.Rebooted && !c.toldOver():
		return fresh
	case last.Rebooted && c.role == roleInit && c.rerun && anyMainWanted:
		return fresh // what it prepared may be gone with the reboot
	case last.Rebooted && c.role == roleSidecar:
		return fresh
	}
	return c.ended(last.State == process.Exited && last.ExitCode == 0)
}

// toldOver tells whether the status already says for good that the last attempt has ended.
func (c *container) toldOver() bool {
	s := c.stored
	return s != nil && s.State.Terminated != nil && s.ContainerID == containerID(c.last())
}

// storedStanding is for a container without any records. What its status says to have ended for good is so;
// what it says to be running was lost with the records, like in a reboot.
func (c *container) storedStanding() standing {
	if c.stored == nil || c.stored.State.Terminated == nil {
		return fresh
	}
	if s := c.ended(c.stored.State.Terminated.ExitCode == 0); s != again {
		return s
	}
	return fresh
}

// ended is the standing of a container whose last attempt is over.
func (c *container) ended(well bool) standing {
	switch {
	case c.role == roleInit && well:
		return succeeded
	case c.policy == corev1.RestartPolicyAlways, c.policy == corev1.RestartPolicyOnFailure && !well:
		return again
	case well:
		return succeeded
	}
	return failed
}

// decide says what to do. It is pure.
func decide(pod *corev1.Pod, o *observation) plan {
	p := plan{backing: map[string]time.Duration{}}
	mains := o.of(roleMain)

	for _, c := range o.containers {
		for i, run := range c.runs {
			if run.Over() && !run.Empty {
				p.kill = append(p.kill, run.ID)
			}
			// The present attempt and the one before are kept, for their logs.
			if i < len(c.runs)-2 && run.Over() && run.Empty {
				p.forget = append(p.forget, run.ID)
			}
		}
	}

	// Over before, whatever the records say now.
	if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		p.over, p.reason, p.message = phase, pod.Status.Reason, pod.Status.Message
	}
	if len(o.unadmitted) > 0 && p.over == "" {
		p.over, p.reason = corev1.PodFailed, outOf(o.unadmitted[0])
		p.message = "Pod was rejected: Node didn't have enough resource: " + strings.Join(o.unadmitted, ", ")
	}
	deadline, exceeded := activeDeadline(pod, o)
	if exceeded && p.over == "" {
		p.over, p.reason = corev1.PodFailed, "DeadlineExceeded"
		p.message = "Pod was active on the node longer than the specified deadline"
	}

	wanted := false
	for _, c := range mains {
		switch c.standing(false) {
		case fresh, alive, again:
			wanted = true
		}
	}
	p.initialised = initialised(o, wanted && p.over == "")
	if p.over == "" {
		for _, c := range o.of(roleInit) {
			if c.standing(wanted) == failed {
				p.over = corev1.PodFailed
			}
		}
		if !wanted {
			p.over = outcome(mains)
		}
	}

	switch {
	case pod.DeletionTimestamp != nil:
		p.stopAll(o, deletionGrace(pod))
		if o.empty() {
			if p.over == "" {
				p.over = outcome(mains)
			}
			// A second time it is others' finalizers that the object waits for.
			p.finish = pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0 || len(pod.Finalizers) == 0
		}
	case p.over != "":
		p.stopAll(o, grace(pod))
	case o.waiting == "":
		p.bringUp(o, pod, wanted)
		if !deadline.IsZero() {
			p.lookAgain(deadline.Sub(o.now))
		}
	}
	return p
}

// outOf is the reason with which a kubelet turns a Pod away.
func outOf(insufficient string) string {
	if name, ok := strings.CutPrefix(insufficient, "Insufficient "); ok {
		return "OutOf" + name
	}
	return "OutOfpods"
}

// bringUp starts what is to be started: init containers one after the other, then the others.
func (p *plan) bringUp(o *observation, pod *corev1.Pod, wanted bool) {
	for _, c := range o.of(roleInit) {
		switch s := c.standing(wanted); s {
		case fresh, again:
			p.startWhenDue(o, c, s)
		case alive:
			p.tendHealth(o, pod, c)
		}
		if !c.passed(o, wanted) {
			return
		}
	}
	for _, c := range o.of(roleMain) {
		switch s := c.standing(wanted); s {
		case fresh, again:
			p.startWhenDue(o, c, s)
		case alive:
			p.tendHealth(o, pod, c)
		}
	}
}

// initialised tells whether the init containers have done their part.
func initialised(o *observation, wanted bool) bool {
	for _, c := range o.of(roleInit) {
		if !c.passed(o, wanted) {
			return false
		}
	}
	return true
}

// passed tells whether an init container no longer holds up those after it: it has succeeded, or as a sidecar
// has started. A sidecar that fails later holds up nobody.
func (c *container) passed(o *observation, wanted bool) bool {
	s := c.standing(wanted)
	if c.role == roleInit {
		return s == succeeded
	}
	if s == alive && c.running() && c.probed.started {
		return true
	}
	for _, main := range o.of(roleMain) {
		if last := main.last(); last != nil && !last.Rebooted {
			return true
		}
	}
	return false
}

func (p *plan) startWhenDue(o *observation, c *container, s standing) {
	count := 0
	if last := c.last(); s == again && last != nil {
		wait, deaths := backOff(*last)
		count = deaths
		if left := last.Finished.Add(wait).Sub(o.now); wait > 0 && left > 0 {
			p.backing[c.spec.Name] = wait
			p.lookAgain(left)
			return
		}
	}
	if c.blocked != nil && !c.blocked.retry {
		return
	}
	if last := c.last(); last != nil && last.State == process.Created && last.Error != "" {
		if left := last.Finished.Add(beginAgain).Sub(o.now); left > 0 {
			p.lookAgain(left)
			return
		}
	}
	c.launch.Attempt = c.nextAttempt()
	c.launch.Note = strconv.Itoa(count)
	p.start = append(p.start, c)
}

// tendHealth stops a container that its liveness probe has given up.
func (p *plan) tendHealth(o *observation, pod *corev1.Pod, c *container) {
	if c.probed.unhealthy == "" || !c.running() {
		return
	}
	g := grace(pod)
	for _, probe := range []*corev1.Probe{c.spec.LivenessProbe, c.spec.StartupProbe} {
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			g = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
			break
		}
	}
	p.stopOne(o, c, g, c.probed.unhealthy)
}

// sidecarGrace is what a sidecar has at least, however long the others took to end.
const sidecarGrace = 2 * time.Second

// stopAll stops every container, sidecars after the others, and kills what still runs when its grace is over.
func (p *plan) stopAll(o *observation, grace time.Duration) {
	left := false
	var first time.Time
	for _, c := range o.containers {
		last := c.last()
		if last == nil || c.role == roleSidecar {
			continue
		}
		if !c.asked.IsZero() && (first.IsZero() || c.asked.Before(first)) {
			first = c.asked
		}
		if !last.Empty && last.State != process.Created {
			left = true
			p.stopOne(o, c, grace, "")
		}
	}
	if left {
		return
	}
	for _, c := range o.containers {
		if c.role != roleSidecar {
			continue
		}
		own := grace
		if !first.IsZero() && !c.asked.IsZero() {
			own = min(grace, max(sidecarGrace, grace-c.asked.Sub(first)))
		}
		p.stopOne(o, c, own, "")
	}
}

// stopOne asks a container to end, and kills it when its grace has passed since it was asked. The grace counts from
// there, and not from when it was decided upon: a process that was never asked because no daemon was there has all
// of it, and times that the API keeps in whole seconds shorten nothing.
func (p *plan) stopOne(o *observation, c *container, grace time.Duration, unhealthy string) {
	last := c.last()
	if last == nil || last.Over() || last.State == process.Created {
		return
	}
	left := grace
	if !c.asked.IsZero() {
		left = c.asked.Add(grace).Sub(o.now)
	}
	if left > 0 {
		p.stop = append(p.stop, stop{last.ID, stopSignal(c.spec), unhealthy})
		p.lookAgain(left)
		return
	}
	p.kill = append(p.kill, last.ID)
}

func (p *plan) lookAgain(after time.Duration) {
	after = max(after, time.Millisecond)
	if p.after == 0 || after < p.after {
		p.after = after
	}
}

// outcome is the phase that containers which have all ended make.
func outcome(mains []*container) corev1.PodPhase {
	for _, c := range mains {
		s := c.standing(false)
		last := c.last()
		well := s == succeeded
		if last != nil && s == again {
			well = last.State == process.Exited && last.ExitCode == 0
		}
		if !well {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// activeDeadline is when spec.activeDeadlineSeconds have passed; zero: never. The API keeps whole seconds, so the Pod
// may have started as late as the end of that second; the first process was started after it, and is known exactly.
func activeDeadline(pod *corev1.Pod, o *observation) (at time.Time, exceeded bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime == nil {
		return time.Time{}, false
	}
	begin := pod.Status.StartTime.Add(time.Second)
	for _, c := range o.containers {
		for _, run := range c.runs {
			if run.Started.Before(begin) && !run.Started.Before(pod.Status.StartTime.Time) {
				begin = run.Started
			}
		}
	}
	at = begin.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
	return at, !o.now.Before(at)
}

// deletionGrace is what the Pod's processes have once it is deleted: what the one who deleted it gave.
func deletionGrace(pod *corev1.Pod) time.Duration {
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return grace(pod)
}

func grace(pod *corev1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// stopSignal is what asks a container to end: SIGTERM unless it says otherwise.
func stopSignal(c *corev1.Container) syscall.Signal {
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		name := string(*c.Lifecycle.StopSignal)
		if sig := unix.SignalNum(name); sig != 0 {
			return sig
		}
		var n int
		if rest, ok := strings.CutPrefix(name, "SIGRTMIN+"); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return syscall.Signal(34 + n)
			}
		}
		if rest, ok := strings.CutPrefix(name, "SIGRTMAX-"); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return syscall.Signal(64 - n)
			}
		}
	}
	return syscall.SIGTERM
}
