package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
)

// Status is a copy of old whose status is true while a is done. It claims nothing that has not been observed:
// what a does shows when the next reconcile has seen it.
func (op *Operator) Status(old *v1alpha1.Cluster, o Observation, a Action, held string) *v1alpha1.Cluster {
	cl := old.DeepCopy()
	s := &cl.Status
	if a.Noop() {
		held = "" // what isn't there to do isn't held
	}
	members := o.ours()

	s.Members = 0
	for _, m := range members {
		if m.Ready && !m.Leaving {
			s.Members++
		}
	}
	if lead := leader(members, old.Status); lead != nil {
		s.Leader, s.LeaderUID = lead.Name(), lead.Pod.UID
	} else {
		s.Leader = ""
		if cl.Spec.Members == 0 {
			s.LeaderUID = ""
		}
	}
	s.Restored = o.Restored
	s.Crashes = crashes(old, &o, removedUnready(a, held))
	if failed := failedRestore(old, a); failed.kind != "" {
		a, held = failed, "" // it is tried again, which is no news until it succeeds
	}
	s.Phase = phase(cl, &o, a, held)
	if s.Phase == v1alpha1.PhaseReady && a.done() {
		s.ReadyGeneration = cl.Generation
	}
	s.ObservedGeneration = cl.Generation
	conditions(cl, &o, a, held)
	return cl
}

// failedRestore is the noop that cl's status tells of if the backup couldn't be had when it was looked at last, and a
// looks again; or if the copy of it failed when it was tried last, and a tries again. Else the zero Action.
func failedRestore(cl *v1alpha1.Cluster, a Action) Action {
	c := meta.FindStatusCondition(cl.Status.Conditions, v1alpha1.ConditionDegraded)
	if backupProblem(&cl.Status) == "" {
		return Action{}
	}
	again := a.kind == actRestore && strings.HasPrefix(c.Message, copyFailed(cl.Spec.RestoreFrom))
	if !again && a.reason != reasonLookingAtBackup {
		return Action{}
	}
	return noop(c.Reason, c.Message)
}

// removedUnready is the uid of the unready leader that a is going to remove.
func removedUnready(a Action, held string) types.UID {
	if a.kind == actRemove && a.reason == reasonLeaderUnready && held == "" {
		return a.pod.Pod.UID
	}
	return ""
}

// phase is the first that holds.
func phase(cl *v1alpha1.Cluster, o *Observation, a Action, held string) v1alpha1.Phase {
	switch begun := cl.Status.LastAction != nil || !a.Noop() && held == ""; {
	case cl.DeletionTimestamp != nil && cl.Status.Phase != "":
		return cl.Status.Phase
	case cl.DeletionTimestamp != nil:
		return v1alpha1.PhasePending
	case a.reason == reasonBackupNotFound || a.reason == reasonRestoreFailed:
		return v1alpha1.PhaseDegraded
	case a.kind == actRestore && (held == "" || o.Restoring):
		return v1alpha1.PhaseRestoring
	case a.done():
		return v1alpha1.PhaseReady
	case !begun && !o.Restored && len(o.ours()) == 0:
		return v1alpha1.PhasePending
	case cl.Status.ReadyGeneration == cl.Generation:
		return v1alpha1.PhaseDegraded
	default:
		return v1alpha1.PhaseCreating
	}
}

// summary says what a complete Cluster is made of.
func summary(cl *v1alpha1.Cluster, o *Observation) string {
	older := outdated(o)
	if older != "" {
		older = "; " + older
	}
	switch cl.Spec.Members {
	case 0:
		return "no members, as declared"
	case 1:
		return cl.Status.Leader + " is ready and leads" + older
	}
	return fmt.Sprintf("%d of %d members are ready, %s leads%s", cl.Status.Members, cl.Spec.Members, cl.Status.Leader, older)
}
