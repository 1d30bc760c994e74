package rest

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// immortal tells whether a namespace may never be deleted.
func immortal(name string) bool {
	switch name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return true
	}
	return false
}

// look takes the view that a write is decided on. What the write depends on beside its own key becomes a
// guard: a custom kind's CRD must be the one by which the object is validated.
func (r *request) look() (storage.View, error) {
	view, err := r.cfg.Cache.View(r.ctx, "")
	if err != nil {
		return nil, err
	}
	r.hold, r.crd = nil, nil
	if !r.Kind.Custom {
		return view, nil
	}
	kind, ok := r.cfg.Registry.ByKind(crdKind)
	if !ok {
		return view, nil
	}
	key := resource.Key(kind, "", r.Kind.Plural+"."+r.Kind.Group)
	guard := storage.Guard{Key: key}
	if kv, ok := view.Get(key); ok {
		guard.Rev = kv.Rev
		r.crd = r.cfg.Cache.Object(kind, kv)
	}
	// The registry is never behind a view: if it still serves this Kind, the Kind is the view's.
	if r.gone() {
		return nil, errKindChanged
	}
	r.hold = []storage.Guard{guard}
	return view, nil
}

// mayCreate checks what a new object with a name depends on: its namespace is there and not being emptied,
// its CRD isn't being deleted. What was looked at becomes a guard of the write, so that a namespace is
// empty when the last look into it found nothing.
func (r *request) mayCreate(name, generateName string) error {
	if name == "" {
		if name = generateName; name == "" {
			name = "Unknown"
		}
	}
	view, err := r.look()
	if err != nil {
		return err
	}
	if r.Kind.Terminating || r.crd != nil && r.crd.Meta().DeletionTimestamp != nil {
		return apierrors.NewForbidden(r.resource(), name, errors.New("create not allowed while custom resource definition is terminating"))
	}
	if !r.Kind.Namespaced {
		return nil
	}
	if r.Namespace == "" {
		return apierrors.NewBadRequest("Namespace parameter required.")
	}
	kind, ok := r.cfg.Registry.ByKind(namespaceKind)
	if !ok {
		return nil
	}
	ns, ok := r.cfg.Cache.Get(view, kind, "", r.Namespace)
	if !ok {
		return apierrors.NewNotFound(kind.GroupResource(), r.Namespace)
	}
	if ns.Meta().DeletionTimestamp != nil {
		err := apierrors.NewForbidden(r.resource(), name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", r.Namespace),
			Field:   "metadata.namespace",
		})
		return err
	}
	r.hold = append(r.hold, storage.Guard{Key: ns.KV().Key, Rev: ns.KV().Rev})
	return nil
}

// errKindChanged: the kind is no longer served as the request knows it.
var errKindChanged = errors.New("rest: the kind has changed")

// gone tells whether the kind is no longer served as this request knows it.
func (r *request) gone() bool {
	select {
	case <-r.Kind.Done():
		return true
	default:
		return false
	}
}

// served runs a write by the rules of the kind as it is served; when a CRD changes meanwhile, again by the
// new ones.
func (v *Verbs) served(a Attributes, do func(Attributes) (*Result, error)) (*Result, error) {
	for {
		res, err := do(a)
		if !errors.Is(err, errKindChanged) {
			return res, err
		}
		kind, version, ok := v.cfg.Registry.Lookup(a.Kind.Group, a.Version.Name, a.Kind.Plural)
		if !ok {
			return nil, notServed(a.Kind.GroupKind)
		}
		a.Kind, a.Version = kind, version
	}
}
