package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

func (b *builder) namespace() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv}
	return b.kind(definition{
		gvk:        gv.WithKind("Namespace"),
		object:     &corev1.Namespace{},
		plural:     "namespaces",
		singular:   "namespace",
		shortNames: []string{"ns"},
		verbs:      []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		strategy: &namespaces{own[*core.Namespace]{
			base: common,
			prepareCreate: func(ns *core.Namespace) {
				ns.Status = core.NamespaceStatus{Phase: core.NamespaceActive}
				if !slices.Contains(ns.Spec.Finalizers, core.FinalizerKubernetes) {
					ns.Spec.Finalizers = append(ns.Spec.Finalizers, core.FinalizerKubernetes)
				}
			},
			prepareUpdate: func(ns, old *core.Namespace) {
				ns.Spec.Finalizers = old.Spec.Finalizers
				ns.Status = old.Status
			},
			validate: validation.ValidateNamespace,
			validateUpdate: func(ns, old *core.Namespace) field.ErrorList {
				return append(validation.ValidateNamespace(ns), validation.ValidateNamespaceUpdate(ns, old)...)
			},
			canonicalize: nameLabel,
		}},
		subresources: map[string]*resource.Subresource{
			"status": {
				Verbs: []string{"get", "patch", "update"},
				Strategy: &own[*core.Namespace]{
					base:           common.of("status"),
					prepareUpdate:  func(ns, old *core.Namespace) { ns.Spec = old.Spec },
					validateUpdate: validation.ValidateNamespaceStatusUpdate,
					canonicalize:   nameLabel,
				},
			},
			"finalize": {
				Verbs: []string{"update"},
				Strategy: &own[*core.Namespace]{
					base:           common.of("finalize"),
					prepareUpdate:  func(ns, old *core.Namespace) { ns.Status = old.Status },
					validateUpdate: validation.ValidateNamespaceFinalizeUpdate,
					canonicalize:   nameLabel,
				},
			},
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":         resets(gv, at("status")),
			"status":   resets(gv, at("spec")),
			"finalize": resets(gv, at("status")),
		},
		fields: []string{"name", "status.phase"},
		values: selectable(func(ns *namespaceFields) fields.Set {
			return fields.Set{"name": ns.Metadata.Name, "status.phase": ns.Status.Phase}
		}),
		columns: newColumns(func(ns *corev1.Namespace) []any {
			return []any{ns.Name, string(ns.Status.Phase), age(ns.CreationTimestamp)}
		},
			nameColumn(),
			column("Status", "string", "The status of the namespace"),
			ageColumn(),
		),
		returnDeleted: true,
	})
}

// namespaceFields are what selectors look at.
type namespaceFields struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// nameLabel makes the label with the namespace's name true, for names that were generated too.
func nameLabel(ns *core.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// namespaces go in two steps: marked as Terminating, then emptied and removed.
type namespaces struct{ own[*core.Namespace] }

var (
	_ resource.DeletionMarker = (*namespaces)(nil)
	_ resource.DeletionHolder = (*namespaces)(nil)
)

func (*namespaces) MarkDeleted(obj resource.Object, opts *metav1.DeleteOptions, now metav1.Time) {
	ns := obj.(*core.Namespace)
	ns.DeletionTimestamp = &now
	ns.Status.Phase = core.NamespaceTerminating
	orphan, foreground := propagation(opts, ns.Finalizers)
	set := func(finalizer string, want bool) {
		switch i := slices.Index(ns.Finalizers, finalizer); {
		case want && i < 0:
			ns.Finalizers = append(ns.Finalizers, finalizer)
		case !want && i >= 0:
			ns.Finalizers = slices.Delete(slices.Clone(ns.Finalizers), i, i+1)
		}
	}
	set(metav1.FinalizerOrphanDependents, orphan)
	set(metav1.FinalizerDeleteDependents, foreground)
}

func (*namespaces) HoldsDeletion(obj resource.Object) bool {
	return len(obj.(*core.Namespace).Spec.Finalizers) > 0
}

// propagation tells which of the garbage collector's finalizers a deletion asks for.
func propagation(opts *metav1.DeleteOptions, finalizers []string) (orphan, foreground bool) {
	switch {
	case opts != nil && opts.OrphanDependents != nil: //nolint:staticcheck // older clients send it
		return *opts.OrphanDependents, !*opts.OrphanDependents
	case opts != nil && opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy == metav1.DeletePropagationOrphan, *opts.PropagationPolicy == metav1.DeletePropagationForeground
	}
	return slices.Contains(finalizers, metav1.FinalizerOrphanDependents), slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
}
