package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// Observation is all of the world that a decision needs.
type Observation struct {
	Now       time.Time
	Restored  bool   // there was something to restore, and the proof exists that it was
	Restoring bool   // a restore is being copied
	Looking   string // it isn't known yet whether the backup can be had
	Missing   string // why the backup can't be had; empty when it can, or isn't needed
	Failed    bool   // Missing is about our side (no room), not about the backup
	Backup    *v1alpha1.Backup
	Trouble   trouble  // how the last try of an action failed; only told, nothing is decided by it
	Waits     string   // what an action that goes on outside the workers waits for; only told
	Members   []Member // every Pod with a member's name, strangers too, by ordinal
}

// Member is a Pod with a member's name.
type Member struct {
	Ordinal int
	Pod     *corev1.Pod // shared: copy before changing

	Ours     bool      // controlled by this very Cluster, not by an earlier one of its name
	Living   bool      // its processes aren't known to be gone; so a Pod without a phase lives
	Ready    bool      // living, and its Ready condition is True
	Since    time.Time // not Ready since then
	Leaving  bool      // being deleted
	Labelled bool      // has the leader's label
	Outdated bool      // runs an older template than the present one
	Started  time.Time
	Died     time.Time // zero while living
}

// Name is the Pod's.
func (m *Member) Name() string { return m.Pod.Name }

// Observe reads the world. An error of the disk is an error, not an absence.
func (op *Operator) Observe(_ context.Context, r controller.Reader, cl *v1alpha1.Cluster) (Observation, error) {
	o := Observation{Now: op.now(), Trouble: op.failed.of(keyOf(cl)), Waits: op.jobs.waits(op.home(cl.UID))}
	for obj := range r.List(podKind, controller.Query{Namespace: cl.Namespace, Prefix: cl.Name + "-"}) {
		if n, ok := ordinalOf(cl.Name, obj.GetName()); ok {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return o, fmt.Errorf("the view of Pods holds a %T", obj)
			}
			o.Members = append(o.Members, observeMember(cl, n, pod))
		}
	}
	byOrdinal(o.Members)
	op.observeTemplate(cl, &o)
	if cl.Spec.RestoreFrom == "" {
		return o, nil
	}
	proof := op.restored(cl.UID)
	if cl.Spec.Paused || cl.DeletionTimestamp != nil {
		op.jobs.settle(proof) // nobody is going to act
	}
	// First, because what ends between the two has left its proof. A restore that has ended is still its action's
	// until Act has said so, so that it is logged and counted.
	o.Restoring = op.jobs.running(proof)
	switch _, err := op.disk.Lstat(proof); {
	case err == nil && !o.Restoring:
		o.Restored = true
		return o, nil
	case err == nil:
		return o, nil
	case !errors.Is(err, fs.ErrNotExist):
		return o, fmt.Errorf("look for what was restored: %w", err)
	}
	if o.Restoring || cl.DeletionTimestamp != nil {
		return o, nil // whatever becomes of the backup meanwhile
	}
	return o, op.observeBackup(r, cl, &o)
}

func (op *Operator) observeBackup(r controller.Reader, cl *v1alpha1.Cluster, o *Observation) error {
	name := cl.Spec.RestoreFrom
	obj, err := r.Get(backupKind, controller.Key{Namespace: cl.Namespace, Name: name})
	switch {
	case apierrors.IsNotFound(err):
		o.Missing = fmt.Sprintf("Backup %q doesn't exist", name)
		return nil
	case err != nil:
		return fmt.Errorf("get Backup %q: %w", name, err)
	}
	backup, ok := obj.(*v1alpha1.Backup)
	if !ok {
		return fmt.Errorf("the view of Backups holds a %T", obj)
	}
	o.Backup = backup
	if at, err := op.jobs.failure(op.restored(cl.UID)); err != nil && o.Now.Sub(at) < backupAgain && !at.After(o.Now) {
		var source *sourceError
		o.Failed = !errors.As(err, &source)
		o.Missing = copyFailed(name) + advised(err)
		return nil
	}
	path := backup.Spec.Path
	if path == "" {
		return nil
	}
	seen, waits, hangs, err := op.looks.at(keyOf(cl), path)
	if waits != "" && !hangs {
		o.Looking = fmt.Sprintf("Backup %q: %s", name, waits)
		return nil
	}
	if hangs {
		err = &sourceError{errors.New(waits)}
	}
	if err == nil {
		err = seen.apart(path, op.home(cl.UID))
	}
	var source *sourceError
	switch {
	case errors.As(err, &source):
		o.Missing = fmt.Sprintf("Backup %q can't be read: %v", name, err)
	case err != nil:
		return fmt.Errorf("compare Backup %q with the Clusters' own directory: %w", name, err)
	}
	return nil
}

// copyFailed begins the message about a backup that was there, and whose copy failed.
func copyFailed(backup string) string { return fmt.Sprintf("Backup %q can't be restored: ", backup) }

func observeMember(cl *v1alpha1.Cluster, ordinal int, pod *corev1.Pod) Member {
	m := Member{
		Ordinal:  ordinal,
		Pod:      pod,
		Ours:     metav1.IsControlledBy(pod, cl),
		Living:   pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded,
		Leaving:  pod.DeletionTimestamp != nil,
		Labelled: pod.Labels[v1alpha1.RoleLabel] == v1alpha1.RoleLeader,
		Since:    pod.CreationTimestamp.Time,
		Started:  pod.CreationTimestamp.Time,
	}
	if pod.Status.StartTime != nil {
		m.Started = pod.Status.StartTime.Time
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			m.Ready = m.Living
		case c.Type == corev1.PodReady && !c.LastTransitionTime.IsZero():
			m.Since = c.LastTransitionTime.Time
		}
	}
	if !m.Living {
		m.Died = died(pod)
	}
	return m
}

// died is when the last process of a dead Pod ended. A Pod that never ran one (refused, say) died when its
// conditions last moved.
func died(pod *corev1.Pod) time.Time {
	var at time.Time
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	if !at.IsZero() {
		return at
	}
	at = pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// ours are the members of this Cluster.
func (o *Observation) ours() []*Member {
	var out []*Member
	for i := range o.Members {
		if o.Members[i].Ours {
			out = append(out, &o.Members[i])
		}
	}
	return out
}

// first is the first, by ordinal, for which ok holds; nil if there is none.
func first(ms []*Member, ok func(*Member) bool) *Member {
	for _, m := range ms {
		if ok(m) {
			return m
		}
	}
	return nil
}

// leaders are the living Pods that have the label: normally one or none.
func leaders(ms []*Member) []*Member {
	var out []*Member
	for _, m := range ms {
		if m.Living && m.Labelled {
			out = append(out, m)
		}
	}
	return out
}

// leader is the one of leaders that leads by right: the one elected last, else the first. Nil if there is none.
func leader(ms []*Member, elected v1alpha1.ClusterStatus) *Member {
	ls := leaders(ms)
	if m := first(ls, func(m *Member) bool { return m.Pod.UID == elected.LeaderUID }); m != nil {
		return m
	}
	return first(ls, func(*Member) bool { return true })
}
