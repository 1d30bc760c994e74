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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// MayCreate says whether the user may create the object, where an update or an apply patch turns out to
	// make one; nil: yes. Its error is the answer.
	MayCreate func(context.Context) error
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
	// Action names the operator's action that a write belongs to, for the store's history; may be nil.
	Action func(context.Context) string
	// Unattended gives the Warning with which the making of an object is answered on whose kind nobody acts, "" for
	// others; nil: no kind is so.
	Unattended func(schema.GroupKind) string
}

// Verbs are the verbs of the API. All methods may be called concurrently. Errors are API errors
// (k8s.io/apimachinery/pkg/api/errors) or the context's.
type Verbs struct {
	cfg   Config
	lanes lanes
}

// New makes the verbs.
func New(cfg Config) *Verbs {
	limitCopies()
	return &Verbs{cfg: cfg}
}
