package crd

import (
	"context"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

// scale projects custom resources onto autoscaling/v1 Scale.
type scale struct {
	def    *definition
	scales *resource.Typed
}

var _ resource.Projection = (*scale)(nil)

// unsetReplicas marks in Base that the object has no number of replicas.
const unsetReplicas = math.MinInt32

func (s *scale) Creates() bool { return false }

func (s *scale) Get(v *resource.Version, obj resource.Object) (resource.Object, error) {
	body, found, err := s.project(v, obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if !found {
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", s.paths(v).SpecReplicasPath))
	}
	return body, nil
}

func (s *scale) Base(v *resource.Version, obj resource.Object) (resource.Object, error) {
	body, found, err := s.project(v, obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if !found {
		body.Spec.Replicas = unsetReplicas
	}
	if body.ManagedFields, err = s.handler(v, obj).ToSubresource(); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return body, nil
}

func (s *scale) Decode(data []byte, opts resource.DecodeOptions) (resource.Object, []string, error) {
	return s.scales.DecodeScale(data, opts)
}

func (s *scale) Put(_ context.Context, v *resource.Version, obj, body resource.Object) (resource.Object, error) {
	to, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %T", body))
	}
	at := s.paths(v).SpecReplicasPath
	if to.Spec.Replicas == unsetReplicas {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", at))
	}
	u := obj.(*unstructured.Unstructured).DeepCopy()
	if err := unstructured.SetNestedField(u.Object, int64(to.Spec.Replicas), path(at)...); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if to.ResourceVersion != "" {
		u.SetResourceVersion(to.ResourceVersion)
	}
	managed, err := s.handler(v, obj).ToParent(to.ManagedFields)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	u.SetManagedFields(managed)
	return u, nil
}

func (s *scale) paths(v *resource.Version) *apiextensionsv1.CustomResourceSubresourceScale {
	return s.def.versions[v.Name].scale()
}

// project reads the scale out of an object; found tells whether it says how many replicas it wants.
func (s *scale) project(v *resource.Version, obj resource.Object) (body *autoscalingv1.Scale, found bool, err error) {
	u, at := obj.(*unstructured.Unstructured), s.paths(v)
	want, found, err := unstructured.NestedInt64(u.Object, path(at.SpecReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	have, _, err := unstructured.NestedInt64(u.Object, path(at.StatusReplicasPath)...)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if at.LabelSelectorPath != nil && *at.LabelSelectorPath != "" {
		if selector, _, err = unstructured.NestedString(u.Object, path(*at.LabelSelectorPath)...); err != nil {
			return nil, false, err
		}
	}
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              u.GetName(),
			Namespace:         u.GetNamespace(),
			UID:               u.GetUID(),
			ResourceVersion:   u.GetResourceVersion(),
			CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(want)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(have), Selector: selector},
	}, found, nil
}

// handler carries ownership of the number of replicas between the object and its scale.
func (s *scale) handler(v *resource.Version, obj resource.Object) *managedfields.ScaleHandler {
	mapping := managedfields.ResourcePathMappings{}
	for i := range s.def.crd.Spec.Versions {
		version := &s.def.crd.Spec.Versions[i]
		gv := schema.GroupVersion{Group: s.def.gk.Group, Version: version.Name}.String()
		mapping[gv] = nil
		if version.Subresources == nil || version.Subresources.Scale == nil {
			continue
		}
		for _, element := range path(version.Subresources.Scale.SpecReplicasPath) {
			mapping[gv] = append(mapping[gv], fieldpath.PathElement{FieldName: &element})
		}
	}
	return managedfields.NewScaleHandler(obj.GetManagedFields(), v.GVK.GroupVersion(), mapping)
}
