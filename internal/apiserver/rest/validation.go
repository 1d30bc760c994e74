package rest

import (
	"context"
	"fmt"

	op "k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrest "k8s.io/apiserver/pkg/registry/rest"
)

// maxErrors is how many errors validation tells of one object. Putting an error's text together takes time in
// the square of their number.
const maxErrors = 256

func firstErrors(errs field.ErrorList) field.ErrorList {
	if len(errs) <= maxErrors {
		return errs
	}
	more := fmt.Errorf("and %d more errors", len(errs)-maxErrors)
	return append(errs[:maxErrors:maxErrors], &field.Error{Type: field.ErrorTypeTooMany, BadValue: field.OmitValueType{}, Detail: more.Error()})
}

// creation is a strategy that tells a bounded number of errors.
type creation struct{ genericrest.RESTCreateStrategy }

func (c creation) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return firstErrors(c.RESTCreateStrategy.Validate(ctx, obj))
}

func (c creation) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, verb op.Type, config genericrest.DeclarativeValidationConfig) field.ErrorList {
	return declared(ctx, c.RESTCreateStrategy, obj, old, errs, verb, config)
}

func (c creation) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) genericrest.DeclarativeValidationConfig {
	return declaredConfig(ctx, c.RESTCreateStrategy, obj, old)
}

// updating is the same of updates.
type updating struct{ genericrest.RESTUpdateStrategy }

func (u updating) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return firstErrors(u.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old))
}

func (u updating) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, verb op.Type, config genericrest.DeclarativeValidationConfig) field.ErrorList {
	return declared(ctx, u.RESTUpdateStrategy, obj, old, errs, verb, config)
}

func (u updating) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) genericrest.DeclarativeValidationConfig {
	return declaredConfig(ctx, u.RESTUpdateStrategy, obj, old)
}

// declared runs a strategy's declarative validation, if it has one.
func declared(ctx context.Context, strategy any, obj, old runtime.Object, errs field.ErrorList, verb op.Type, config genericrest.DeclarativeValidationConfig) field.ErrorList {
	if d, ok := strategy.(genericrest.DeclarativeValidationStrategy); ok {
		errs = d.ValidateDeclaratively(ctx, obj, old, errs, verb, config)
	}
	return firstErrors(errs)
}

func declaredConfig(ctx context.Context, strategy any, obj, old runtime.Object) genericrest.DeclarativeValidationConfig {
	if d, ok := strategy.(genericrest.DeclarativeValidationStrategy); ok {
		return d.DeclarativeValidationConfig(ctx, obj, old)
	}
	return genericrest.DeclarativeValidationConfig{}
}
