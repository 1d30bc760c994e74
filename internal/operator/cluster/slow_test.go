package cluster

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
)

// slow is a world in which two members are to be made from a backup, and every copied file waits for its turn.
func slow(t *testing.T) *model {
	w := newModel(t.Fatalf, slowly)
	t.Cleanup(w.end)
	w.put(&v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: "cluster-uid", Generation: 1},
		Spec:       v1alpha1.ClusterSpec{Members: 2, RestoreFrom: "b"},
	})
	makeBackup(w)
	return w
}

// again reconciles n times, the operator seeing the present.
func (w *model) again(n int) {
	for range n {
		w.look()
		w.reconcile()
	}
}

// edit is a person's.
func (w *model) edit(change func(*v1alpha1.Cluster)) {
	cl := w.cluster.DeepCopy()
	change(cl)
	w.put(cl)
}

// turn lets one file be copied.
func (w *model) turn() {
	w.disk.turns <- struct{}{}
	synctest.Wait()
}

// TestASlowActionIsOneAction: it is counted and told when it is done, once, and so are those behind it.
func TestASlowActionIsOneAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t)
		for range 3 * len(backupFiles) { // of the backup, and of two members' data
			w.again(3)
			w.turn()
		}
		for range 8 {
			for _, name := range slices.Sorted(maps.Keys(w.pods)) {
				kubelet(w, w.pods[name])
			}
			w.again(1)
		}
		if want := map[string]int{"restore": 1, "create": 2, "elect": 1}; !maps.Equal(w.acted, want) {
			t.Errorf("counted %v, want %v\n%s", w.acted, want, w.describe())
		}
		if want := map[string]int{"Restored": 1, "MemberCreated": 2, "LeaderElected": 1}; !maps.Equal(w.events, want) {
			t.Errorf("told %v, want %v", w.events, want)
		}
		if len(w.op.jobs.byDir) > 0 {
			t.Errorf("%d copies are remembered", len(w.op.jobs.byDir))
		}
	})
}

// TestPausedWhileItRestores: the copy goes on, and the status says when it is done, although nobody acts.
func TestPausedWhileItRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t)
		w.again(2) // looks at the backup, restores
		w.edit(func(cl *v1alpha1.Cluster) { cl.Spec.Paused = true; cl.Generation++ })
		w.again(1)
		if s := w.cluster.Status; s.Phase != v1alpha1.PhaseRestoring || s.Restored {
			t.Errorf("while it is copied: %s, restored %t", s.Phase, s.Restored)
		}
		for range backupFiles {
			w.turn()
		}
		w.again(2)
		if s := w.cluster.Status; s.Phase != v1alpha1.PhaseCreating || !s.Restored || len(w.pods) > 0 {
			t.Errorf("after it: %s, restored %t, %d Pods", s.Phase, s.Restored, len(w.pods))
		}
		w.edit(func(cl *v1alpha1.Cluster) { cl.Spec.Paused = false; cl.Generation++ })
		w.again(2)
		if s := w.cluster.Status; s.Phase != v1alpha1.PhaseCreating || w.events["Restored"] != 1 || w.restores != 1 {
			t.Errorf("later: %s, told %d times, restored %d times", s.Phase, w.events["Restored"], w.restores)
		}
	})
}

// TestDeletedWhileItRestores: nobody waits for the copy, which hangs, and which makes nothing again when it goes on.
func TestDeletedWhileItRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t)
		w.again(2)
		w.edit(func(cl *v1alpha1.Cluster) { cl.DeletionTimestamp = &metav1.Time{Time: w.clock} })
		w.again(2)
		gone := func() bool { return w.cluster == nil && len(w.disk.tree("/data/clusters")) == 0 && w.restores == 0 }
		if !gone() {
			t.Errorf("it is still there:\n%s", w.describe())
		}
		if w.turn(); !gone() {
			t.Errorf("it is there again:\n%s", w.describe())
		}
	})
}

// TestASlowActionIsOneStep: a value of the annotation does all of it, and nothing else.
func TestASlowActionIsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slow(t)
		step := func(value string) {
			w.edit(func(cl *v1alpha1.Cluster) { cl.Annotations = map[string]string{v1alpha1.StepAnnotation: value} })
		}
		step("0")
		w.again(2)
		if len(w.acted) > 0 || w.restores > 0 || w.cluster.Status.Phase != v1alpha1.PhasePending {
			t.Errorf("the first value acts: %v, %s", w.acted, w.cluster.Status.Phase)
		}
		step("1")
		for range backupFiles {
			w.again(2)
			w.turn()
		}
		w.again(3)
		if want := map[string]int{"restore": 1}; !maps.Equal(w.acted, want) || !w.cluster.Status.Restored {
			t.Errorf("the second: %v, restored %t", w.acted, w.cluster.Status.Restored)
		}
		step("2")
		for range backupFiles {
			w.again(2)
			w.turn()
		}
		w.again(3)
		if want := map[string]int{"restore": 1, "create": 1}; !maps.Equal(w.acted, want) || len(w.pods) != 1 {
			t.Errorf("the third: %v, %d Pods", w.acted, len(w.pods))
		}
	})
}

// TestABackupThatCantBeHadIsToldOnce: it is looked at again every ten seconds, which shows only when it succeeds, also
// after a restart of the daemon.
func TestABackupThatCantBeHadIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		broken func(*model, bool)
		reason string
		phases []v1alpha1.Phase
	}{
		"there is none": {func(w *model, broken bool) {
			if makeBackup(w); broken {
				w.backup = nil
			}
		}, reasonBackupNotFound, []v1alpha1.Phase{"Degraded", "Restoring", "Creating", "Ready"}},
		"its directory isn't there": {func(w *model, broken bool) {
			if makeBackup(w); broken {
				w.backup.Spec.Path = "/elsewhere"
			}
		}, reasonBackupNotFound, []v1alpha1.Phase{"Pending", "Degraded", "Restoring", "Creating", "Ready"}},
		"it holds operatord's data": {func(w *model, broken bool) {
			if makeBackup(w); broken {
				w.backup.Spec.Path = "/"
			}
		}, reasonBackupNotFound, []v1alpha1.Phase{"Pending", "Degraded", "Restoring", "Creating", "Ready"}},
		"it holds a pipe": {func(w *model, broken bool) { w.disk.pipe("/backup", broken) },
			reasonBackupNotFound, []v1alpha1.Phase{"Pending", "Restoring", "Degraded", "Creating", "Ready"}},
		"there is no room": {func(w *model, broken bool) { w.disk.full = broken },
			reasonRestoreFailed, []v1alpha1.Phase{"Pending", "Restoring", "Degraded", "Creating", "Ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := slow(t)
				var phases []v1alpha1.Phase
				reconcile := func() {
					w.again(1)
					if p := w.cluster.Status.Phase; len(phases) == 0 || phases[len(phases)-1] != p {
						phases = append(phases, p)
					}
				}
				try := func() {
					for range 4 {
						reconcile()
						select {
						case w.disk.turns <- struct{}{}:
							synctest.Wait()
						default: // nothing is copied
						}
					}
					reconcile()
				}
				tc.broken(w, true)
				try()
				told := w.cluster.Status
				if p := backupProblem(&told); p != tc.reason || w.events[p] != 1 {
					t.Fatalf("%s, told %v:\n%s", p, w.events, w.describe())
				}
				w.writes = 0
				for n := range 4 {
					if n == 2 {
						w.boot()
					}
					w.clock = w.clock.Add(backupAgain)
					try()
				}
				if !equality.Semantic.DeepEqual(w.cluster.Status, told) || w.writes > 0 {
					t.Errorf("%d writes while nothing changes:\n%s", w.writes, w.describe())
				}
				if want := map[string]int{tc.reason: 1}; !maps.Equal(w.events, want) {
					t.Errorf("told %v, want %v", w.events, want)
				}

				tc.broken(w, false)
				w.clock = w.clock.Add(backupAgain)
				try()
				close(w.disk.turns)
				for range 10 {
					for _, name := range slices.Sorted(maps.Keys(w.pods)) {
						kubelet(w, w.pods[name])
					}
					reconcile()
				}
				if !slices.Equal(phases, tc.phases) {
					t.Errorf("phases %v, want %v", phases, tc.phases)
				}
				if want := map[string]int{tc.reason: 1, "Restored": 1, "MemberCreated": 2, "LeaderElected": 1}; !maps.Equal(w.events, want) {
					t.Errorf("told %v, want %v", w.events, want)
				}
			})
		})
	}
}
