package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/api/v1alpha1"
)

// The scenes of the tables: a Cluster, its members, and now.

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// demo is a Cluster of so many members, with what the options add.
func demo(members int, options ...func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	cl := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "demo", UID: "cluster-uid", Generation: 1, ResourceVersion: "1",
			Finalizers: []string{v1alpha1.ClusterFinalizer},
		},
		Spec: v1alpha1.ClusterSpec{Members: int32(members)},
	}
	for _, o := range options {
		o(cl)
	}
	return cl
}

func from(backup string) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) { cl.Spec.RestoreFrom = backup }
}

// led says who was elected last: the uid of the Pod that member(ordinal) makes.
func led(ordinal int) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) { cl.Status.LeaderUID = uidOf(ordinal) }
}

func ledByGone(cl *v1alpha1.Cluster) { cl.Status.LeaderUID = "a-pod-that-is-gone" }

func deleting(cl *v1alpha1.Cluster) { cl.DeletionTimestamp = &metav1.Time{Time: now} }

func finalizers(names ...string) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) { cl.Finalizers = names }
}

func paused(cl *v1alpha1.Cluster) { cl.Spec.Paused = true }

func stepping(cl *v1alpha1.Cluster) {
	cl.Annotations = map[string]string{v1alpha1.StepAnnotation: "1"}
	cl.Status.Step = ptr.To("1")
}

// died is a member that died so many times in a row and waits until then.
func diedTimes(ordinal int, count int32, notBefore time.Time) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) {
		cl.Status.Crashes = append(cl.Status.Crashes, v1alpha1.Crash{
			Name: memberName("demo", ordinal), UID: "a-pod-that-is-gone", Count: count, NotBefore: metav1.NewTime(notBefore),
		})
	}
}

func uidOf(ordinal int) types.UID { return types.UID(memberName("uid", ordinal)) }

// member is a living, ready member that was started an hour ago, with what the options add.
func member(ordinal int, options ...func(*Member)) Member {
	m := Member{
		Ordinal: ordinal, Ours: true, Living: true, Ready: true, Since: ago(time.Hour), Started: ago(time.Hour),
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: memberName("demo", ordinal), UID: uidOf(ordinal), ResourceVersion: "1"}},
	}
	for _, o := range options {
		o(&m)
	}
	return m
}

func leads(m *Member)  { m.Labelled = true }
func leaves(m *Member) { m.Leaving = true }
func strange(m *Member) {
	m.Ours = false
	m.Pod.UID = "a-stranger"
}
func another(m *Member) { m.Pod.UID = "another-pod-of-that-name" }

func unready(d time.Duration) func(*Member) {
	return func(m *Member) { m.Ready, m.Since = false, ago(d) }
}

func starting(m *Member) { m.Ready, m.Since = false, ago(time.Second) }

// held is kept from being started.
func held(reason string) func(*Member) {
	return func(m *Member) {
		starting(m)
		m.Pod = m.Pod.DeepCopy()
		m.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

// dead died so long ago, after an hour unless lived says otherwise.
func dead(d time.Duration) func(*Member) {
	return func(m *Member) { m.Living, m.Ready, m.Died = false, false, ago(d) }
}

func lived(d time.Duration) func(*Member) {
	return func(m *Member) { m.Started = m.Died.Add(-d) }
}

// manyMembers are ready, and the first leads.
func manyMembers(n int) []Member {
	members := []Member{member(0, leads)}
	for i := 1; i < n; i++ {
		members = append(members, member(i))
	}
	return members
}

func world(members ...Member) Observation { return Observation{Now: now, Members: members} }

func with(o Observation, change func(*Observation)) Observation {
	change(&o)
	return o
}

func newTest(t *testing.T) *Operator {
	op := newOperator(Options{DataDir: "/data", Binary: "/bin/operatord", Now: func() time.Time { return now }, Log: discard}, newMemory(), atOnce, false)
	t.Cleanup(op.Close)
	return op
}

// TestDecide is the runbook: one line a rule, and the edges of each.
func TestDecide(t *testing.T) {
	const none = time.Duration(0)
	backup := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	had := func(o *Observation) { o.Backup = backup }
	absent := func(o *Observation) { o.Missing = `Backup "b" doesn't exist` }
	looking := func(o *Observation) { o.Looking = "looking at /backup" }
	restored := func(o *Observation) { o.Restored = true }
	copying := func(o *Observation) { o.Restoring = true }

	for _, tc := range []struct {
		when  string
		it    *v1alpha1.Cluster
		world Observation
		then  string // kind and target; of a noop, how its why begins
		again time.Duration
	}{
		// Being deleted.
		{"deleted, our finalizer is gone", demo(3, deleting, finalizers("other")), world(member(0, leads)), "noop the operator has done its part", none},
		{"deleted with orphan", demo(3, deleting, finalizers(v1alpha1.ClusterFinalizer, "orphan")), world(member(0, leads), member(1)), "remove finalizer", none},
		{"deleted with orphan, without members", demo(3, deleting, finalizers("orphan", v1alpha1.ClusterFinalizer)), world(), "remove finalizer", none},
		{"deleted with orphan before anything was made", demo(3, deleting, finalizers("orphan")), world(), "noop the operator has done its part", none},
		{"deleted", demo(3, deleting), world(member(0, leads), member(1), member(2)), "remove demo-0", none},
		{"deleted, not waiting between them", demo(3, deleting), world(member(0, leads, leaves), member(1), member(2)), "remove demo-1", none},
		{"deleted, the dead too", demo(3, deleting), world(member(0, leads, leaves), member(1, dead(0))), "remove demo-1", none},
		{"deleted, more than declared", demo(0, deleting), world(member(0, leaves), member(1)), "remove demo-1", none},
		{"deleted, all leave", demo(3, deleting), world(member(1, leaves), member(2, dead(0), leaves)), "noop waiting for demo-1: being deleted", none},
		{"deleted, all gone", demo(3, deleting), world(), "remove data", none},
		{"deleted, a stranger stays", demo(3, deleting), world(member(1, strange)), "remove data", none},
		{"deleted while paused", demo(3, deleting, paused), world(member(0)), "remove demo-0", none},
		{"deleted while stepping", demo(3, deleting, stepping), world(), "remove data", none},
		{"deleted, never restores", demo(3, deleting, from("b")), with(world(), had), "remove data", none},
		{"deleted, backup or not", demo(3, deleting, from("b")), with(world(), absent), "remove data", none},
		{"deleted, never elects", demo(3, deleting, ledByGone), world(member(0, leaves)), "noop waiting for demo-0", none},
		{"deleted with foreground, as without", demo(3, deleting, finalizers(v1alpha1.ClusterFinalizer, "foregroundDeletion")), world(member(0)), "remove demo-0", none},

		// Restore.
		{"the backup can't be had", demo(3, from("b")), with(world(), absent), `noop Backup "b" doesn't exist`, 10 * time.Second},
		{"the backup is there", demo(3, from("b")), with(world(), had), "restore b", none},
		{"it is being copied", demo(3, from("b")), with(world(), copying), "restore b", none},
		{"it was restored", demo(3, from("b")), with(world(), restored), "create demo-0", none},
		{"it was restored and the backup went", demo(3, from("b")), with(with(world(), restored), absent), "create demo-0", none},
		{"no members are wanted, but the data is", demo(0, from("b")), with(world(), had), "restore b", none},
		{"a stranger waits behind the restore", demo(3, from("b")), with(world(member(0, strange)), had), "restore b", none},
		{"members are there, the proof isn't", demo(3, from("b")), with(world(member(0, leads), member(1), member(2, dead(0))), had), "restore b", none},

		// The proof was lost, when members are there.
		{"neither proof nor backup, the leader is lost", demo(3, from("b"), led(0)), with(world(member(0, leads, dead(0)), member(1), member(2)), absent), "elect demo-1", none},
		{"neither, the leader's Pod is gone", demo(3, from("b"), led(0)), with(world(member(2)), absent), "elect demo-2", none},
		{"neither, and it isn't known yet", demo(3, from("b"), led(0)), with(world(member(2)), looking), "elect demo-2", none},
		{"no proof, the backup is there, the leader is lost", demo(3, from("b"), led(0)), with(world(member(1)), had), "elect demo-1", none},
		{"neither, nobody is ready", demo(3, from("b"), led(0)), with(world(member(0, leads, dead(0)), member(1, starting)), absent), `noop Backup "b" doesn't exist`, 10 * time.Second},
		{"neither, the leader leads", demo(3, from("b"), led(0)), with(world(member(0, leads), member(1)), absent), `noop Backup "b" doesn't exist`, 10 * time.Second},
		{"neither, a dead member stays", demo(3, from("b"), led(0)), with(world(member(0, leads), member(1, dead(0))), absent), `noop Backup "b" doesn't exist`, 10 * time.Second},
		{"neither, two are labelled", demo(3, from("b"), led(0)), with(world(member(0, leads), member(1, leads)), absent), "elect demo-0", none},
		{"neither, nobody was ever elected", demo(3, from("b")), with(world(member(0), member(1), member(2)), absent), `noop Backup "b" doesn't exist`, 10 * time.Second},
		{"its backup is looked at", demo(3, from("b")), with(world(), looking), `noop looking at`, none},

		// A stranger has a member's name.
		{"a stranger", demo(3), world(member(0, strange)), "noop Pod demo-0 has a member's name and isn't this Cluster's", none},
		{"more than the Node takes", demo(1000000), world(), "create demo-0", none},
		{"all that the Node takes", demo(1000000, led(0)), world(manyMembers(v1alpha1.MaxMembers)...), "noop 1000000 members are declared, and a Node takes 4096 at most", none},
		{"a stranger among members", demo(3, led(0)), world(member(0, leads), member(1, strange), member(2, dead(0))), "noop Pod demo-1 has", none},
		{"a stranger stops even an election", demo(3, ledByGone), world(member(0), member(7, strange)), "noop Pod demo-7 has", none},

		// Several are labelled.
		{"two are labelled: the one elected last", demo(3, led(2)), world(member(0, leads), member(1), member(2, leads)), "elect demo-2", none},
		{"two are labelled: the first, if it is neither", demo(3, ledByGone), world(member(0), member(2, leads), member(10, leads)), "elect demo-2", none},
		{"two are labelled, one is dead", demo(3, led(0)), world(member(0, leads), member(1, leads, dead(0)), member(2)), "remove demo-1", none},
		{"two are labelled, the right one is leaving", demo(3, led(0)), world(member(0, leads, leaves), member(1, leads), member(2)), "elect demo-0", none},
		{"two are labelled and one hangs", demo(3, led(0)), world(member(0, leads, unready(time.Minute)), member(1, leads), member(2)), "elect demo-0", none},

		// The leader hangs.
		{"the leader is not ready for 4 s", demo(3, led(0)), world(member(0, leads, unready(4*time.Second)), member(1), member(2)), "noop waiting for demo-0: not ready", 2 * time.Second},
		{"the leader is not ready for 5 s, perhaps", demo(3, led(0)), world(member(0, leads, unready(5*time.Second)), member(1), member(2)), "noop waiting for demo-0: not ready", time.Second},
		{"the leader is not ready for 5 s, surely", demo(3, led(0)), world(member(0, leads, unready(6*time.Second)), member(1), member(2)), "remove demo-0", none},
		{"the only member leads and hangs", demo(1, led(0)), world(member(0, leads, unready(time.Minute))), "remove demo-0", none},
		{"the leader hung and is leaving", demo(3, led(0)), world(member(0, leads, leaves, unready(time.Minute)), member(1), member(2)), "noop waiting for demo-0: being deleted", none},
		{"another member hangs", demo(3, led(0)), world(member(0, leads), member(1, unready(time.Hour)), member(2)), "noop waiting for demo-1: not ready", none},
		{"the leader hangs and a member is missing", demo(3, led(0)), world(member(0, leads, unready(time.Minute)), member(1)), "remove demo-0", none},
		{"the leader is young and unready: a missing member first", demo(3, led(0)), world(member(0, leads, starting), member(1)), "create demo-2", none},

		// The leader was lost.
		{"the leader is dead", demo(3, led(0)), world(member(0, leads, dead(0)), member(1), member(2)), "elect demo-1", none},
		{"the leader's Pod is gone", demo(3, led(0)), world(member(1), member(2)), "elect demo-1", none},
		{"a new Pod of the leader's name isn't the leader", demo(3, ledByGone), world(member(0, another), member(1), member(2)), "elect demo-0", none},
		{"a new Pod of the leader's name, another leads", demo(3, led(1)), world(member(0, another), member(1, leads), member(2)), "noop as declared", none},
		{"the first ready one, demo-2 before demo-10", demo(12, ledByGone), world(member(1, starting), member(2), member(10)), "elect demo-2", none},
		{"nobody who is leaving", demo(3, ledByGone), world(member(1, leaves), member(2)), "elect demo-2", none},
		{"elected before a dead one is removed", demo(3, led(0)), world(member(0, leads, dead(0)), member(1, dead(0)), member(2)), "elect demo-2", none},
		{"elected before a member is created", demo(3, ledByGone), world(member(2)), "elect demo-2", none},
		{"elected before a member is removed", demo(1, ledByGone), world(member(0, starting), member(1)), "elect demo-1", none},
		{"all were lost: dead ones go", demo(3, led(0)), world(member(0, leads, dead(0)), member(1, dead(0)), member(2, dead(0))), "remove demo-0", none},
		{"all were lost: the first ready again leads", demo(3, ledByGone), world(member(0, starting), member(1)), "elect demo-1", none},
		{"the leader leaves: nobody else is elected", demo(3, led(0)), world(member(0, leads, leaves), member(1), member(2)), "noop waiting for demo-0: being deleted", none},
		{"the label was taken away", demo(3, led(1)), world(member(0), member(1), member(2)), "elect demo-0", none},
		{"no leader is wanted any more", demo(0, ledByGone), world(member(0)), "remove demo-0", none},

		// More than declared.
		{"shrink: the highest", demo(2, led(0)), world(member(0, leads), member(1), member(2), member(10)), "remove demo-10", none},
		{"shrink: one at a time", demo(2, led(0)), world(member(0, leads), member(1), member(2), member(3, leaves)), "noop waiting for demo-3: being deleted", none},
		{"shrink: unready before the highest", demo(2, led(0)), world(member(0, leads), member(1, starting), member(2)), "remove demo-1", none},
		{"shrink: dead before unready", demo(2, led(0)), world(member(0, leads), member(1, dead(0)), member(2, starting)), "remove demo-1", none},
		{"shrink: the highest of the unready", demo(1, led(0)), world(member(0, leads), member(1, starting), member(2, starting), member(3)), "remove demo-2", none},
		{"shrink: never the leader while another can go", demo(1, led(2)), world(member(0), member(1), member(2, leads)), "remove demo-1", none},
		{"shrink: the leader last, even unready", demo(1, led(2)), world(member(0), member(2, leads, starting)), "remove demo-0", none},
		{"shrink to none: the leader too", demo(0, led(0)), world(member(0, leads)), "remove demo-0", none},
		{"shrink: waits for one that leaves, and looks at the leader", demo(1, led(0)), world(member(0, leads, starting), member(1, leaves)), "noop waiting for demo-1", 5 * time.Second},

		// Dead ones go.
		{"one is dead", demo(3, led(0)), world(member(0, leads), member(1, dead(0)), member(2)), "remove demo-1", none},
		{"two are dead: the first", demo(3, led(0)), world(member(0, leads), member(2, dead(0)), member(10, dead(0))), "remove demo-2", none},
		{"one is dead, one is missing", demo(3, led(0)), world(member(0, leads), member(2, dead(0))), "remove demo-2", none},
		{"one is dead and leaving", demo(3, led(0)), world(member(0, leads), member(1, dead(0), leaves), member(2)), "noop waiting for demo-1: being deleted", none},

		// Missing ones come.
		{"nothing is there", demo(3), world(), "create demo-0", none},
		{"one is there", demo(3), world(member(0, starting)), "create demo-1", none},
		{"the lowest free name", demo(3, led(2)), world(member(0), member(2, leads)), "create demo-1", none},
		{"the name of one that leaves is taken", demo(3, led(2)), world(member(0, leaves), member(2, leads)), "create demo-1", none},
		{"it is not replaced before it is gone", demo(2, led(1)), world(member(0, leaves), member(1, leads)), "noop waiting for demo-0: being deleted", none},
		{"a name that waits is taken", demo(3, led(1), diedTimes(0, 2, now.Add(5*time.Second))), world(member(1, leads)), "create demo-2", none},
		{"it died once: at once", demo(3, led(1), diedTimes(0, 1, ago(time.Second))), world(member(1, leads), member(2)), "create demo-0", none},
		{"it waits", demo(3, led(1), diedTimes(0, 2, now.Add(7*time.Second))), world(member(1, leads), member(2)), "noop waiting for demo-0: died 2 times in a row", 7 * time.Second},
		{"it is due", demo(3, led(1), diedTimes(0, 2, now)), world(member(1, leads), member(2)), "create demo-0", none},
		{"two wait, the second is due", demo(3, led(1), diedTimes(0, 4, now.Add(time.Minute)), diedTimes(2, 2, now)), world(member(1, leads)), "create demo-2", none},
		{"two wait: the sooner says when", demo(3, led(1), diedTimes(0, 4, now.Add(time.Minute)), diedTimes(2, 2, now.Add(time.Second))), world(member(1, leads)), "noop waiting for demo-0", time.Second},
		{"its own name, although a lower one is free", demo(2, led(0), diedTimes(5, 1, now)), world(member(0, leads)), "create demo-5", none},
		{"more wait than are wanted: the lowest", demo(2, led(0), diedTimes(2, 1, now), diedTimes(10, 1, now)), world(member(0, leads)), "create demo-2", none},
		{"one waits that isn't wanted any more", demo(1, led(0), diedTimes(1, 1, now)), world(member(0, leads)), "noop as declared", none},
		{"the clock was set back by a day", demo(2, led(0), diedTimes(1, 7, now.Add(24*time.Hour))), world(member(0, leads)), "create demo-1", none},
		{"a new member while the leader leaves", demo(3, led(0)), world(member(0, leads, leaves), member(1)), "create demo-2", none},

		// Waiting.
		{"one is starting", demo(3), world(member(0), member(1, starting), member(2)), "noop waiting for demo-1: not ready", none},
		{"one asks for what can't be given", demo(3), world(member(0), member(1, held("FieldsNotHonoured")), member(2)), "noop waiting for demo-1: not ready, FieldsNotHonoured", none},
		{"one is being made", demo(3), world(member(0), member(1, held("ContainerCreating")), member(2)), "noop waiting for demo-1: not ready", none},
		{"the first that is starting", demo(3), world(member(0), member(2, starting), member(10, starting)), "noop waiting for demo-2: not ready", none},
		{"the first formation waits for all", demo(2), world(member(0), member(1, starting)), "noop waiting for demo-1: not ready", none},

		// The first election.
		{"all are ready", demo(3), world(member(0), member(1), member(2)), "elect demo-0", none},
		{"all are ready, whatever their names", demo(2), world(member(2), member(10)), "elect demo-2", none},

		// Done.
		{"as declared", demo(3, led(0)), world(member(0, leads), member(1), member(2)), "noop as declared", none},
		{"as declared, the lead has moved", demo(3, led(2)), world(member(0), member(1), member(2, leads)), "noop as declared", none},
		{"no members", demo(0), world(), "noop as declared", none},
		{"no members, some were", demo(0, ledByGone), world(), "noop as declared", none},
		{"as declared although members died before", demo(2, led(0), diedTimes(1, 5, now.Add(time.Minute))), world(member(0, leads), member(1)), "noop as declared", none},
	} {
		t.Run(tc.when, func(t *testing.T) {
			byOrdinal(tc.world.Members)
			a := newTest(t).Decide(tc.it, tc.world)
			got := a.Kind() + " " + a.Target()
			if a.Noop() {
				got = a.Kind() + " " + a.Why()
			}
			if got != tc.then && !(a.Noop() && strings.HasPrefix(got, tc.then)) {
				t.Errorf("got %q (%s), want %q", got, a.Why(), tc.then)
			}
			if a.After() != tc.again {
				t.Errorf("looks again after %s, want %s", a.After(), tc.again)
			}
			if (a.Target() == "") != a.Noop() || a.Why() == "" {
				t.Errorf("action %+v: a noop has no target, everything has a why", a)
			}
			if a.done() != (got == "noop as declared") {
				t.Errorf("done is %t for %q", a.done(), got)
			}
		})
	}
}

func TestNumbersAreSaidLikeASentence(t *testing.T) {
	for want, n := range map[string][2]int{
		"no member is there, 1 is declared":    {0, 1},
		"no member is there, 3 are declared":   {0, 3},
		"1 member is there, 3 are declared":    {1, 3},
		"1 member is there, none is declared":  {1, 0},
		"2 members are there, 1 is declared":   {2, 1},
		"2 members are there, 10 are declared": {2, 10},
	} {
		if got := thereAndDeclared(n[0], n[1]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
