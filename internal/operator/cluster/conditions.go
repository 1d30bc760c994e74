package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
)

// conditions sets Ready, Progressing, UpToDate and Degraded in cl's status. Their lastTransitionTime moves only when
// their status flips.
func conditions(cl *v1alpha1.Cluster, o *Observation, a Action, held string) {
	why, failed := a.why, !a.Noop() && o.Trouble.kind == a.kind && o.Trouble.target == a.target
	if failed {
		why = fmt.Sprintf("%s %s: %s", a.kind, a.target, o.Trouble.text)
	}
	if o.Waits != "" && !a.Noop() {
		why += "; " + o.Waits
	}
	if held != "" {
		why = fmt.Sprintf("%s: %s; %s %s waits", held, why, a.kind, a.target)
	}
	set := func(typ string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&cl.Status.Conditions, metav1.Condition{
			Type: typ, Status: status, Reason: reason, Message: message,
			ObservedGeneration: cl.Generation, LastTransitionTime: seconds(o.Now),
		})
	}
	deleting := cl.DeletionTimestamp != nil

	switch {
	case deleting:
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonDeleting, why)
	case a.done():
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, reasonComplete, summary(cl, o))
	default:
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, string(cl.Status.Phase), why)
	}

	switch {
	case deleting:
		set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, reasonDeleting, why)
	case a.done():
		set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reasonComplete, summary(cl, o))
	case cl.Spec.Paused:
		set(v1alpha1.ConditionProgressing, metav1.ConditionUnknown, reasonPaused, why)
	case held != "":
		set(v1alpha1.ConditionProgressing, metav1.ConditionUnknown, reasonStepping, why)
	case a.reason == reasonNameTaken, a.reason == reasonBackupNotFound, a.reason == reasonRestoreFailed, a.reason == reasonTooManyMembers:
		set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, a.reason, why)
	case failed:
		set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, reasonActionFailed, why)
	default:
		set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, a.reason, why)
	}

	if older := outdated(o); older != "" {
		set(v1alpha1.ConditionUpToDate, metav1.ConditionFalse, reasonTemplateChanged,
			older+": nobody is restarted for a change of it; a member whose Pod is deleted is made from the present one")
	} else {
		set(v1alpha1.ConditionUpToDate, metav1.ConditionTrue, reasonComplete, "no member runs an older spec.template")
	}

	looping := crashLooping(cl, o)
	switch {
	case deleting && cl.Status.Phase == v1alpha1.PhaseDegraded:
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reasonDeleting, why)
	case deleting:
		set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, reasonDeleting, why)
	case a.reason == reasonNameTaken, a.reason == reasonBackupNotFound, a.reason == reasonRestoreFailed:
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, a.reason, why)
	case excess(cl) != "":
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reasonTooManyMembers, excess(cl))
	case looping != "":
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reasonMemberCrashLooping, looping)
	case cl.Status.Phase != v1alpha1.PhaseDegraded && a.done():
		set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, reasonComplete, summary(cl, o))
	case cl.Status.Phase != v1alpha1.PhaseDegraded:
		set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, string(cl.Status.Phase), why)
	case cl.Status.Leader == "":
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reasonLeaderLost, why)
	default:
		set(v1alpha1.ConditionDegraded, metav1.ConditionTrue, reasonMemberLost, why)
	}
}

// crashLooping says which member died at least twice in a row and isn't ready yet; empty when there is none.
func crashLooping(cl *v1alpha1.Cluster, o *Observation) string {
	members := o.ours()
	for _, c := range cl.Status.Crashes {
		m := first(members, func(m *Member) bool { return m.Name() == c.Name })
		if c.Count > 1 && (m == nil || !m.Ready) {
			return fmt.Sprintf("%s died %d times in a row and is not created before %s", c.Name, c.Count, stamp(c.NotBefore.Time))
		}
	}
	return ""
}
