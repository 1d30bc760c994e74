package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
)

// finalizers are the object's after a deletion has said what becomes of its dependents: the garbage
// collector's own, foregroundDeletion and orphan, come and go; all others stay.
func (d *deletion) finalizers(obj resource.Object) (after []string, changed bool) {
	before := obj.GetFinalizers()
	orphan, foreground := d.propagation(before)
	after = make([]string, 0, len(before)+1)
	had := map[string]bool{}
	for _, f := range before {
		if f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents {
			had[f] = true
			continue
		}
		after = append(after, f)
	}
	if orphan {
		after = append(after, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		after = append(after, metav1.FinalizerDeleteDependents)
	}
	if had[metav1.FinalizerOrphanDependents] == orphan && had[metav1.FinalizerDeleteDependents] == foreground {
		return before, false
	}
	return after, true
}

// propagation decides by the options, else by the finalizers that are there, else by the kind's default.
func (d *deletion) propagation(finalizers []string) (orphan, foreground bool) {
	var policy genericrest.GarbageCollectionPolicy
	if s, ok := d.Kind.Strategy.(genericrest.GarbageCollectionDeleteStrategy); ok {
		policy = s.DefaultGarbageCollectionPolicy(d.ctx)
	}
	if policy == genericrest.Unsupported {
		return false, false
	}
	if o := d.opts.OrphanDependents; o != nil { //nolint:staticcheck // old clients
		return *o, false
	}
	if p := d.opts.PropagationPolicy; p != nil {
		switch *p {
		case metav1.DeletePropagationOrphan:
			return true, false
		case metav1.DeletePropagationForeground:
			return false, true
		case metav1.DeletePropagationBackground:
			return false, false
		}
	}
	for _, f := range finalizers {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return true, false
		case metav1.FinalizerDeleteDependents:
			return false, true
		}
	}
	return policy == genericrest.OrphanDependents, false
}
