package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// Act does a. Every write says which object it was decided for (by uid and resourceVersion), so that what has
// changed meanwhile is a conflict, and is decided again.
func (op *Operator) Act(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster, a Action) error {
	err := op.act(ctx, w, cl, a)
	op.failed.note(keyOf(cl), a, err)
	return err
}

func (op *Operator) act(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster, a Action) error {
	if cl.DeletionTimestamp != nil {
		op.jobs.cancel(func(j *job) bool { return j.key == keyOf(cl) && j.lane != op.lanes.removals })
	}
	switch {
	case a.kind == actRestore:
		return op.restore(ctx, w, cl, a)
	case a.kind == actCreate:
		return op.create(ctx, w, cl, a)
	case a.kind == actElect:
		return op.elect(ctx, w, a)
	case a.kind == actRemove && a.target == targetData:
		home := op.home(cl.UID)
		err := op.jobs.do(keyOf(cl), home, op.lanes.removals, func(func() error) error { return op.clear(home) })
		if err != nil {
			return fmt.Errorf("remove the members' data: %w", err)
		}
		return op.release(ctx, w, cl)
	case a.kind == actRemove && a.target == targetFinalizer:
		return op.release(ctx, w, cl)
	case a.kind == actRemove:
		return op.remove(ctx, w, a.pod.Pod)
	}
	return nil
}

// Gone ends what is copied for a Cluster that doesn't exist any more. Its data, if someone took the finalizer off by
// hand or asked to leave it, stays.
func (op *Operator) Gone(_ context.Context, key controller.Key) error {
	op.jobs.cancel(func(j *job) bool { return j.key == key && j.lane != op.lanes.removals })
	op.failed.forget(key)
	return nil
}

func (op *Operator) restore(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster, a Action) error {
	if err := op.claim(ctx, w, cl); err != nil {
		return err
	}
	home, target := op.home(cl.UID), op.restored(cl.UID)
	if a.backup == nil {
		return op.jobs.wait(target)
	}
	in := op.lanes.copies
	if a.backup.Spec.Path == "" {
		in = op.lanes.quick
	}
	return op.jobs.do(keyOf(cl), target, in, func(step func() error) error {
		return op.fill(step, target, filepath.Join(home, "restore.tmp"), func(tmp string) error {
			return op.unpack(step, a.backup, home, tmp)
		})
	})
}

func (op *Operator) create(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster, a Action) error {
	template, err := op.template(cl)
	if err != nil {
		return err
	}
	hash, err := op.templateHash(cl, template)
	if err != nil {
		return err
	}
	if err := op.claim(ctx, w, cl); err != nil {
		return err
	}
	data := filepath.Join(op.home(cl.UID), strconv.Itoa(a.ordinal))
	in := op.lanes.quick // an empty directory waits for no copy
	if cl.Spec.RestoreFrom != "" {
		in = op.lanes.copies
	}
	err = op.jobs.do(keyOf(cl), data, in, func(step func() error) error {
		c := copying{disk: op.disk, step: step, who: op.owner(template)}
		return op.fill(step, data, data+".tmp", func(tmp string) error {
			if cl.Spec.RestoreFrom != "" {
				if err := c.still(op.restored(cl.UID), tmp); err != nil {
					return err
				}
			}
			return c.give(tmp)
		})
	})
	if err != nil {
		return err
	}
	pod := op.pod(cl, template, a.target, data)
	op.goWithout(cl, pod)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.TemplateHashAnnotation, hash)
	// AlreadyExists is an error like any other: what stands there is observed and decided on.
	err = w.Create(ctx, pod)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return controller.Terminal(err) // the Cluster is about to be deleted with its namespace
	}
	return err
}

// elect takes the label from whoever else has it before it gives it: two never lead.
func (op *Operator) elect(ctx context.Context, w controller.Writer, a Action) error {
	for _, m := range a.others {
		pod := m.Pod.DeepCopy()
		delete(pod.Labels, v1alpha1.RoleLabel)
		if err := w.Update(ctx, pod); err != nil {
			return fmt.Errorf("take the lead from %s: %w", pod.Name, moved(err, pod))
		}
	}
	if a.pod.Labelled {
		return nil
	}
	pod := a.pod.Pod.DeepCopy()
	metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.RoleLabel, v1alpha1.RoleLeader)
	if err := w.Update(ctx, pod); err != nil {
		return fmt.Errorf("give the lead to %s: %w", pod.Name, moved(err, pod))
	}
	return nil
}

func (op *Operator) remove(ctx context.Context, w controller.Writer, pod *corev1.Pod) error {
	err := w.Delete(ctx, podKind, controller.Key{Namespace: pod.Namespace, Name: pod.Name}, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	return moved(err, pod)
}

// moved makes a conflict of a Pod that is gone: what was decided is overtaken, there is nothing to tell of, and
// the present state is looked at again.
func moved(err error, pod *corev1.Pod) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("it is gone"))
	}
	return err
}

// claim sets the finalizer, before anything is made that it must clear up.
func (op *Operator) claim(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster) error {
	if slices.Contains(cl.Finalizers, v1alpha1.ClusterFinalizer) {
		return nil
	}
	return setFinalizers(ctx, w, cl, append(slices.Clone(cl.Finalizers), v1alpha1.ClusterFinalizer))
}

// release takes the finalizer off.
func (op *Operator) release(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster) error {
	rest := slices.DeleteFunc(slices.Clone(cl.Finalizers), func(f string) bool { return f == v1alpha1.ClusterFinalizer })
	err := setFinalizers(ctx, w, cl, rest)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setFinalizers is a patch, because an update would write the whole object as this version of the types knows it.
func setFinalizers(ctx context.Context, w controller.Writer, cl *v1alpha1.Cluster, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             cl.UID,
		"resourceVersion": cl.ResourceVersion,
		"finalizers":      finalizers,
	}})
	if err != nil {
		return err
	}
	return w.Patch(ctx, clusterKind, keyOf(cl), types.MergePatchType, patch, "")
}

func keyOf(cl *v1alpha1.Cluster) controller.Key {
	return controller.Key{Namespace: cl.Namespace, Name: cl.Name}
}
