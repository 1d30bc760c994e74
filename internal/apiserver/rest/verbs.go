// Package rest is the one write path: the verbs of the Kubernetes API over a storage.Store, the same for
// kubectl, an operator in this process and the console.
//
// A write is decoded strictly, defaulted and pruned; ownership of fields is recorded; admission may change
// it; the kind's strategy prepares and validates it; an unchanged object is answered without a write;
// otherwise one compare-and-swap goes to the store. When a client names no resourceVersion, a lost race is
// run again on the newer object until it lands or the context ends.
//
// Order and messages are those of Kubernetes' own generic registry and endpoint handlers. This package
// knows nothing of HTTP: errors are API errors, answers are objects.
package rest

import (
	"context"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// Attributes say what a request is about and who makes it.
type Attributes struct {
	User        user.Info
	Kind        *resource.Kind
	Version     *resource.Version
	Namespace   string // "" for cluster-scoped kinds and for lists over all namespaces
	Name        string // "" for collections
	Subresource string // "" for the object itself
	// UserAgent names the field manager of a client that doesn't say: the part before the first slash.
	UserAgent string
}

// Body is a request body as it came.
type Body struct {
	Data      []byte
	MediaType string // application/json, application/yaml, application/vnd.kubernetes.protobuf
}

// Result is the answer to a request: an object of the kind, or a body of another kind.
type Result struct {
	Object *watchcache.Object
	// Body is set instead of Object: a Scale, a Status.
	Body     runtime.Object
	Created  bool // 201
	Accepted bool // 202: deletion has begun
	Warnings []string
}

// Config is what the verbs need.
type Config struct {
	Store     storage.Store
	Registry  *resource.Registry
	Cache     *watchcache.Cache
	Admission Admission // nil admits everything
	Log       *slog.Logger
}

// Verbs are the verbs of the API. All methods may be called concurrently. Errors are API errors
// (k8s.io/apimachinery/pkg/api/errors) or the context's.
type Verbs struct {
	cfg Config
}

// New makes the verbs.
func New(cfg Config) *Verbs { return &Verbs{cfg: cfg} }

// Get reads one object, or a subresource's body. A resourceVersion of "0" takes whatever is at hand, a
// number waits for it.
func (v *Verbs) Get(ctx context.Context, a Attributes, opts metav1.GetOptions) (*Result, error) {
	return nil, nil
}

// List reads a page of a collection. Namespace and Version are taken from a.
func (v *Verbs) List(ctx context.Context, a Attributes, opts watchcache.ListOptions) (*watchcache.List, error) {
	return nil, nil
}

// Watch opens a watch of a collection, or of the one object that a names.
func (v *Verbs) Watch(ctx context.Context, a Attributes, opts watchcache.ListOptions) (*watchcache.Watch, error) {
	return nil, nil
}

// Create makes an object, or does what creating a subresource does (binding).
func (v *Verbs) Create(ctx context.Context, a Attributes, body Body, opts metav1.CreateOptions) (*Result, error) {
	return nil, nil
}

// Update replaces an object or one of its subresources.
func (v *Verbs) Update(ctx context.Context, a Attributes, body Body, opts metav1.UpdateOptions) (*Result, error) {
	return nil, nil
}

// Patch changes an object or one of its subresources: JSON, merge, strategic merge and apply patches.
func (v *Verbs) Patch(ctx context.Context, a Attributes, pt types.PatchType, patch []byte, opts metav1.PatchOptions) (*Result, error) {
	return nil, nil
}

// Delete deletes an object, or begins to. opts may be nil.
func (v *Verbs) Delete(ctx context.Context, a Attributes, opts *metav1.DeleteOptions) (*Result, error) {
	return nil, nil
}

// DeleteCollection deletes what a List with the same options returns, and answers with it.
func (v *Verbs) DeleteCollection(ctx context.Context, a Attributes, opts *metav1.DeleteOptions, list watchcache.ListOptions) (*watchcache.List, error) {
	return nil, nil
}
