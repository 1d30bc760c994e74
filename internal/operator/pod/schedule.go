package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/controller"
)

// schedule binds a Pod to this machine, the only one there is, or says why it doesn't.
func (op *Operator) schedule(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
		return nil
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return op.unscheduled(ctx, pod, corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates")
	}
	node := op.node()
	if why := unfit(ctx, pod, node); why != "" {
		// It may have been given room meanwhile.
		return errors.Join(op.settle(ctx, keyOf(pod), nil),
			op.unscheduled(ctx, pod, corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 node(s) "+why+"."))
	}
	insufficient, err := op.take(ctx, pod, node)
	if err != nil {
		return err
	}
	if len(insufficient) > 0 {
		return op.unscheduled(ctx, pod, corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 "+strings.Join(insufficient, ", 1 ")+".")
	}
	err = op.Writer.Create(ctx, &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: op.NodeName},
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // gone, another Pod, or bound already: its change is on the way here, and corrects the ledger
	case err != nil:
		return errors.Join(fmt.Errorf("bind: %w", err), op.settle(ctx, keyOf(pod), nil))
	}
	op.event(ctx, pod, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, op.NodeName), pod.ResourceVersion)
	return nil
}

// node is this machine's Node; before it is registered, as it is going to be.
func (op *Operator) node() *corev1.Node {
	if found, err := op.Reader.Get(nodeKind, controller.Key{Name: op.NodeName}); err == nil {
		if n, ok := found.(*corev1.Node); ok {
			return n
		}
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: op.NodeName, Labels: nodeLabels(op.NodeName)}}
	n.Status = op.nodeStatus(n)
	return n
}

// take gives a Pod its room on the Node, or says what there isn't enough of.
func (op *Operator) take(ctx context.Context, pod *corev1.Pod, node *corev1.Node) (insufficient []string, err error) {
	if err := op.look(ctx, op.ledger.see(node.Status.Allocatable)); err != nil {
		return nil, err
	}
	return op.ledger.take(pod), nil
}

// settle brings up to date what a Pod takes of the machine, and has those looked at for which there is room now. pod
// is nil if it takes nothing (any more).
func (op *Operator) settle(ctx context.Context, key controller.Key, pod *corev1.Pod) error {
	return op.look(ctx, op.ledger.settle(key, pod))
}

// look has Pods looked at.
func (op *Operator) look(ctx context.Context, keys []controller.Key) error {
	for _, key := range keys {
		if !send(ctx, op.hints, key) {
			return ctx.Err()
		}
	}
	return nil
}

// unfit says why a node can't take a Pod, in the scheduler's words; empty: it can.
func unfit(ctx context.Context, pod *corev1.Pod, node *corev1.Node) string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return "didn't match Pod's node affinity/selector"
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(taints[:len(taints):len(taints)], corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for i := range taints {
		t := &taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		tolerated := false
		for j := range pod.Spec.Tolerations {
			tolerated = tolerated || pod.Spec.Tolerations[j].ToleratesTaint(klog.FromContext(ctx), t, false)
		}
		if !tolerated {
			return fmt.Sprintf("had untolerated taint(s) {%s: %s}", t.Key, t.Value)
		}
	}
	return ""
}

// unscheduled says in the Pod's status why it isn't bound.
func (op *Operator) unscheduled(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	next := pod.DeepCopy()
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: pod.Generation, LastTransitionTime: seconds(op.Now())}
	set := false
	for i := range next.Status.Conditions {
		if next.Status.Conditions[i].Type == c.Type {
			if next.Status.Conditions[i].Status == c.Status {
				c.LastTransitionTime = next.Status.Conditions[i].LastTransitionTime
			}
			next.Status.Conditions[i] = c
			set = true
		}
	}
	if !set {
		next.Status.Conditions = append(next.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(pod.Status, next.Status) {
		return nil
	}
	if err := op.Writer.Update(ctx, next, "status"); err != nil {
		return err
	}
	if reason == corev1.PodReasonUnschedulable {
		op.event(ctx, pod, corev1.EventTypeWarning, "FailedScheduling", message, next.ResourceVersion)
	}
	return nil
}

// letGo takes away a Pod that is being deleted and is bound to a Node that doesn't exist: nobody else would ever
// say that it has ended.
func (op *Operator) letGo(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nil // it is wanted, or waits for others' finalizers only
	}
	if _, err := op.Reader.Get(nodeKind, controller.Key{Name: pod.Spec.NodeName}); !apierrors.IsNotFound(err) {
		return err
	}
	err := op.Writer.Delete(ctx, podKind, controller.Key{Namespace: pod.Namespace, Name: pod.Name}, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another Pod: its change is on the way here
	}
	return err
}

// podsOfNode are the Pods that a change of a Node may let be bound, or, when it is gone, let go.
func podsOfNode(r controller.Reader, node controller.Object) []controller.Key {
	var keys []controller.Key
	for obj := range r.List(podKind, controller.Query{}) {
		pod, ok := obj.(*corev1.Pod)
		if ok && (pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil && pod.Spec.NodeName == node.GetName()) {
			keys = append(keys, keyOf(pod))
		}
	}
	return keys
}
