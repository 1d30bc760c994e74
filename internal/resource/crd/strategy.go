package crd

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/storage/names"

	"operatord.io/operatord/internal/resource"
)

// strategy is how custom resources are made and changed. It serves all versions: a new object names its
// version itself, and an update is by the version in which the old object was read, which is the request's.
type strategy struct{ def *definition }

var _ resource.Strategy = (*strategy)(nil)

func (s *strategy) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return typer{}.ObjectKinds(obj)
}
func (s *strategy) Recognizes(schema.GroupVersionKind) bool { return false }
func (s *strategy) GenerateName(base string) string {
	return names.SimpleNameGenerator.GenerateName(base)
}
func (s *strategy) NamespaceScoped() bool                         { return s.def.namespaced }
func (s *strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (s *strategy) AllowUnconditionalUpdate(context.Context) bool { return false }
func (s *strategy) Canonicalize(runtime.Object)                   {}

// rules finds the version that an object was read in.
func (s *strategy) rules(obj runtime.Object) (*rules, error) {
	version := obj.GetObjectKind().GroupVersionKind().Version
	if r := s.def.versions[version]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("version %q of %s is not served", version, s.def.gk)
}

// PrepareForCreate drops the status if that is a subresource, and starts counting generations.
func (s *strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	u := obj.(*unstructured.Unstructured)
	if r, err := s.rules(u); err == nil && r.hasStatus() {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}

// PrepareForUpdate keeps the status as it was if that is a subresource, and raises the generation when
// anything but metadata changed.
func (s *strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	if r, err := s.rules(was); err == nil && r.hasStatus() {
		if status, ok := was.Object["status"]; ok {
			u.Object["status"] = status
		} else {
			delete(u.Object, "status")
		}
	}
	if !equality.Semantic.DeepEqual(content(u), content(was)) {
		u.SetGeneration(was.GetGeneration() + 1)
	}
}

// content is everything but metadata.
func content(u *unstructured.Unstructured) map[string]any {
	out := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		if k != "metadata" {
			out[k] = v
		}
	}
	return out
}

func (s *strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	u := obj.(*unstructured.Unstructured)
	r, v, errs := s.validators(u)
	if len(errs) > 0 {
		return errs
	}
	if errs = r.validateType(u); len(errs) == 0 {
		errs = append(errs, r.validateMeta(ctx, u)...)
		errs = append(errs, validation.ValidateCustomResource(nil, u.Object, v.object)...)
		errs = append(errs, r.validateScaleSpec(u)...)
		errs = append(errs, r.validateScaleStatus(u)...)
	}
	errs = append(errs, v.embedded(ctx, u)...)
	errs = append(errs, v.duplicates(u)...)
	return append(errs, v.rules(ctx, errs, u, nil)...)
}

func (s *strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	r, v, errs := s.validators(was)
	if len(errs) > 0 {
		return errs
	}
	same := common.NewCorrelatedObject(u.Object, was.Object, &model.Structural{Structural: v.structural.Structural})
	if errs = r.validateType(u); len(errs) == 0 {
		errs = append(errs, r.validateMetaUpdate(ctx, u, was)...)
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, was.Object, v.object, validation.WithRatcheting(same))...)
		errs = append(errs, r.validateScaleSpec(u)...)
		errs = append(errs, r.validateScaleStatus(u)...)
	}
	errs = append(errs, v.embedded(ctx, u)...)
	errs = append(errs, v.newDuplicates(u, was)...)
	return append(errs, v.rules(ctx, errs, u, was, cel.WithRatcheting(same))...)
}

func (s *strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return finalizerWarnings(obj.(*unstructured.Unstructured).GetFinalizers(), nil)
}

func (s *strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return finalizerWarnings(obj.(*unstructured.Unstructured).GetFinalizers(), old.(*unstructured.Unstructured).GetFinalizers())
}

// validators are those of the version in which obj was read.
func (s *strategy) validators(obj runtime.Object) (*rules, *validators, field.ErrorList) {
	r, err := s.rules(obj)
	if err != nil {
		return nil, nil, field.ErrorList{field.Invalid(field.NewPath("apiVersion"), obj.GetObjectKind().GroupVersionKind().GroupVersion().String(), err.Error())}
	}
	v, err := r.validation()
	if err != nil {
		return nil, nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return r, v, nil
}

// rules runs x-kubernetes-validations, unless errors found before make them meaningless.
func (v *validators) rules(ctx context.Context, before field.ErrorList, u, old *unstructured.Unstructured, options ...cel.Option) field.ErrorList {
	if v.cel == nil {
		return nil
	}
	for _, err := range before {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	var oldContent any
	if old != nil {
		oldContent = old.Object
	}
	errs, _ := v.cel.Validate(ctx, nil, v.structural.Structural, u.Object, oldContent, celconfig.RuntimeCELCostBudget, options...)
	return errs
}

// embedded checks embedded resources' type and metadata.
func (v *validators) embedded(ctx context.Context, u *unstructured.Unstructured) field.ErrorList {
	if !v.structural.embeds {
		return nil
	}
	return objectmeta.Validate(ctx, nil, u.Object, v.structural.Structural, false)
}

// duplicates checks list sets and maps.
func (v *validators) duplicates(u *unstructured.Unstructured) field.ErrorList {
	if !v.structural.unique {
		return nil
	}
	return listtype.ValidateListSetsAndMaps(nil, v.structural.Structural, u.Object)
}

// newDuplicates checks list sets and maps, unless the old object broke their rules already.
func (v *validators) newDuplicates(u, old *unstructured.Unstructured) field.ErrorList {
	errs := v.duplicates(u)
	if len(errs) > 0 && len(v.duplicates(old)) > 0 {
		return nil
	}
	return errs
}

// statusStrategy is how the status subresource changes custom resources: nothing but status.
type statusStrategy struct{ strategy }

func (s *statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	status, ok := u.Object["status"]
	// The field manager has written this request down there.
	managed := u.GetManagedFields()
	*u = *was.DeepCopy()
	u.SetManagedFields(managed)
	if ok {
		u.Object["status"] = status
	} else {
		delete(u.Object, "status")
	}
}

func (s *statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	r, v, errs := s.validators(was)
	if len(errs) > 0 {
		return errs
	}
	same := common.NewCorrelatedObject(u.Object, was.Object, &model.Structural{Structural: v.structural.Structural})
	if errs = r.validateType(u); len(errs) == 0 {
		errs = append(errs, r.validateMetaUpdate(ctx, u, was)...)
		if status, ok := u.Object["status"]; ok {
			var options []validation.ValidationOption
			if v.structural.Structural != nil {
				options = append(options, validation.WithRatcheting(same.Key("status")))
			}
			if v.status != nil {
				errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, was.Object["status"], v.status, options...)...)
			}
		}
		errs = append(errs, r.validateScaleStatus(u)...)
	}
	errs = append(errs, v.newDuplicates(u, was)...)
	return append(errs, v.rules(ctx, errs, u, was, cel.WithRatcheting(same))...)
}

func (s *statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// standardFinalizers need no domain.
var standardFinalizers = sets.New(metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes))

// finalizerWarnings looks at finalizers that old doesn't have.
func finalizerWarnings(finalizers, old []string) (warnings []string) {
	at := field.NewPath("metadata", "finalizers").String()
	for _, name := range sets.List(sets.New(finalizers...).Difference(sets.New(old...))) {
		for _, msg := range apivalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %s", at, name, msg))
		}
		if strings.Contains(name, "/") || standardFinalizers.Has(name) {
			continue
		}
		including := ""
		if strings.Contains(name, ".") {
			including = " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", at, name, including))
	}
	return warnings
}
