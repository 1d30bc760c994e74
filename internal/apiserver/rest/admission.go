package rest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
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

// AdmissionRequest is one write on its way. Mutate may change Object in place or replace it; the object is
// defaulted and pruned again when Changed is set.
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
	Old    runtime.Object // in hub form, shared: not to be changed; nil for a create

	Changed  bool     // set by Mutate when it changed Object
	Warnings []string // added to the answer
}

// Admission has its say about every write. Mutate runs before validation, Validate after it; either refuses
// with an API error.
type Admission interface {
	Mutate(ctx context.Context, r *AdmissionRequest) error
	Validate(ctx context.Context, r *AdmissionRequest) error
}

// admitAll is the Admission that never minds.
type admitAll struct{}

func (admitAll) Mutate(context.Context, *AdmissionRequest) error   { return nil }
func (admitAll) Validate(context.Context, *AdmissionRequest) error { return nil }
