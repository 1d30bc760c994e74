package pod

import (
	"fmt"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// roles has the files of a Cluster's members written so that no two say leader at a time, whoever moves the label, and
// in whatever order the workers see it: a file begins to say so only when no other member that lives has the label, and
// when those that had it have lost it in their files.
type roles struct {
	mu sync.Mutex // one file is written at a time, from the newest view
}

// writeLabels makes the file of a Pod's labels true.
func (op *Operator) writeLabels(pod *corev1.Pod) error {
	if pod.Labels[v1alpha1.ClusterLabel] == "" {
		return op.labels.write(pod)
	}
	op.roles.mu.Lock()
	defer op.roles.mu.Unlock()
	// This worker may be late: what another has written meanwhile must not be undone.
	if newest, err := op.Reader.Get(podKind, controller.Key{Namespace: pod.Namespace, Name: pod.Name}); err == nil {
		if newest, ok := newest.(*corev1.Pod); ok && newest.UID == pod.UID {
			pod = newest
		}
	}
	if !leads(pod) || op.labels.sayLeader(pod) {
		return op.labels.write(pod)
	}
	for other := range op.fellows(op.Reader, pod) {
		switch {
		case !lives(other):
		case leads(other): // it is woken when that has changed
			pod = pod.DeepCopy()
			delete(pod.Labels, v1alpha1.RoleLabel)
			return op.labels.write(pod)
		case op.labels.sayLeader(other):
			if err := op.labels.write(other); err != nil {
				return fmt.Errorf("take the lead from %s: %w", other.Name, err)
			}
		}
	}
	return op.labels.write(pod)
}

// leadersBeside are the members whose file may wait for a Pod to lose the lead.
func (op *Operator) leadersBeside(r controller.Reader, obj controller.Object) []controller.Key {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !leads(pod) || pod.Labels[v1alpha1.ClusterLabel] == "" {
		return nil
	}
	var keys []controller.Key
	for other := range op.fellows(r, pod) {
		if leads(other) {
			keys = append(keys, controller.Key{Namespace: other.Namespace, Name: other.Name})
		}
	}
	return keys
}

// fellows are the other Pods of a Pod's Cluster.
func (op *Operator) fellows(r controller.Reader, pod *corev1.Pod) func(func(*corev1.Pod) bool) {
	return func(yield func(*corev1.Pod) bool) {
		of := labels.SelectorFromSet(labels.Set{v1alpha1.ClusterLabel: pod.Labels[v1alpha1.ClusterLabel]})
		for obj := range r.List(podKind, controller.Query{Namespace: pod.Namespace, Selector: of}) {
			if other, ok := obj.(*corev1.Pod); ok && other.UID != pod.UID && !yield(other) {
				return
			}
		}
	}
}

func leads(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.RoleLabel] == v1alpha1.RoleLeader }

// lives tells whether a Pod's processes may still read their file.
func lives(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// sayLeader tells whether the file of a Pod's labels says that it leads.
func (l labelFiles) sayLeader(pod *corev1.Pod) bool {
	text, err := os.ReadFile(l.path(pod.UID))
	line := fmt.Sprintf("%s=%q\n", v1alpha1.RoleLabel, v1alpha1.RoleLeader)
	return err == nil && (strings.HasPrefix(string(text), line) || strings.Contains(string(text), "\n"+line))
}
