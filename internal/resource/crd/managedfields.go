package crd

import (
	"fmt"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// typeConverter knows the types of all versions, and Scale.
func (d *definition) typeConverter() (managedfields.TypeConverter, error) {
	models := make(map[string]*spec.Schema, len(definitions())+len(d.crd.Spec.Versions))
	for name, s := range definitions() {
		models[name] = s
	}
	for i := range d.crd.Spec.Versions {
		version := d.crd.Spec.Versions[i].Name
		models[SchemaName(d.gk.Group, version, d.gk.Kind)] = d.versions[version].openAPI()
	}
	types, err := managedfields.NewTypeConverter(models, d.crd.Spec.PreserveUnknownFields)
	if err != nil {
		return nil, fmt.Errorf("crd: field types of %s: %w", d.crd.Name, err)
	}
	return types, nil
}

// fieldManagers makes each subresource's field manager at its first use.
func (r *rules) fieldManagers() func(subresource string) (*managedfields.FieldManager, error) {
	once := func(subresource string) func() (*managedfields.FieldManager, error) {
		return sync.OnceValues(func() (*managedfields.FieldManager, error) {
			types, err := r.def.types()
			if err != nil {
				return nil, err
			}
			kind := r.gvk
			if subresource == "scale" {
				kind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
			}
			return managedfields.NewDefaultCRDFieldManager(types, converter{r.def}, defaulter{r.def}, creater{}, kind, r.gvk.GroupVersion(),
				subresource, fieldpath.NewExcludeFilterSetMap(r.resetFields(subresource)))
		})
	}
	object, status, scale := once(""), once("status"), once("scale")
	return func(subresource string) (*managedfields.FieldManager, error) {
		switch subresource {
		case "":
			return object()
		case "status":
			return status()
		case "scale":
			return scale()
		}
		return nil, fmt.Errorf("crd: %s has no subresource %q", r.gvk.Kind, subresource)
	}
}

// resetFields are what writes to the object or a subresource never change.
func (r *rules) resetFields(subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	switch subresource {
	case "":
		if r.hasStatus() {
			sets[fieldpath.APIVersion(r.gvk.GroupVersion().String())] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		}
	case "status":
		for _, other := range r.def.versions {
			if other.hasStatus() {
				sets[fieldpath.APIVersion(other.gvk.GroupVersion().String())] = fieldpath.NewSet(
					fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
			}
		}
	}
	return sets
}

// converter moves objects between versions for field managers: conversion None only names another version.
type converter struct{ def *definition }

var _ runtime.ObjectConvertor = converter{}

func (c converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	if from == autoscalingv1.SchemeGroupVersion.WithKind("Scale") {
		return typedScale(in)
	}
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, fmt.Errorf("%v is unstructured and is not suitable for converting to %q", from, target)
	}
	for _, gvk := range []schema.GroupVersionKind{to, from} {
		if !c.knows(gvk.GroupVersion()) {
			// Field managers let go what is owned in a version that is gone.
			return nil, runtime.NewNotRegisteredErrForKind(c.def.crd.Name, gvk)
		}
	}
	out := in.DeepCopyObject()
	out.GetObjectKind().SetGroupVersionKind(to.GroupVersion().WithKind(from.Kind))
	return out, nil
}

// typedScale is a Scale in its Go type, into which what an apply makes must be brought.
func typedScale(in runtime.Object) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in.DeepCopyObject(), nil
	}
	scale := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, scale); err != nil {
		return nil, fmt.Errorf("read a Scale: %w", err)
	}
	return scale, nil
}

func (c converter) Convert(in, out, context any) error {
	from, ok := in.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("input type %T in not valid for unstructured conversion to %T", in, out)
	}
	to, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("output type %T in not valid for unstructured conversion from %T", out, in)
	}
	converted, err := c.ConvertToVersion(from, to.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	to.Object = converted.(*unstructured.Unstructured).Object
	return nil
}

func (c converter) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

func (c converter) knows(gv schema.GroupVersion) bool {
	return gv.Group == c.def.gk.Group && c.def.versions[gv.Version] != nil
}

// defaulter fills in defaults for field managers.
type defaulter struct{ def *definition }

func (d defaulter) Default(in runtime.Object) {
	if u, ok := in.(*unstructured.Unstructured); ok {
		// A schema that can't be used has refused the request before.
		_ = d.def.fill(u)
	}
}
