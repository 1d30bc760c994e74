package builtin

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

// scale projects a workload onto autoscaling/v1 Scale.
type scale[T resource.Object] struct {
	typed    *resource.Typed
	resource schema.GroupResource
	// fields points at what a workload wants, and tells what it has and which Pods are its own.
	fields func(T) (want *int32, have int32, selector *metav1.LabelSelector)
}

func (s *scale[T]) Creates() bool { return false }

func (s *scale[T]) Get(_ *resource.Version, obj resource.Object) (resource.Object, error) {
	return s.project(obj)
}

func (s *scale[T]) Base(v *resource.Version, obj resource.Object) (resource.Object, error) {
	body, err := s.project(obj)
	if err != nil {
		return nil, err
	}
	if body.ManagedFields, err = s.handler(v, obj).ToSubresource(); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return body, nil
}

func (s *scale[T]) Decode(data []byte, opts resource.DecodeOptions) (resource.Object, []string, error) {
	return s.typed.DecodeScale(data, opts)
}

func (s *scale[T]) Put(_ context.Context, v *resource.Version, obj, body resource.Object) (resource.Object, error) {
	to, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected input object type to be Scale, but %T", body))
	}
	errs := metavalidation.ValidateManagedFields(to.ManagedFields, field.NewPath("metadata", "managedFields"))
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(to.Spec.Replicas), field.NewPath("spec", "replicas"))...)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, obj.GetName(), errs)
	}
	if to.UID != "" && to.UID != obj.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: s.resource.Group, Resource: s.resource.Resource + "/scale"}, obj.GetName(),
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", to.UID, obj.GetUID()))
	}
	managed, err := s.handler(v, obj).ToParent(to.ManagedFields)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out := obj.DeepCopyObject().(T)
	want, _, _ := s.fields(out)
	*want = to.Spec.Replicas
	out.SetResourceVersion(to.ResourceVersion)
	out.SetManagedFields(managed)
	return out, nil
}

func (s *scale[T]) project(obj resource.Object) (*autoscalingv1.Scale, error) {
	want, have, labels := s.fields(obj.(T))
	selector, err := metav1.LabelSelectorAsSelector(labels)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: *want},
		Status: autoscalingv1.ScaleStatus{Replicas: have, Selector: selector.String()},
	}, nil
}

// handler carries ownership of the number of replicas between the object and its scale.
func (s *scale[T]) handler(v *resource.Version, obj resource.Object) *managedfields.ScaleHandler {
	gv := v.GVK.GroupVersion()
	return managedfields.NewScaleHandler(obj.GetManagedFields(), gv, managedfields.ResourcePathMappings{
		gv.String(): fieldpath.MakePathOrDie("spec", "replicas"),
	})
}

// scaleSubresource is the subresource around a projection.
func scaleSubresource(p resource.Projection) *resource.Subresource {
	return &resource.Subresource{
		Verbs:   []string{"get", "patch", "update"},
		Body:    autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		Project: p,
	}
}
