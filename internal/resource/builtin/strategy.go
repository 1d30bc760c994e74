package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"operatord.io/operatord/internal/resource"
)

// base is what all strategies have in common: types from our own scheme, generated names, and the
// validation that is generated from the types' markers.
type base struct {
	scheme      *runtime.Scheme
	gv          schema.GroupVersion // whose types are validated
	subresource string
	namespaced  bool
	undeclared  bool // validation isn't generated for the kind upstream

	// features are the gates that the generated validation asks about.
	features []featuregate.Feature
	// collect is what deleting an object does to its dependents unless told; "": delete them.
	collect rest.GarbageCollectionPolicy
}

// of is the base for a subresource.
func (b base) of(subresource string) base {
	b.subresource = subresource
	return b
}

func (b base) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return b.scheme.ObjectKinds(obj)
}
func (b base) Recognizes(gvk schema.GroupVersionKind) bool { return b.scheme.Recognizes(gvk) }
func (b base) GenerateName(prefix string) string {
	return names.SimpleNameGenerator.GenerateName(prefix)
}
func (b base) NamespaceScoped() bool { return b.namespaced }

// ValidateDeclaratively runs the generated validation and merges its errors with those found by hand.
func (b base) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, config rest.DeclarativeValidationConfig) field.ErrorList {
	if b.undeclared {
		return errs
	}
	// The library finds the version and subresource to validate for in the request's context.
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          b.gv.Group,
		APIVersion:        b.gv.Version,
		Subresource:       b.subresource,
	})
	return rest.DeclarativeValidation{Scheme: b.scheme}.ValidateDeclaratively(ctx, obj, old, errs, op, config)
}

func (b base) DeclarativeValidationConfig(context.Context, runtime.Object, runtime.Object) rest.DeclarativeValidationConfig {
	options := make(map[string]bool, len(b.features))
	for _, f := range b.features {
		options[string(f)] = utilfeature.DefaultFeatureGate.Enabled(f)
	}
	return rest.DeclarativeValidationConfig{Options: options}
}

// DefaultGarbageCollectionPolicy is what deleting an object does to its dependents unless told.
func (b base) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	if b.collect == "" {
		return rest.DeleteDependents
	}
	return b.collect
}

// own is a strategy written here, for kinds whose upstream strategy would bring in the storage and client
// libraries of a whole API server. Functions that are nil do nothing.
type own[T resource.Object] struct {
	base
	prepareCreate  func(T)
	prepareUpdate  func(obj, old T)
	validate       func(T) field.ErrorList
	validateUpdate func(obj, old T) field.ErrorList
	warnCreate     func(context.Context, T) []string
	warnUpdate     func(ctx context.Context, obj, old T) []string
	canonicalize   func(T)

	createOnUpdate bool // a PUT makes the object if there is none
	needsRevision  bool // a PUT without resourceVersion is refused
}

func (s *own[T]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.prepareCreate != nil {
		s.prepareCreate(obj.(T))
	}
}

func (s *own[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.prepareUpdate != nil {
		s.prepareUpdate(obj.(T), old.(T))
	}
}

func (s *own[T]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	if s.validate == nil {
		return nil
	}
	return s.validate(obj.(T))
}

func (s *own[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	if s.validateUpdate == nil {
		return nil
	}
	return s.validateUpdate(obj.(T), old.(T))
}

func (s *own[T]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	if s.warnCreate == nil {
		return nil
	}
	return s.warnCreate(ctx, obj.(T))
}

func (s *own[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.warnUpdate == nil {
		return nil
	}
	return s.warnUpdate(ctx, obj.(T), old.(T))
}

func (s *own[T]) Canonicalize(obj runtime.Object) {
	if s.canonicalize != nil {
		s.canonicalize(obj.(T))
	}
}

func (s *own[T]) AllowCreateOnUpdate(context.Context) bool      { return s.createOnUpdate }
func (s *own[T]) AllowUnconditionalUpdate(context.Context) bool { return !s.needsRevision }
