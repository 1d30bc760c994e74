package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
)

func wasReady(cl *v1alpha1.Cluster) {
	cl.Status.Phase, cl.Status.ReadyGeneration = v1alpha1.PhaseReady, cl.Generation
	began("elect", "demo-0")(cl)
}

func edited(cl *v1alpha1.Cluster) { cl.Generation++ }

func began(kind, target string) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) { cl.Status.LastAction = &v1alpha1.LastAction{Kind: kind, Target: target} }
}

// restoreFailed is what the status says after the copy of Backup b failed.
func restoreFailed(cl *v1alpha1.Cluster) {
	began("restore", "b")(cl)
	cl.Status.Phase = v1alpha1.PhaseDegraded
	cl.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: reasonBackupNotFound, Message: copyFailed("b") + "/backup/pipe is a pipe",
	}}
}

func phaseWas(p v1alpha1.Phase) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) { cl.Status.Phase = p }
}

// TestPhaseAndConditions: which phase holds first, and what the three conditions say meanwhile.
func TestPhaseAndConditions(t *testing.T) {
	backup := &v1alpha1.Backup{}
	had := func(o *Observation) { o.Backup = backup }
	absent := func(o *Observation) { o.Missing = `Backup "b" doesn't exist` }
	noRoom := func(o *Observation) { o.Missing, o.Failed = "no space left on device", true }
	restored := func(o *Observation) { o.Restored = true }
	copying := func(o *Observation) { o.Restoring = true }

	for _, tc := range []struct {
		when       string
		it         *v1alpha1.Cluster
		world      Observation
		held       string
		phase      v1alpha1.Phase
		conditions string // Ready, Progressing, Degraded
	}{
		{"new", demo(3), world(), "", "Creating", "False Creating, True Creating, False Creating"},
		{"new, paused", demo(3, paused), world(), "paused", "Pending", "False Pending, Unknown Paused, False Pending"},
		{"new, stepping", demo(3, stepping), world(), "step", "Pending", "False Pending, Unknown Stepping, False Pending"},
		{"new, stepping, restored by the first step", demo(3, from("b"), stepping, began("restore", "b")), with(world(), restored), "step", "Creating", "False Creating, Unknown Stepping, False Creating"},
		{"new, no members", demo(0), world(), "", "Ready", "True Complete, False Complete, False Complete"},
		{"new, its name is taken", demo(3), world(member(0, strange)), "", "Pending", "False Pending, False NameTaken, True NameTaken"},
		{"new, restores", demo(3, from("b")), with(world(), had), "", "Restoring", "False Restoring, True Restoring, False Restoring"},
		{"new, is to restore, paused", demo(3, from("b"), paused), with(world(), had), "paused", "Pending", "False Pending, Unknown Paused, False Pending"},
		{"the copy goes on although paused meanwhile", demo(3, from("b"), paused, began("restore", "b")), with(world(), copying), "paused", "Restoring", "False Restoring, Unknown Paused, False Restoring"},
		{"no backup", demo(3, from("b")), with(world(), absent), "", "Degraded", "False Degraded, False BackupNotFound, True BackupNotFound"},
		{"no backup, paused", demo(3, from("b"), paused), with(world(), absent), "paused", "Degraded", "False Degraded, Unknown Paused, True BackupNotFound"},
		{"no room for the backup", demo(3, from("b")), with(world(), noRoom), "", "Degraded", "False Degraded, False RestoreFailed, True RestoreFailed"},
		{"the copy failed and is tried again", demo(3, from("b"), restoreFailed), with(world(), had), "", "Degraded", "False Degraded, False BackupNotFound, True BackupNotFound"},
		{"the copy failed, paused", demo(3, from("b"), restoreFailed, paused), with(world(), had), "paused", "Degraded", "False Degraded, Unknown Paused, True BackupNotFound"},
		{"restored after a failure", demo(3, from("b"), restoreFailed), with(world(), restored), "", "Creating", "False Creating, True Creating, False Creating"},
		{"restored", demo(3, from("b"), began("restore", "b")), with(world(), restored), "", "Creating", "False Creating, True Creating, False Creating"},
		{"waits for the first members", demo(2, began("create", "demo-1")), world(member(0), member(1, starting)), "", "Creating", "False Creating, True Waiting, False Creating"},
		{"elects for the first time", demo(1, began("create", "demo-0")), world(member(0)), "", "Creating", "False Creating, True Electing, False Creating"},
		{"ready", demo(1, led(0), began("elect", "demo-0")), world(member(0, leads)), "", "Ready", "True Complete, False Complete, False Complete"},
		{"ready, paused", demo(1, led(0), paused, wasReady), world(member(0, leads)), "paused", "Ready", "True Complete, False Complete, False Complete"},
		{"collapsed: a member", demo(2, led(0), wasReady), world(member(0, leads), member(1, dead(0))), "", "Degraded", "False Degraded, True Replacing, True MemberLost"},
		{"collapsed: the leader", demo(2, led(0), wasReady), world(member(0, leads, dead(0)), member(1)), "", "Degraded", "False Degraded, True Electing, True LeaderLost"},
		{"collapsed, paused", demo(2, led(0), wasReady, paused), world(member(0, leads), member(1, dead(0))), "paused", "Degraded", "False Degraded, Unknown Paused, True MemberLost"},
		{"collapsed, stepping", demo(2, led(0), wasReady, stepping), world(member(0, leads), member(1, dead(0))), "step", "Degraded", "False Degraded, Unknown Stepping, True MemberLost"},
		{"collapsed, and a stranger", demo(2, led(0), wasReady), world(member(0, leads), member(1, strange)), "", "Degraded", "False Degraded, False NameTaken, True NameTaken"},
		{"one leaves", demo(2, led(0), wasReady), world(member(0, leads), member(1, leaves)), "", "Degraded", "False Degraded, True Waiting, True MemberLost"},
		{"dies again and again", demo(2, led(0), wasReady, diedTimes(1, 3, now.Add(time.Minute))), world(member(0, leads)), "", "Degraded", "False Degraded, True Waiting, True MemberCrashLooping"},
		{"dies again and again, never ready before", demo(2, led(0), began("create", "demo-1"), diedTimes(1, 3, now.Add(time.Minute))), world(member(0, leads)), "", "Creating", "False Creating, True Waiting, True MemberCrashLooping"},
		{"died often, starts", demo(2, led(0), wasReady, diedTimes(1, 3, ago(0))), world(member(0, leads), member(1, starting)), "", "Degraded", "False Degraded, True Waiting, True MemberCrashLooping"},
		{"died often, is ready again", demo(2, led(0), wasReady, diedTimes(1, 3, ago(0))), world(member(0, leads), member(1)), "", "Ready", "True Complete, False Complete, False Complete"},
		{"grows", demo(3, led(0), wasReady, edited), world(member(0, leads), member(1)), "", "Creating", "False Creating, True Creating, False Creating"},
		{"shrinks", demo(1, led(0), wasReady, edited), world(member(0, leads), member(1)), "", "Creating", "False Creating, True Shrinking, False Creating"},
		{"deleted: the phase stays", demo(2, led(0), wasReady, deleting), world(member(0, leads), member(1)), "", "Ready", "False Deleting, True Deleting, False Deleting"},
		{"deleted while degraded", demo(2, phaseWas("Degraded"), deleting), world(), "", "Degraded", "False Deleting, True Deleting, True Deleting"},
		{"deleted before anything", demo(2, deleting), world(), "", "Pending", "False Deleting, True Deleting, False Deleting"},
	} {
		t.Run(tc.when, func(t *testing.T) {
			op := newTest(t)
			before := tc.it.DeepCopy()
			a := op.Decide(tc.it, tc.world)
			cl := op.Status(tc.it, tc.world, a, tc.held)
			if !equality.Semantic.DeepEqual(before, tc.it) {
				t.Error("the object itself was changed")
			}
			if cl.Status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", cl.Status.Phase, tc.phase)
			}
			var got []string
			for _, typ := range []string{"Ready", "Progressing", "Degraded"} {
				c := meta.FindStatusCondition(cl.Status.Conditions, typ)
				got = append(got, fmt.Sprintf("%s %s", c.Status, c.Reason))
				if c.Message == "" || c.ObservedGeneration != cl.Generation || !c.LastTransitionTime.Time.Equal(now) {
					t.Errorf("condition %+v", c)
				}
			}
			if s := strings.Join(got, ", "); s != tc.conditions {
				t.Errorf("conditions %s, want %s", s, tc.conditions)
			}
			ready := before.Status.ReadyGeneration
			if a.done() {
				ready = cl.Generation
			}
			if cl.Status.ReadyGeneration != ready {
				t.Errorf("readyGeneration %d, want %d", cl.Status.ReadyGeneration, ready)
			}
			if cl.Status.ObservedGeneration != cl.Generation {
				t.Error("observedGeneration lags")
			}
			// The same again, later: nothing moves.
			tc.world.Now = tc.world.Now.Add(time.Second)
			if again := op.Status(cl, tc.world, a, tc.held); !equality.Semantic.DeepEqual(again, cl) {
				t.Errorf("the status moves by itself:\n%+v\n%+v", cl.Status, again.Status)
			}
		})
	}
}

// TestStatusCounts: members, leader, leaderUID, restored.
func TestStatusCounts(t *testing.T) {
	for _, tc := range []struct {
		when  string
		it    *v1alpha1.Cluster
		world Observation
		want  string // members leader leaderUID
	}{
		{"nothing", demo(3), world(), "0  "},
		{"those ready and not being deleted", demo(3, led(0)), world(member(0, leads), member(1, starting), member(2, leaves), member(3, dead(0)), member(4, strange), member(5)), "2 demo-0 uid-0"},
		{"the label is the election", demo(2, led(0)), world(member(0), member(1, leads)), "2 demo-1 uid-1"},
		{"a leader that leaves leads", demo(2, led(0)), world(member(0, leads, leaves), member(1)), "1 demo-0 uid-0"},
		{"a leader that hangs leads", demo(2, led(0)), world(member(0, leads, starting), member(1)), "1 demo-0 uid-0"},
		{"a dead leader doesn't, and is remembered", demo(2, led(0)), world(member(0, leads, dead(0)), member(1)), "1  uid-0"},
		{"a leader that is gone is remembered", demo(2, ledByGone), world(member(1)), "1  a-pod-that-is-gone"},
		{"several: the one elected last", demo(2, led(1)), world(member(0, leads), member(1, leads)), "2 demo-1 uid-1"},
		{"several: else the first", demo(2, ledByGone), world(member(0, leads), member(1, leads)), "2 demo-0 uid-0"},
		{"no members wanted: forgotten", demo(0, ledByGone), world(), "0  "},
		{"no members wanted, but it still leads", demo(0, led(0)), world(member(0, leads)), "1 demo-0 uid-0"},
		{"a stranger with the label leads nobody", demo(2), world(member(0, strange, leads)), "0  "},
	} {
		t.Run(tc.when, func(t *testing.T) {
			op := newTest(t)
			s := op.Status(tc.it, tc.world, op.Decide(tc.it, tc.world), "").Status
			if got := fmt.Sprintf("%d %s %s", s.Members, s.Leader, s.LeaderUID); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTransitionTimesMoveOnlyOnFlips follows one Cluster.
func TestTransitionTimesMoveOnlyOnFlips(t *testing.T) {
	op := newTest(t)
	cl := demo(2, led(0))
	observe := func(at time.Time, members ...Member) {
		o := Observation{Now: at, Members: members}
		cl = op.Status(cl, o, op.Decide(cl, o), "")
	}
	since := func(typ string) time.Time {
		return meta.FindStatusCondition(cl.Status.Conditions, typ).LastTransitionTime.Time
	}
	observe(now, member(0, leads), member(1, starting))
	later := now.Add(time.Hour)
	observe(later, member(0, leads)) // another reason, another message, the same status
	if !since("Ready").Equal(now) || !since("Progressing").Equal(now) || !since("Degraded").Equal(now) {
		t.Errorf("moved without a flip: %+v", cl.Status.Conditions)
	}
	observe(later, member(0, leads), member(1))
	if !since("Ready").Equal(later) || !since("Progressing").Equal(later) || !since("Degraded").Equal(now) {
		t.Errorf("Ready and Progressing flipped, Degraded didn't: %+v", cl.Status.Conditions)
	}
}

// TestCrashes: how deaths are counted, and when the member is due again.
func TestCrashes(t *testing.T) {
	type crash struct {
		count int32
		wait  time.Duration // from its death
	}
	// after is what is known when a member died d ago, having lived so long, after count deaths in a row.
	after := func(t *testing.T, count int32, options ...func(*Member)) crash {
		cl := demo(2, led(0))
		if count > 0 {
			diedTimes(1, count, ago(time.Hour))(cl)
		}
		op, o := newTest(t), world(member(0, leads), member(1, options...))
		cl = op.Status(cl, o, op.Decide(cl, o), "")
		if len(cl.Status.Crashes) == 0 {
			return crash{}
		}
		c := cl.Status.Crashes[0]
		if c.Name != "demo-1" {
			t.Errorf("crash %+v", c)
		}
		return crash{c.Count, c.NotBefore.Sub(o.Members[1].Died)}
	}
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300} {
		count := int32(i)
		t.Run(fmt.Sprintf("%d deaths before", count), func(t *testing.T) {
			if got := after(t, count, dead(3*time.Second), lived(time.Minute)); got != (crash{count + 1, want * time.Second}) {
				t.Errorf("got %+v, want %s", got, want*time.Second)
			}
			if got := after(t, count, dead(3*time.Second), lived(10*time.Minute)); got != (crash{1, 0}) {
				t.Errorf("having lived ten minutes: %+v", got)
			}
			if got := after(t, count, dead(3*time.Second), lived(10*time.Minute-time.Second)); got.count != count+1 {
				t.Errorf("having lived almost ten minutes: %+v", got)
			}
		})
	}

	t.Run("no deaths", func(t *testing.T) {
		for name, options := range map[string][]func(*Member){
			"a user's delete":           {leaves},
			"a user's delete, dead now": {leaves, dead(0), lived(time.Minute)},
			"it is starting":            {starting},
			"a reboot":                  {unready(time.Minute)}, // its Pod lives, and its processes start again
		} {
			if got := after(t, 0, options...); got != (crash{}) {
				t.Errorf("%s: %+v", name, got)
			}
			if got := after(t, 3, options...); got.count != 3 {
				t.Errorf("%s, after three deaths: %+v", name, got)
			}
		}
	})

	t.Run("each is counted once", func(t *testing.T) {
		op, cl := newTest(t), demo(2, led(0))
		for range 3 {
			o := world(member(0, leads), member(1, dead(0), lived(time.Minute)))
			cl = op.Status(cl, o, op.Decide(cl, o), "")
		}
		if c := cl.Status.Crashes; len(c) != 1 || c[0].Count != 1 || c[0].UID != uidOf(1) {
			t.Errorf("got %+v", c)
		}
	})

	t.Run("an unready leader's removal is a death, once it is done", func(t *testing.T) {
		op, cl := newTest(t), demo(2, led(0))
		hangs := world(member(0, leads, unready(time.Minute)), member(1))
		a := op.Decide(cl, hangs)
		if held := op.Status(cl, hangs, a, "paused"); len(held.Status.Crashes) != 0 {
			t.Errorf("held: %+v", held.Status.Crashes)
		}
		counted := op.Status(cl, hangs, a, "")
		if c := counted.Status.Crashes; len(c) != 1 || c[0].Count != 1 || c[0].UID != uidOf(0) {
			t.Fatalf("got %+v", c)
		}
		// Killed between the two: the same decision, counted once.
		if again := op.Status(counted, hangs, op.Decide(counted, hangs), ""); again.Status.Crashes[0].Count != 1 {
			t.Errorf("counted twice: %+v", again.Status.Crashes)
		}
		// Killed between the two, and it is ready again: nothing happened.
		well := world(member(0, leads), member(1))
		if undone := op.Status(counted, well, op.Decide(counted, well), ""); len(undone.Status.Crashes) != 0 {
			t.Errorf("still counted: %+v", undone.Status.Crashes)
		}
		// It goes, and its Pod dies: that is the same death.
		goes := world(member(0, leads, leaves, dead(0)), member(1))
		if gone := op.Status(counted, goes, op.Decide(counted, goes), ""); gone.Status.Crashes[0].Count != 1 {
			t.Errorf("counted twice: %+v", gone.Status.Crashes)
		}
	})

	t.Run("what isn't wanted any more is forgotten", func(t *testing.T) {
		op, cl := newTest(t), demo(2, led(0), diedTimes(10, 3, now), diedTimes(2, 3, now), diedTimes(1, 3, now))
		o := world(member(0, leads))
		cl = op.Status(cl, o, op.Decide(cl, o), "")
		if c := cl.Status.Crashes; len(c) != 1 || c[0].Name != "demo-1" {
			t.Errorf("got %+v", c)
		}
	})
}

// TestEvents: one for each change and each action, none twice.
func TestEvents(t *testing.T) {
	op := newTest(t)
	backup := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	for _, tc := range []struct {
		when  string
		it    *v1alpha1.Cluster
		world Observation
		want  string
	}{
		{"created", demo(2), world(), "MemberCreated"},
		{"elected", demo(1), world(member(0)), "LeaderElected"},
		{"the backup can't be had", demo(1, from("b")), with(world(), func(o *Observation) { o.Missing = "no" }), "BackupNotFound"},
		{"the restore begins", demo(1, from("b")), with(world(), func(o *Observation) { o.Backup = backup }), ""},
		{"the restore is done", demo(1, from("b")), with(world(), func(o *Observation) { o.Restored = true }), "Restored MemberCreated"},
		{"a member died", demo(2, led(0), wasLed), world(member(0, leads), member(1, dead(0))), "MemberLost MemberRemoved"},
		{"the leader died", demo(2, led(0), wasLed), world(member(0, leads, dead(0)), member(1)), "MemberLost LeaderLost LeaderElected"},
		{"the leader's Pod is gone", demo(2, led(0), wasLed), world(member(1)), "LeaderLost LeaderElected"},
		{"a member is starting", demo(2, led(0), wasLed), world(member(0, leads), member(1, starting)), ""},
		{"shrinks", demo(1, led(0), wasLed), world(member(0, leads), member(1)), "MemberRemoved"},
		{"shrinks to nothing", demo(0, led(0), wasLed), world(), ""},
		{"its data goes", demo(1, deleting), world(), "DataRemoved"},
		{"is let go", demo(1, deleting, finalizers("orphan", v1alpha1.ClusterFinalizer)), world(member(0, leads)), "Orphaned"},
	} {
		t.Run(tc.when, func(t *testing.T) {
			a := op.Decide(tc.it, tc.world)
			next := op.Status(tc.it, tc.world, a, "")
			if got := reasons(op, tc.it, next, a); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			// What the change of status told isn't told again, and without an action nothing else is.
			if got := reasons(op, next, next, Action{}); got != "" {
				t.Errorf("told again: %q", got)
			}
		})
	}
}

func wasLed(cl *v1alpha1.Cluster) { cl.Status.Leader = "demo-0" }

func reasons(op *Operator, old, cl *v1alpha1.Cluster, a Action) string {
	var out []string
	for _, e := range op.Events(old, cl, a) {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " ")
}
