package crd

import (
	"context"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// validateType checks that kind and apiVersion are this version's.
func (r *rules) validateType(u *unstructured.Unstructured) (errs field.ErrorList) {
	if u.GetKind() != r.gvk.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+r.gvk.Kind))
	}
	if want := r.gvk.GroupVersion().String(); u.GetAPIVersion() != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+want))
	}
	return errs
}

func (r *rules) validateMeta(ctx context.Context, u *unstructured.Unstructured) field.ErrorList {
	meta, errs := metadata(u)
	if len(errs) > 0 {
		return errs
	}
	return validation.ValidateObjectMetaDeclaratively(ctx, operation.Create, meta, nil, r.def.namespaced, validation.NameIsDNSSubdomain,
		field.NewPath("metadata"), utilfeature.DefaultFeatureGate.Enabled(features.DeclarativeValidationBeta))
}

func (r *rules) validateMetaUpdate(ctx context.Context, u, old *unstructured.Unstructured) field.ErrorList {
	meta, errs := metadata(u)
	if len(errs) > 0 {
		return errs
	}
	oldMeta, errs := metadata(old)
	if len(errs) > 0 {
		return errs
	}
	return validation.ValidateObjectMetaDeclaratively(ctx, operation.Update, meta, oldMeta, r.def.namespaced, nil,
		field.NewPath("metadata"), utilfeature.DefaultFeatureGate.Enabled(features.DeclarativeValidationBeta))
}

func metadata(u *unstructured.Unstructured) (*metav1.ObjectMeta, field.ErrorList) {
	meta := &metav1.ObjectMeta{}
	raw := u.Object["metadata"]
	if raw == nil {
		return meta, nil
	}
	content, ok := raw.(map[string]any)
	if !ok {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, fmt.Sprintf("expected map[string]interface{}, got %T", raw))}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, meta); err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, err.Error())}
	}
	return meta, nil
}

func (r *rules) validateScaleSpec(u *unstructured.Unstructured) field.ErrorList {
	if r.scale() == nil {
		return nil
	}
	return validateReplicas(u, r.scale().SpecReplicasPath)
}

func (r *rules) validateScaleStatus(u *unstructured.Unstructured) field.ErrorList {
	s := r.scale()
	if s == nil {
		return nil
	}
	errs := validateReplicas(u, s.StatusReplicasPath)
	if s.LabelSelectorPath != nil {
		if selector, _, err := unstructured.NestedString(u.Object, path(*s.LabelSelectorPath)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*s.LabelSelectorPath), selector, err.Error()))
		}
	}
	return errs
}

// validateReplicas checks a number of replicas, which may be absent.
func validateReplicas(u *unstructured.Unstructured, at string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(u.Object, path(at)...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(at), n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(field.NewPath(at), n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(at), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}
