package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"

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
	user     user.Info
}

// NewLocal makes a writer for an operator. The user is system:operatord:NAME, the field manager NAME.
// Types that scheme knows are written as such; others must be unstructured.
func NewLocal[O resource.Object, K ~struct{ Namespace, Name string }](verbs *Verbs, scheme *runtime.Scheme, operator string) *Local[O, K] {
	return &Local[O, K]{
		verbs:    verbs,
		scheme:   scheme,
		operator: operator,
		user: &user.DefaultInfo{
			Name:   "system:operatord:" + operator,
			Groups: []string{"system:operatord", user.AllAuthenticated},
		},
	}
}

// Create makes obj, or does what creating it at the subresource whose body it is does: a Binding binds the
// Pod of its name.
func (l *Local[O, K]) Create(ctx context.Context, obj O) error {
	a, err := l.creating(obj)
	if err != nil {
		return err
	}
	body, err := l.body(obj)
	if err != nil {
		return err
	}
	res, err := l.verbs.Create(ctx, a, body, metav1.CreateOptions{FieldManager: l.operator, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return err
	}
	return fill(obj, a.Version, res)
}

// Update replaces obj or one of its subresources.
func (l *Local[O, K]) Update(ctx context.Context, obj O, subresource ...string) error {
	sub, err := one(subresource)
	if err != nil {
		return err
	}
	a, err := l.of(obj, sub)
	if err != nil {
		return err
	}
	body, err := l.body(obj)
	if err != nil {
		return err
	}
	res, err := l.verbs.Update(ctx, a, body, metav1.UpdateOptions{FieldManager: l.operator, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return err
	}
	return fill(obj, a.Version, res)
}

// Patch changes an object by its key.
func (l *Local[O, K]) Patch(ctx context.Context, gk schema.GroupKind, key K, pt types.PatchType, data []byte, subresource string) error {
	a, err := l.at(gk, key)
	if err != nil {
		return err
	}
	a.Subresource = subresource
	opts := metav1.PatchOptions{FieldManager: l.operator}
	if pt == types.ApplyPatchType {
		force := true
		opts.Force = &force
	}
	_, err = l.verbs.Patch(ctx, a, pt, data, opts)
	return err
}

// Apply is server-side apply, with force. What a typed object can't leave out (its status, an empty
// creationTimestamp) isn't applied.
func (l *Local[O, K]) Apply(ctx context.Context, obj O) error {
	a, err := l.of(obj, "")
	if err != nil {
		return err
	}
	applied, err := l.applied(obj)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(applied)
	if err != nil {
		return fmt.Errorf("rest: encode %s %s/%s: %w", a.Version.GVK, a.Namespace, a.Name, err)
	}
	force := true
	res, err := l.verbs.Patch(ctx, a, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: l.operator, Force: &force})
	if err != nil {
		return err
	}
	return fill(obj, a.Version, res)
}

// Delete deletes an object by its key.
func (l *Local[O, K]) Delete(ctx context.Context, gk schema.GroupKind, key K, opts metav1.DeleteOptions) error {
	a, err := l.at(gk, key)
	if err != nil {
		return err
	}
	_, err = l.verbs.Delete(ctx, a, &opts)
	return err
}

// of is what a request about obj is about.
func (l *Local[O, K]) of(obj O, subresource string) (Attributes, error) {
	gvk, err := l.gvk(obj)
	if err != nil {
		return Attributes{}, err
	}
	kind, ok := l.verbs.cfg.Registry.ByKind(gvk.GroupKind())
	if !ok {
		return Attributes{}, notServed(gvk.GroupKind())
	}
	version := kind.Version(gvk.Version)
	if version == nil {
		return Attributes{}, notServed(gvk.GroupKind())
	}
	return Attributes{
		User: l.user, Kind: kind, Version: version, Subresource: subresource,
		Namespace: obj.GetNamespace(), Name: obj.GetName(),
	}, nil
}

// creating is what a create of obj is about.
func (l *Local[O, K]) creating(obj O) (Attributes, error) {
	gvk, err := l.gvk(obj)
	if err != nil {
		return Attributes{}, err
	}
	if _, ok := l.verbs.cfg.Registry.ByKind(gvk.GroupKind()); !ok {
		for _, kind := range l.verbs.cfg.Registry.Kinds() {
			for name, sub := range kind.Subresources {
				if sub.Body == gvk && sub.Project != nil && sub.Project.Creates() {
					return Attributes{
						User: l.user, Kind: kind, Version: kind.Versions[0], Subresource: name,
						Namespace: obj.GetNamespace(), Name: obj.GetName(),
					}, nil
				}
			}
		}
	}
	a, err := l.of(obj, "")
	a.Name = ""
	return a, err
}

// at is what a request about a key is about, in the kind's preferred version.
func (l *Local[O, K]) at(gk schema.GroupKind, key K) (Attributes, error) {
	kind, ok := l.verbs.cfg.Registry.ByKind(gk)
	if !ok {
		return Attributes{}, notServed(gk)
	}
	k := struct{ Namespace, Name string }(key)
	return Attributes{User: l.user, Kind: kind, Version: kind.Versions[0], Namespace: k.Namespace, Name: k.Name}, nil
}

func notServed(gk schema.GroupKind) error {
	return apierrors.NewGenericServerResponse(404, "", schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, "", "the kind is not served", 0, true)
}

func (l *Local[O, K]) gvk(obj O) (schema.GroupVersionKind, error) {
	if u, ok := any(obj).(*unstructured.Unstructured); ok {
		return u.GroupVersionKind(), nil
	}
	gvks, _, err := l.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("rest: %T is not in the scheme: %w", obj, err)
	}
	return gvks[0], nil
}

// body encodes obj, with its apiVersion and kind.
func (l *Local[O, K]) body(obj O) (Body, error) {
	gvk, err := l.gvk(obj)
	if err != nil {
		return Body{}, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	data, err := json.Marshal(obj)
	if err != nil {
		return Body{}, fmt.Errorf("rest: encode %s %s/%s: %w", gvk, obj.GetNamespace(), obj.GetName(), err)
	}
	return Body{Data: data, MediaType: runtime.ContentTypeJSON}, nil
}

// applied is obj as an apply patch.
func (l *Local[O, K]) applied(obj O) (map[string]any, error) {
	body, err := l.body(obj)
	if err != nil {
		return nil, err
	}
	applied := map[string]any{}
	if err := utiljson.Unmarshal(body.Data, &applied); err != nil { // which keeps integers
		return nil, err
	}
	delete(applied, "status")
	if metadata, ok := applied["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "managedFields", "generation", "resourceVersion", "uid"} {
			delete(metadata, field)
		}
	}
	return applied, nil
}

// fill makes obj the answer.
func fill(obj resource.Object, v *resource.Version, res *Result) error {
	if res.Object == nil {
		return nil // a projection's body: the object's own state isn't in it
	}
	data, err := res.Object.JSON(v)
	if err != nil {
		return err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = nil
		return u.UnmarshalJSON(data)
	}
	value := reflect.ValueOf(obj).Elem()
	value.SetZero()
	if err := json.Unmarshal(data, obj); err != nil {
		return fmt.Errorf("rest: decode the answer into %T: %w", obj, err)
	}
	return nil
}

func one(subresource []string) (string, error) {
	switch len(subresource) {
	case 0:
		return "", nil
	case 1:
		return subresource[0], nil
	}
	return "", fmt.Errorf("rest: an update has one subresource, not %d", len(subresource))
}
