// Package resource says what kinds are served and by which rules: names, versions, codecs, strategies,
// field managers, and how objects lie in the store.
//
// A Kind is immutable. The Registry hands out the present one; a CRD that changes makes a new Kind and
// closes the old one's Done channel. resource/builtin makes the kinds that are compiled in, and
// resource/crd those that a CustomResourceDefinition declares; both are served by the same code.
package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object is an object in its kind's hub form, on which strategies and field managers work: the
// internal type of a built-in kind, *unstructured.Unstructured in the request's version of a custom one.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is one served kind in all its versions. It is immutable and shared.
type Kind struct {
	schema.GroupKind
	Plural     string
	Singular   string
	ListKind   string
	ShortNames []string
	Categories []string
	Namespaced bool
	Custom     bool     // declared by a CRD: list items carry apiVersion and kind, no protobuf, no strategic merge
	Verbs      []string // of the kind itself, as discovery lists them; what is not listed is 405

	Versions []*Version // served, preferred first
	Stored   *Version   // the version written to the store; need not be served

	Strategy     Strategy
	Subresources map[string]*Subresource // by name: status, scale, binding, finalize, …

	// Terminating: the CRD is being deleted, so creates are refused.
	Terminating bool

	done chan struct{} // closed when the registry no longer serves this Kind
}

// Done is closed when the kind has changed or gone: watches of it end.
func (k *Kind) Done() <-chan struct{} { return k.done }

// GroupResource is the kind's group and plural.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// Version finds a served version; nil if it isn't served.
func (k *Kind) Version(name string) *Version {
	for _, v := range k.Versions {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Strategy is what upstream's registries call it: how objects of a kind are made, changed and deleted.
// A strategy may also implement rest.RESTGracefulDeleteStrategy and rest.GarbageCollectionDeleteStrategy.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// Subresource is one subresource of a kind. Status-like subresources are the object itself under an
// update strategy of their own; scale, binding and others are bodies of another kind that are
// projected onto the object.
type Subresource struct {
	Verbs    []string
	Strategy rest.RESTUpdateStrategy // nil when Project is set
	// Body is the kind of the request and answer bodies where it isn't the object's own
	// (autoscaling/v1 Scale, v1 Binding).
	Body    schema.GroupVersionKind
	Project Projection // nil when Strategy is set
}

// Projection maps an object to the body of a subresource and back.
type Projection interface {
	// Get makes the body from the object.
	Get(v *Version, obj Object) (Object, error)
	// Decode reads a request body.
	Decode(data []byte, opts DecodeOptions) (body Object, warnings []string, err error)
	// Put returns a changed copy of obj in which body is true. Errors are API errors.
	Put(ctx context.Context, v *Version, obj, body Object) (Object, error)
}

// Version is one version of a kind.
type Version struct {
	Name              string // v1
	GVK               schema.GroupVersionKind
	Served            bool
	Deprecated        bool
	DeprecationNotice string // the Warning header of every answer in this version; "" for none

	Codec  Codec
	Fields FieldSelectors
	// Columns of a Table; nil means Name and Age.
	Columns Columns
	// PatchType is a zero value of the Go type that strategic merge patches are computed on; nil: 415.
	PatchType any
	// Schema is the OpenAPI v3 schema of the kind (custom kinds only; built-ins have a published document).
	Schema func() *spec.Schema
	// FieldManager tracks ownership for the kind ("") or one of its subresources. Built once, lazily.
	FieldManager func(subresource string) (*managedfields.FieldManager, error)
	// ResetFields are the fields that a write to the kind ("") or a subresource never changes.
	ResetFields func(subresource string) map[fieldpath.APIVersion]fieldpath.Filter
}

// DecodeOptions says how a request body is read.
type DecodeOptions struct {
	MediaType       string // application/json, application/yaml, application/vnd.kubernetes.protobuf
	FieldValidation string // Strict, Warn, Ignore; "" means Warn
	Subresource     string // status, … for schema parts that differ; usually ""
	// Patched: the body is the result of a patch, so strictness is reported as a 422, as upstream does.
	Patched bool
}

// Codec turns bytes into objects and back. All methods are safe for concurrent use.
type Codec interface {
	// New makes an empty object in hub form.
	New() Object
	// Decode reads a request body: checks apiVersion and kind, decodes strictly, prunes and defaults.
	// Errors are API errors (*errors.StatusError); warnings are texts of Warning headers.
	Decode(data []byte, opts DecodeOptions) (obj Object, warnings []string, err error)
	// DecodeStored reads JSON as it was stored (in Kind.Stored's version), converts it to this
	// version's hub form and fills in defaults, as reading from etcd does.
	DecodeStored(json []byte) (Object, error)
	// Default fills in defaults and prunes again, after an admission webhook.
	Default(obj Object) error
	// Encode writes an object in hub form as JSON in this version, apiVersion and kind included.
	Encode(obj Object) ([]byte, error)
	// Convert makes JSON in this version from JSON as stored. It returns its argument when nothing differs.
	Convert(stored []byte) ([]byte, error)
	// Protobuf writes an object in hub form as a Kubernetes protobuf envelope; an error for custom kinds.
	Protobuf(obj Object) ([]byte, error)
}

// FieldSelectors are the fields that a fieldSelector may name, beside metadata.name and
// metadata.namespace, which every kind has.
type FieldSelectors struct {
	// Names of the selectable fields, sorted.
	Names []string
	// Values of these fields for one object as stored, in this version.
	Values func(json []byte) (fields.Set, error)
	// Convert checks one requirement's label and value; an API 400's message otherwise. nil: Names decide.
	Convert func(label, value string) (string, string, error)
}

// Columns makes Table rows.
type Columns interface {
	Definitions() []metav1.TableColumnDefinition
	// Cells of one object given as JSON in this version.
	Cells(json []byte) ([]any, error)
}
