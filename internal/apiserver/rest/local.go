package rest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
)

// Local writes through the verbs from inside the process, as one operator's own user: trusted, not
// authorised, all else the same. After each call the object holds the answer. A conflict's error also has
// a method PresentRevision() string: the object's present resourceVersion.
//
// The type parameters are the caller's own names for an object and for a key, so that
// Local[controller.Object, controller.Key] is a controller.Writer although neither package imports the other.
type Local[O resource.Object, K ~struct{ Namespace, Name string }] struct {
	verbs    *Verbs
	scheme   *runtime.Scheme
	operator string
}

// NewLocal makes a writer for an operator. The user is system:operatord:NAME, the field manager NAME.
// Types that scheme knows are written as such; others must be unstructured.
func NewLocal[O resource.Object, K ~struct{ Namespace, Name string }](verbs *Verbs, scheme *runtime.Scheme, operator string) *Local[O, K] {
	return &Local[O, K]{verbs: verbs, scheme: scheme, operator: operator}
}

// Create makes obj.
func (l *Local[O, K]) Create(ctx context.Context, obj O) error { return nil }

// Update replaces obj or one of its subresources.
func (l *Local[O, K]) Update(ctx context.Context, obj O, subresource ...string) error { return nil }

// Patch changes an object by its key.
func (l *Local[O, K]) Patch(ctx context.Context, gk schema.GroupKind, key K, pt types.PatchType, data []byte, subresource string) error {
	return nil
}

// Apply is server-side apply, with force.
func (l *Local[O, K]) Apply(ctx context.Context, obj O) error { return nil }

// Delete deletes an object by its key.
func (l *Local[O, K]) Delete(ctx context.Context, gk schema.GroupKind, key K, opts metav1.DeleteOptions) error {
	return nil
}
