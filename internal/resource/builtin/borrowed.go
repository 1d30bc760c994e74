package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// upstream is what Kubernetes' own strategies are.
type upstream interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.DeclarativeValidationStrategy
}

// borrowed is a strategy of Kubernetes' own with types and generated validation from our scheme: theirs
// is global, and empty here.
type borrowed struct {
	base
	from upstream
}

func (s *borrowed) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.from.PrepareForCreate(ctx, obj)
}
func (s *borrowed) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.from.PrepareForUpdate(ctx, obj, old)
}
func (s *borrowed) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.from.Validate(ctx, obj)
}
func (s *borrowed) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.from.ValidateUpdate(ctx, obj, old)
}
func (s *borrowed) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	return s.from.WarningsOnCreate(ctx, obj)
}
func (s *borrowed) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	return s.from.WarningsOnUpdate(ctx, obj, old)
}
func (s *borrowed) Canonicalize(obj runtime.Object) { s.from.Canonicalize(obj) }
func (s *borrowed) AllowCreateOnUpdate(ctx context.Context) bool {
	return s.from.AllowCreateOnUpdate(ctx)
}
func (s *borrowed) AllowUnconditionalUpdate(ctx context.Context) bool {
	return s.from.AllowUnconditionalUpdate(ctx)
}
func (s *borrowed) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) rest.DeclarativeValidationConfig {
	return s.from.DeclarativeValidationConfig(ctx, obj, old)
}

// DefaultGarbageCollectionPolicy is what deleting an object does to its dependents unless told.
func (s *borrowed) DefaultGarbageCollectionPolicy(ctx context.Context) rest.GarbageCollectionPolicy {
	if gc, ok := s.from.(rest.GarbageCollectionDeleteStrategy); ok {
		return gc.DefaultGarbageCollectionPolicy(ctx)
	}
	return rest.DeleteDependents
}
