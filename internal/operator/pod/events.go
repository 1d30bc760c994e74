package pod

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"operatord.io/operatord/internal/controller"
)

// event records an Event about a Pod. occurrence makes it unique; one that comes again isn't written twice.
func (op *Operator) event(ctx context.Context, pod *corev1.Pod, kind, reason, message, occurrence string) {
	op.recorder.Record(ctx, pod, podKind, controller.Event{Type: kind, Reason: reason, Message: message}, occurrence)
}

// recordChanges tells in Events what changed from one status to the next.
func (op *Operator) recordChanges(ctx context.Context, old, next *corev1.Pod, o *observation) {
	warn := func(reason, message string) {
		op.event(ctx, next, corev1.EventTypeWarning, reason, message, next.ResourceVersion)
	}
	was := slices.Concat(old.Status.InitContainerStatuses, old.Status.ContainerStatuses)
	for _, s := range slices.Concat(next.Status.InitContainerStatuses, next.Status.ContainerStatuses) {
		var before corev1.ContainerStatus
		if found := statusOf(was, s.Name); found != nil {
			before = *found
		}
		switch {
		case s.State.Running != nil && (before.State.Running == nil || before.ContainerID != s.ContainerID):
			op.event(ctx, next, corev1.EventTypeNormal, "Started", "Started container "+s.Name, next.ResourceVersion)
		case s.State.Waiting != nil && s.State.Waiting.Reason == notHonoured: // the condition tells
		case s.State.Waiting != nil && s.State.Waiting.Message != "" && (before.State.Waiting == nil || before.State.Waiting.Reason != s.State.Waiting.Reason):
			reason := "Failed"
			if s.State.Waiting.Reason == "CrashLoopBackOff" {
				reason = "BackOff"
			}
			warn(reason, s.State.Waiting.Message)
		case s.State.Terminated != nil && s.State.Terminated.Message != "" && before.State.Terminated == nil:
			warn("Failed", s.State.Terminated.Message)
		}
	}
	for _, c := range o.containers {
		// What the condition says by now.
		if why := c.probed.unready; why != "" && !strings.Contains(conditionOf(old.Status.Conditions, corev1.ContainersReady).Message, why) {
			warn("Unhealthy", why)
		}
	}
	for _, c := range next.Status.Conditions {
		if (c.Type == conditionHonoured || c.Type == conditionLogs) && !slices.ContainsFunc(old.Status.Conditions, func(b corev1.PodCondition) bool {
			return b.Type == c.Type && b.Message == c.Message
		}) {
			warn(c.Reason, c.Message)
		}
	}
}
