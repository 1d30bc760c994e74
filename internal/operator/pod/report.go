package pod

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/process"
)

// hostIP is this machine's address as its Pods see it.
const hostIP = "127.0.0.1"

// report is the Pod's status, true while the plan is carried out. It is pure.
func report(pod *corev1.Pod, o *observation, p plan) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	s.HostIP, s.HostIPs = o.hostIP, []corev1.HostIP{{IP: o.hostIP}}
	s.PodIP, s.PodIPs = o.address, []corev1.PodIP{{IP: o.address}}
	if s.StartTime == nil {
		s.StartTime = ptr.To(seconds(o.now))
	}
	s.InitContainerStatuses = containerStatuses(pod, o, p, o.of(roleInit))
	s.ContainerStatuses = containerStatuses(pod, o, p, o.of(roleMain))
	s.Phase = phase(o, p, s.Phase)
	s.Reason, s.Message = p.reason, p.message
	conditions(&s, pod, o, p)
	return s
}

// phase: it is over only when the last process is gone.
func phase(o *observation, p plan, before corev1.PodPhase) corev1.PodPhase {
	if p.over != "" && (o.empty() || before == p.over) {
		return p.over
	}
	if !p.initialised {
		return corev1.PodPending
	}
	for _, c := range o.of(roleMain) {
		last, stored := c.last(), c.stored
		switch {
		case last != nil && last.Attempt == 0 && waiting(last):
			return corev1.PodPending
		case last == nil && (stored == nil || stored.State.Waiting != nil && stored.LastTerminationState.Terminated == nil):
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// waiting tells whether an attempt hasn't come so far as to run.
func waiting(p *process.Process) bool {
	return p.State == process.Created || p.State == process.Starting
}

func containerStatuses(pod *corev1.Pod, o *observation, p plan, cs []*container) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, c := range cs {
		statuses = append(statuses, containerStatus(pod, o, p, c))
	}
	return statuses
}

func containerStatus(pod *corev1.Pod, o *observation, p plan, c *container) corev1.ContainerStatus {
	last := c.last()
	s := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, Started: ptr.To(false)}
	if c.stored != nil {
		s.ImageID, s.RestartCount, s.ContainerID = c.stored.ImageID, c.stored.RestartCount, c.stored.ContainerID
		s.LastTerminationState = c.stored.LastTerminationState
		s.Resources, s.AllocatedResources = c.stored.Resources, c.stored.AllocatedResources
		s.VolumeMounts, s.User = c.stored.VolumeMounts, c.stored.User
	}
	if last == nil {
		switch {
		case c.stored != nil && c.stored.State.Terminated != nil:
			s.State = c.stored.State // over for good, and its records are gone
			s.Ready = c.role == roleInit && c.stored.State.Terminated.ExitCode == 0
		default:
			s.State.Waiting = waitingState(pod, o, p, c)
		}
		return s
	}
	s.RestartCount = int32(last.Attempt)
	if id := containerID(last); id != "" || last.Over() {
		s.ContainerID = id
	}
	if len(c.runs) > 1 {
		s.LastTerminationState.Terminated = c.terminated(&c.runs[len(c.runs)-2])
	}
	running := last.State == process.Running || last.Over() && !last.Empty
	switch {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(last.Started)}
		s.Started = ptr.To(c.probed.started && !last.Over())
		s.Ready = c.probed.ready && !last.Over() && c.role != roleInit
	case waiting(last):
		s.State.Waiting = waitingState(pod, o, p, c)
	case p.backing[c.spec.Name] > 0:
		s.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				p.backing[c.spec.Name], c.spec.Name, pod.Name, pod.Namespace, pod.UID),
		}
		s.LastTerminationState.Terminated = c.terminated(last)
	case comesAgain(pod, p, c):
		s.State.Waiting = waitingState(pod, o, p, c)
		s.LastTerminationState.Terminated = c.terminated(last)
	default:
		s.State.Terminated = c.terminated(last)
		s.Ready = c.role == roleInit && last.State == process.Exited && last.ExitCode == 0
	}
	return s
}

// comesAgain tells whether a container whose last attempt is over is shown as waiting for the next: one that
// a reboot ended has not died, and one that is blocked says why.
func comesAgain(pod *corev1.Pod, p plan, c *container) bool {
	if p.over != "" || pod.DeletionTimestamp != nil {
		return false
	}
	switch c.standing(true) {
	case fresh:
		return true
	case again:
		return c.blocked != nil
	}
	return false
}

// waitingState says what a container that doesn't run yet waits for.
func waitingState(pod *corev1.Pod, o *observation, p plan, c *container) *corev1.ContainerStateWaiting {
	switch {
	case o.waiting != "":
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: o.waiting}
	case c.blocked != nil:
		return &corev1.ContainerStateWaiting{Reason: c.blocked.reason, Message: c.blocked.message}
	case len(pod.Spec.InitContainers) > 0 && (c.role != roleMain || !p.initialised):
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// terminated is how an attempt ended; nil while it has not.
func (c *container) terminated(p *process.Process) *corev1.ContainerStateTerminated {
	if !p.Over() {
		return nil
	}
	t := &corev1.ContainerStateTerminated{
		ExitCode: int32(p.ExitCode), Signal: int32(p.Signal),
		StartedAt: seconds(p.Started), FinishedAt: seconds(p.Finished),
		ContainerID: containerID(p), Message: cmp.Or(p.Error, c.lastWords[p.Attempt]),
	}
	switch {
	case p.State == process.Lost:
		t.Reason, t.ExitCode = "ContainerStatusUnknown", 137
	case p.Error != "":
		t.Reason = "StartError"
	case p.OOM:
		t.Reason = "OOMKilled"
	case p.ExitCode == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return t
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// Conditions that Kubernetes doesn't have. They are there only while they are False.
const (
	// conditionHonoured: False while fields of the Pod can't be obeyed on this machine, whether that keeps it from being
	// started or it goes without.
	conditionHonoured corev1.PodConditionType = "operatord.io/Honoured"
	// conditionLogs: False while output can't be written to a container's log.
	conditionLogs corev1.PodConditionType = "operatord.io/LogsWritable"
)

// notHonoured is the reason of conditionHonoured, and what the containers of a Pod wait for that it keeps back.
const notHonoured = "FieldsNotHonoured"

// conditions brings the Pod's conditions up to date. Those of others are left alone.
func conditions(s *corev1.PodStatus, pod *corev1.Pod, o *observation, p plan) {
	set := func(t corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: pod.Generation, LastTransitionTime: seconds(o.now)}
		if ok {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
		}
		for i := range s.Conditions {
			if s.Conditions[i].Type == t {
				if s.Conditions[i].Status == c.Status {
					c.LastTransitionTime = s.Conditions[i].LastTransitionTime
				}
				s.Conditions[i] = c
				return
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	only := func(t corev1.PodConditionType, troubles []string, reason string) {
		if len(troubles) > 0 {
			set(t, false, reason, strings.Join(troubles, "; "))
			return
		}
		kept := s.Conditions[:0]
		for _, c := range s.Conditions {
			if c.Type != t {
				kept = append(kept, c)
			}
		}
		s.Conditions = kept
	}

	set(corev1.PodReadyToStartContainers, true, "", "")
	var unfinished, unready, logs []string
	for i, c := range o.of(roleInit) {
		st := s.InitContainerStatuses[i]
		if !st.Ready && (c.role == roleInit || !ptr.Deref(st.Started, false)) && !p.initialised {
			unfinished = append(unfinished, c.spec.Name)
		}
	}
	set(corev1.PodInitialized, p.initialised, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: %v", unfinished))
	for i := range s.InitContainerStatuses {
		if o.of(roleInit)[i].role == roleSidecar && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, s.InitContainerStatuses[i].Name)
		}
	}
	for i := range s.ContainerStatuses {
		if !s.ContainerStatuses[i].Ready {
			unready = append(unready, s.ContainerStatuses[i].Name)
		}
	}
	reason, message := "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	for _, c := range o.containers {
		if c.probed.unready != "" {
			message += "; " + c.spec.Name + ": " + c.probed.unready
		}
	}
	ready := len(unready) == 0
	switch s.Phase {
	case corev1.PodSucceeded:
		ready, reason, message = false, "PodCompleted", ""
	case corev1.PodFailed:
		ready, reason, message = false, "PodFailed", ""
	}
	set(corev1.ContainersReady, ready, reason, message)
	for _, gate := range pod.Spec.ReadinessGates {
		if ready && !conditionTrue(s.Conditions, gate.ConditionType) {
			ready, reason = false, "ReadinessGatesNotReady"
			message = fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but Unknown", gate.ConditionType)
		}
	}
	set(corev1.PodReady, ready, reason, message)
	set(corev1.PodScheduled, true, "", "")

	for _, c := range o.containers {
		if last := c.last(); last != nil && last.LogError != "" && !last.Over() {
			logs = append(logs, fmt.Sprintf("container %s: %s; its output is dropped until that is mended", c.spec.Name, last.LogError))
		}
	}
	only(conditionLogs, logs, "LogNotWritable")
	only(conditionHonoured, o.judgement.said(), notHonoured)
}

func conditionTrue(conditions []corev1.PodCondition, t corev1.PodConditionType) bool {
	return conditionOf(conditions, t).Status == corev1.ConditionTrue
}

// conditionOf is a condition; the zero one if it isn't there.
func conditionOf(conditions []corev1.PodCondition, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}
