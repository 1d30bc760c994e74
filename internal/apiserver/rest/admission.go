package rest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/resource"
)

// Operation is what is done to the object, as admission reviews name it.
type Operation string

const (
	OpCreate Operation = "CREATE"
	OpUpdate Operation = "UPDATE"
	OpDelete Operation = "DELETE"
)

// AdmissionRequest is one write on its way. Mutate may change Object in place or replace it, and sets
// Changed: the object is defaulted and pruned again then. Validate changes nothing.
type AdmissionRequest struct {
	Operation   Operation
	User        user.Info
	Kind        *resource.Kind
	Version     *resource.Version
	Namespace   string
	Name        string // may be empty on create with generateName
	Subresource string
	DryRun      bool
	Options     runtime.Object // *metav1.CreateOptions, …

	Object runtime.Object // in hub form; nil for a delete
	Old    runtime.Object // in hub form, not to be changed; nil for a create

	Changed  bool     // set by Mutate when it changed Object
	Warnings []string // added to the answer
}

// Admission has its say about every write. Mutate runs before validation, Validate after it; either refuses
// with an API error.
type Admission interface {
	Mutate(ctx context.Context, r *AdmissionRequest) error
	Validate(ctx context.Context, r *AdmissionRequest) error
}

// mutate lets admission change a new object.
func (r *request) mutate(op Operation, options runtime.Object, obj, old resource.Object) (resource.Object, error) {
	if r.cfg.Admission == nil {
		dedupOwners(obj, r.warnings, true)
		return obj, nil
	}
	a := r.admission(op, options, obj, old)
	managed := obj.GetManagedFields()
	err := r.cfg.Admission.Mutate(r.ctx, a)
	r.warnings.add(a.Warnings)
	if err != nil {
		return nil, err
	}
	if obj, err = object(a.Object); err != nil {
		return nil, err
	}
	if a.Changed {
		if err := managedfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
			obj.SetManagedFields(managed)
			r.warnings.AddWarning("", fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
				"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		}
		if err := r.Version.Codec.Default(obj); err != nil {
			return nil, err
		}
	}
	dedupOwners(obj, r.warnings, true)
	return obj, nil
}

// validate asks admission about a finished object.
func (r *request) validate(op Operation, options runtime.Object, obj, old resource.Object) error {
	if r.cfg.Admission == nil {
		return nil
	}
	a := r.admission(op, options, obj, old)
	err := r.cfg.Admission.Validate(r.ctx, a)
	r.warnings.add(a.Warnings)
	return err
}

// admitDeletion asks admission about a deletion.
func (r *request) admitDeletion(old resource.Object) error {
	if r.cfg.Admission == nil {
		return nil
	}
	a := r.admission(OpDelete, r.options, nil, old)
	err := r.cfg.Admission.Mutate(r.ctx, a)
	if err == nil {
		err = r.cfg.Admission.Validate(r.ctx, a)
	}
	r.warnings.add(a.Warnings)
	return err
}

func (r *request) admission(op Operation, options runtime.Object, obj, old resource.Object) *AdmissionRequest {
	a := &AdmissionRequest{
		Operation:   op,
		User:        r.User,
		Kind:        r.Kind,
		Version:     r.Version,
		Namespace:   r.Namespace,
		Name:        r.Name,
		Subresource: r.Subresource,
		DryRun:      r.dryRun,
		Options:     options,
	}
	if obj != nil {
		a.Object = obj
		if a.Name == "" {
			a.Name = obj.GetName()
		}
	}
	if old != nil {
		a.Old = old
		if a.Name == "" {
			a.Name = old.GetName()
		}
	}
	return a
}
