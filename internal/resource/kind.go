// Package resource says what kinds are served and by which rules: names, versions, codecs, strategies,
// field managers, and how objects lie in the store.
//
// A Kind is immutable. The Registry hands out the present one; a CRD that changes makes a new Kind and
// closes the old one's Done channel. resource/builtin makes the kinds that are compiled in, and
// resource/crd those that a CustomResourceDefinition declares; both are served by the same code.
package resource

import (
	"context"
	"slices"

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
	Unserved []string   // names of versions that are declared and not served: objects and references may be in them

	Strategy     Strategy
	Subresources map[string]*Subresource // by name: status, scale, binding, finalize, …

	// ReturnDeleted: a DELETE that removes the object answers with the object and not with a Status.
	ReturnDeleted bool

	// StoredGroup is the group under whose keys the objects lie where that isn't the kind's own:
	// events.k8s.io Events are the core group's Events in another dress.
	StoredGroup *string

	// Terminating: the CRD is being deleted, so creates are refused.
	Terminating bool

	// Declared is the revision of the CRD that made this Kind what it is, or, after a start, a later one; 0 for
	// kinds that are compiled in. What was stored at or below it was written by the rules of another schema.
	Declared uint64

	done chan struct{} // closed when the registry no longer serves this Kind; nil outside of a registry
}

// Done is closed when the kind has changed or gone: watches of it end. A Kind that only became
// Terminating keeps its predecessor's channel, so watches live on and see the instances go.
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

// Declares tells whether a version is one of the kind's, served or not.
func (k *Kind) Declares(version string) bool {
	return k.Version(version) != nil || slices.Contains(k.Unserved, version)
}

// Subresource finds a subresource in a version; nil if that version doesn't have it.
func (k *Kind) Subresource(v *Version, name string) *Subresource {
	s := k.Subresources[name]
	if s == nil || s.Versions != nil && !slices.Contains(s.Versions, v.Name) {
		return nil
	}
	return s
}

// Strategy is what upstream's registries call it: how objects of a kind are made, changed and deleted.
// A strategy may also implement rest.RESTGracefulDeleteStrategy and rest.GarbageCollectionDeleteStrategy.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// DeletionMarker is what a Strategy implements when the first DELETE of an object does more than set
// metadata.deletionTimestamp and finalizers: Namespaces become Terminating, CustomResourceDefinitions get a
// finalizer and a condition. Such an object is never removed by its first DELETE; a later one removes it
// once nothing holds it.
type DeletionMarker interface {
	// MarkDeleted changes obj, which has no deletionTimestamp yet, and sets that too. It does not
	// raise the generation.
	MarkDeleted(obj Object, opts *metav1.DeleteOptions, now metav1.Time)
}

// DeletionHolder is what a Strategy implements when more than metadata.finalizers can keep an object:
// a Namespace's spec.finalizers.
type DeletionHolder interface {
	HoldsDeletion(obj Object) bool
}

// Subresource is one subresource of a kind. Status-like subresources are the object itself under an
// update strategy of their own; scale, binding and others are bodies of another kind that are
// projected onto the object.
type Subresource struct {
	Verbs []string
	// Versions are those that have it; nil: all of them.
	Versions []string
	// Strategy is for the changed object; nil, beside Project: the kind's own.
	Strategy rest.RESTUpdateStrategy
	// Body is the kind of the request and answer bodies where it isn't the object's own
	// (autoscaling/v1 Scale, v1 Binding).
	Body    schema.GroupVersionKind
	Project Projection // nil: the subresource is the object itself
}

// Projection maps an object to the body of a subresource and back.
//
// An update runs: Base of the old object, the request's body (a PUT's, or Base patched), field manager
// of the subresource from Base to body, Put, then the kind's own strategy. The answer is Get of the
// stored object, or a Status where Creates is true.
type Projection interface {
	// Get makes the body from the object, as a GET answers. Errors are API errors.
	Get(v *Version, obj Object) (Object, error)
	// Base is the body on which patches and field managers work: Get's, with managedFields, and with
	// a mark at fields that the object doesn't have.
	Base(v *Version, obj Object) (Object, error)
	// Decode reads a request body.
	Decode(data []byte, opts DecodeOptions) (body Object, warnings []string, err error)
	// Put returns a changed copy of obj in which body is true: its resourceVersion and uid too, if the
	// body names them, so that the usual checks apply. Errors are API errors.
	Put(ctx context.Context, v *Version, obj, body Object) (Object, error)
	// Creates: bodies are POSTed, not PUT; the answer is a Status (binding).
	Creates() bool
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
	// Patched: the body is the result of a patch, so errors are reported as a 422 at field patch and
	// the version isn't compared with the path's, as upstream does.
	Patched bool
	// PatchErrors are what a strict reading of the patch itself found; they are reported with the result's.
	PatchErrors []error
}

// Codec turns bytes into objects and back. All methods are safe for concurrent use.
type Codec interface {
	// New makes an empty object in this version's own form: what a field manager takes for the object that isn't
	// there yet. Its fields are absent, where an empty hub object may have zeros (0 replicas).
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

// RowConditions is what Columns may implement too: conditions of one object's row (a Pod that has ended).
type RowConditions interface {
	Conditions(json []byte) []metav1.TableRowCondition
}

// Columns makes Table rows.
type Columns interface {
	Definitions() []metav1.TableColumnDefinition
	// Cells of one object given as JSON in this version.
	Cells(json []byte) ([]any, error)
}
