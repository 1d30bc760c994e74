package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// Events are what people are told: what has changed in the status, then the action that was done. Each comes
// from one change only, so none is doubled: a restore shows as the status that says so, not as its action.
func (op *Operator) Events(old, cl *v1alpha1.Cluster, a Action) []controller.Event {
	var out []controller.Event
	tell := func(typ, reason, format string, args ...any) {
		out = append(out, controller.Event{Type: typ, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	was, is := &old.Status, &cl.Status
	if cl.DeletionTimestamp == nil {
		if reason := backupProblem(is); reason != "" && backupProblem(was) != reason {
			tell(corev1.EventTypeWarning, reason, "%s", a.why)
		}
		if text := failing(is); text != "" && failing(was) != text {
			tell(corev1.EventTypeWarning, reasonActionFailed, "%s", text)
		}
		if is.Restored && !was.Restored {
			tell(corev1.EventTypeNormal, "Restored", "Restored Backup %s", cl.Spec.RestoreFrom)
		}
		for _, c := range is.Crashes {
			if c.UID != "" && !counted(was, c) {
				tell(corev1.EventTypeWarning, "MemberLost", "%s died; it is created again, not before %s", c.Name, stamp(c.NotBefore.Time))
			}
		}
		if was.Leader != "" && is.Leader == "" && cl.Spec.Members > 0 {
			tell(corev1.EventTypeWarning, "LeaderLost", "%s, which led, is lost", was.Leader)
		}
	}
	switch {
	case a.kind == actCreate:
		tell(corev1.EventTypeNormal, "MemberCreated", "Created %s: %s", a.target, a.why)
	case a.kind == actElect:
		tell(corev1.EventTypeNormal, "LeaderElected", "Elected %s: %s", a.target, a.why)
	case a.kind == actRemove && a.target == targetData:
		tell(corev1.EventTypeNormal, "DataRemoved", "Removed the members' data: %s", a.why)
	case a.kind == actRemove && a.target == targetFinalizer:
		tell(corev1.EventTypeNormal, "Orphaned", "Let go: %s", a.why)
	case a.kind == actRemove:
		tell(corev1.EventTypeNormal, "MemberRemoved", "Removed %s: %s", a.target, a.why)
	}
	return out
}

// counted tells whether the death that c was counted for is in s already.
func counted(s *v1alpha1.ClusterStatus, c v1alpha1.Crash) bool {
	for _, other := range s.Crashes {
		if other.Name == c.Name && other.UID == c.UID {
			return true
		}
	}
	return false
}

// failing says which action fails; empty when none does.
func failing(s *v1alpha1.ClusterStatus) string {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && c.Reason == reasonActionFailed {
			return c.Message
		}
	}
	return ""
}

// backupProblem is the reason for which the backup can't be had, as the conditions tell it; empty if it can.
func backupProblem(s *v1alpha1.ClusterStatus) string {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionDegraded && (c.Reason == reasonBackupNotFound || c.Reason == reasonRestoreFailed) {
			return c.Reason
		}
	}
	return ""
}
