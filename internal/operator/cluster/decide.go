package cluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
)

// Decide is the runbook. The order of the ifs is the order of the work; whatever is filled already is passed
// over, so it starts from wherever the world is.
func (op *Operator) Decide(cl *v1alpha1.Cluster, o Observation) Action {
	if cl.DeletionTimestamp != nil {
		return dismantle(cl, &o)
	}

	var (
		members  = o.ours()
		want     = wanted(cl)
		waiting  = waitingOf(cl, crashes(cl, &o, ""), members)
		lead     = leader(members, cl.Status)
		lost     = lead == nil && cl.Status.LeaderUID != "" && want > 0
		next     = nextLook(&o, lead, waiting)
		dead     = func(m *Member) bool { return !m.Living && !m.Leaving }
		ready    = func(m *Member) bool { return m.Ready && !m.Leaving }
		notReady = func(m *Member) bool { return !m.Ready || m.Leaving }
	)

	if cl.Spec.RestoreFrom != "" && !o.Restored {
		// Whoever is a member has data already: that the proof was lost concerns those alone that are to be made.
		if len(leaders(members)) > 1 {
			return elect(lead, members, "several members have the leader's label")
		}
		if m := first(members, ready); lost && m != nil {
			return elect(m, members, "the leader was lost")
		}
		if o.Missing != "" {
			return noop(backupReason(&o), o.Missing).again(backupAgain)
		}
		if o.Looking != "" {
			return noop(reasonLookingAtBackup, o.Looking)
		}
		return Action{kind: actRestore, target: cl.Spec.RestoreFrom, reason: reasonRestoring, backup: o.Backup,
			why: "the Cluster starts with its data"}
	}

	if stranger := o.stranger(); stranger != nil {
		return noop(reasonNameTaken, fmt.Sprintf("Pod %s has a member's name and isn't this Cluster's: delete it, or give the Cluster another name", stranger.Name()))
	}

	if len(leaders(members)) > 1 {
		return elect(lead, members, "several members have the leader's label")
	}
	if lead != nil && !lead.Ready && !lead.Leaving && o.Now.Sub(lead.Since) >= unreadyLeader {
		return remove(lead, reasonLeaderUnready, "the leader has not been ready since "+stamp(lead.Since))
	}
	if m := first(members, ready); lost && m != nil {
		return elect(m, members, "the leader was lost")
	}
	if len(members) > want {
		if m := first(members, func(m *Member) bool { return m.Leaving }); m != nil {
			return noop(reasonShrinking, fmt.Sprintf("waiting for %s: being deleted", m.Name())).again(next)
		}
		return remove(superfluous(members, lead), reasonShrinking, thereAndDeclared(len(members), want))
	}
	if m := first(members, dead); m != nil {
		return remove(m, reasonReplacing, "it is dead")
	}
	if n, ok := missing(members, waiting, want, o.Now); ok {
		return Action{kind: actCreate, target: memberName(cl.Name, n), ordinal: n, reason: reasonCreating,
			why: thereAndDeclared(len(members), want)}
	}
	if why := waitingFor(first(members, notReady), waiting); why != "" {
		return noop(reasonWaiting, why).again(next)
	}
	if lead == nil && want > 0 {
		return elect(members[0], members, "all members are ready and none leads")
	}
	if why := excess(cl); why != "" {
		return noop(reasonTooManyMembers, why)
	}
	if older := outdated(&o); older != "" {
		return noop(reasonComplete, "all members are ready; "+older)
	}
	return noop(reasonComplete, "as declared")
}

// wanted is how many members there shall be: what is declared, but never more than the Node takes.
func wanted(cl *v1alpha1.Cluster) int { return int(min(cl.Spec.Members, v1alpha1.MaxMembers)) }

// excess says that more is declared than is acted on, as it was possible once; "" otherwise.
func excess(cl *v1alpha1.Cluster) string {
	if cl.Spec.Members <= v1alpha1.MaxMembers {
		return ""
	}
	return fmt.Sprintf("%d members are declared, and a Node takes %d at most: scale the Cluster down", cl.Spec.Members, v1alpha1.MaxMembers)
}

// dismantle is what is done to a Cluster that is being deleted.
func dismantle(cl *v1alpha1.Cluster, o *Observation) Action {
	if !slices.Contains(cl.Finalizers, v1alpha1.ClusterFinalizer) {
		return noop(reasonDeleting, "the operator has done its part")
	}
	if slices.Contains(cl.Finalizers, metav1.FinalizerOrphanDependents) {
		return Action{kind: actRemove, target: targetFinalizer, reason: reasonDeleting,
			why: "the Cluster is being deleted and leaves its members and their data"}
	}
	members := o.ours()
	if m := first(members, func(m *Member) bool { return !m.Leaving }); m != nil {
		return remove(m, reasonDeleting, "the Cluster is being deleted")
	}
	if len(members) > 0 {
		return noop(reasonDeleting, fmt.Sprintf("waiting for %s: being deleted", members[0].Name()))
	}
	return Action{kind: actRemove, target: targetData, reason: reasonDeleting, why: "the Cluster is being deleted and its members are gone"}
}

func noop(reason, why string) Action { return Action{kind: actNoop, reason: reason, why: why} }

// again says when to look again although nothing changed.
func (a Action) again(after time.Duration) Action {
	a.after = after
	return a
}

func elect(m *Member, members []*Member, why string) Action {
	a := Action{kind: actElect, target: m.Name(), reason: reasonElecting, why: why, pod: m}
	for _, other := range members {
		if other != m && other.Labelled {
			a.others = append(a.others, other)
		}
	}
	return a
}

func remove(m *Member, reason, why string) Action {
	return Action{kind: actRemove, target: m.Name(), reason: reason, why: why, pod: m}
}

// thereAndDeclared compares the numbers of members.
func thereAndDeclared(there, declared int) string {
	have, want := fmt.Sprintf("%d members are there", there), fmt.Sprintf("%d are declared", declared)
	switch there {
	case 0:
		have = "no member is there"
	case 1:
		have = "1 member is there"
	}
	switch declared {
	case 0:
		want = "none is declared"
	case 1:
		want = "1 is declared"
	}
	return have + ", " + want
}

func backupReason(o *Observation) string {
	if o.Failed {
		return reasonRestoreFailed
	}
	return reasonBackupNotFound
}

// stranger is the first Pod with a member's name that isn't this Cluster's.
func (o *Observation) stranger() *Member {
	for i := range o.Members {
		if !o.Members[i].Ours {
			return &o.Members[i]
		}
	}
	return nil
}

// superfluous is whom a shrink takes: a dead one, an unready one, the highest; the leader last. None is leaving.
func superfluous(members []*Member, lead *Member) *Member {
	for _, suits := range []func(*Member) bool{
		func(m *Member) bool { return !m.Living },
		func(m *Member) bool { return !m.Ready && m != lead },
		func(m *Member) bool { return m != lead },
	} {
		for _, m := range slices.Backward(members) {
			if suits(m) {
				return m
			}
		}
	}
	return lead
}

// missing is the lowest ordinal that may be created now: a member that died and is due again, or, if those that
// are there and those that wait are too few, one whose name is free.
func missing(members []*Member, waiting []waiting, want int, now time.Time) (int, bool) {
	lowest := -1
	for _, w := range waiting {
		if w.due(now) {
			lowest = w.ordinal
			break
		}
	}
	if len(members)+len(waiting) < want {
		taken := make(map[int]bool)
		for _, m := range members {
			taken[m.Ordinal] = true
		}
		for _, w := range waiting {
			taken[w.ordinal] = true
		}
		free := 0
		for taken[free] {
			free++
		}
		if lowest < 0 || free < lowest {
			lowest = free
		}
	}
	return lowest, lowest >= 0
}

// waitingFor names the first member that isn't ready or isn't due; empty when there is none.
func waitingFor(m *Member, waiting []waiting) string {
	switch {
	case len(waiting) > 0 && (m == nil || waiting[0].ordinal < m.Ordinal):
		w := waiting[0].crash
		return fmt.Sprintf("waiting for %s: died %d times in a row, created again at %s", w.Name, w.Count, stamp(w.NotBefore.Time))
	case m == nil:
		return ""
	case m.Leaving:
		return fmt.Sprintf("waiting for %s: being deleted", m.Name())
	default:
		return fmt.Sprintf("waiting for %s: not ready%s", m.Name(), heldBy(m.Pod))
	}
}

// heldBy is what keeps a Pod from being started, by its reason; its own status says more. Empty if nothing does.
func heldBy(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ", " + c.Reason
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return ", " + w.Reason
		}
	}
	return ""
}

// nextLook is when time alone changes what is decided: the unready leader's five seconds, the next member due.
func nextLook(o *Observation, lead *Member, waiting []waiting) time.Duration {
	var next time.Duration
	at := func(t time.Time) {
		if d := t.Sub(o.Now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	if lead != nil && !lead.Ready && !lead.Leaving {
		at(lead.Since.Add(unreadyLeader))
	}
	for _, w := range waiting {
		at(w.crash.NotBefore.Time)
	}
	return next
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
