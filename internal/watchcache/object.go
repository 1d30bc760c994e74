package watchcache

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// Object is one stored object at one revision. It is immutable and shared; everything it returns is shared
// too and must not be changed. All methods may be called concurrently.
//
// What it makes from the stored bytes is kept by weak pointers alone, so until the next collection of garbage: a
// burst of readers shares it, and what nobody has asked for lately costs nothing.
type Object struct {
	kind   *resource.Kind
	kv     *storage.KV
	rev    storage.Rev
	shared bool // handed to many watches: worth keeping what was encoded
	stale  bool // written by the rules of an older schema: to be converted even into its own version

	meta atomic.Pointer[resource.Meta]

	mu    sync.Mutex
	forms []*form
}

// form is what was made of an object in one version.
type form struct {
	version *resource.Version
	json    weak.Pointer[encoded]
	hub     weak.Pointer[decoded]
	fields  fields.Set
}

type encoded struct{ json []byte }

type decoded struct{ obj resource.Object }

// NewObject makes an Object of a value that isn't in the store as it stands: a dry run's, a deleted one.
// rev is its resourceVersion; 0 means that it has none.
func NewObject(k *resource.Kind, kv *storage.KV, rev uint64) *Object {
	return newObject(k, kv, storage.Rev(rev), 0)
}

func newObject(k *resource.Kind, kv *storage.KV, rev, born storage.Rev) *Object {
	return &Object{kind: k, kv: kv, rev: rev, stale: born > 0 && kv.Rev <= born}
}

// Kind is the kind as it was served when the object was read.
func (o *Object) Kind() *resource.Kind { return o.kind }

// KV is the stored value; of a deleted object, the last one.
func (o *Object) KV() *storage.KV { return o.kv }

// Rev is the object's resourceVersion.
func (o *Object) Rev() uint64 { return uint64(o.rev) }

// ResourceVersion is Rev as it stands in metadata; "" for an object that isn't stored.
func (o *Object) ResourceVersion() string {
	if o.rev == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(o.rev), 10)
}

// Name is the object's name.
func (o *Object) Name() string {
	return o.kv.Key[strings.LastIndexByte(o.kv.Key, '/')+1:]
}

// Namespace is the object's namespace, "" for cluster-scoped kinds.
func (o *Object) Namespace() string {
	if !o.kind.Namespaced {
		return ""
	}
	rest := o.kv.Key[:strings.LastIndexByte(o.kv.Key, '/')]
	return rest[strings.LastIndexByte(rest, '/')+1:]
}

// Meta is what the stored header says.
func (o *Object) Meta() *resource.Meta {
	if m := o.meta.Load(); m != nil {
		return m
	}
	m := &resource.Meta{}
	if v, err := resource.ParseValue(o.kv.Value); err == nil {
		*m = v.Meta()
	}
	o.meta.Store(m)
	return m
}

// Stored is the object's JSON as stored: in the kind's storage version, without resourceVersion.
func (o *Object) Stored() ([]byte, error) {
	v, err := o.value()
	return v.JSON, err
}

// JSON is the complete object in a version, resourceVersion, apiVersion and kind included.
func (o *Object) JSON(v *resource.Version) ([]byte, error) {
	if o.asStored(v) && !o.shared {
		return o.AppendJSON(nil, v)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.form(v)
	if e := f.json.Value(); e != nil {
		return e.json, nil
	}
	json, err := o.append(nil, v)
	if err != nil {
		return nil, err
	}
	f.json = weak.Make(&encoded{json})
	return json, nil
}

// AppendJSON appends what JSON returns to dst.
func (o *Object) AppendJSON(dst []byte, v *resource.Version) ([]byte, error) {
	if o.asStored(v) {
		return o.append(dst, v)
	}
	json, err := o.JSON(v)
	if err != nil {
		return dst, err
	}
	return append(dst, json...), nil
}

// Pieces are what JSON returns, in pieces that are shared with the store; ok is false where the stored bytes aren't
// the object in that version.
func (o *Object) Pieces(v *resource.Version) (pieces [3][]byte, ok bool) {
	if !o.asStored(v) || o.rev == 0 {
		return pieces, false
	}
	value, err := o.value()
	if err != nil {
		return pieces, false
	}
	return value.Pieces(uint64(o.rev)), true
}

// asStored tells whether the stored bytes are the object in a version.
func (o *Object) asStored(v *resource.Version) bool { return v == o.kind.Stored && !o.stale }

func (o *Object) append(dst []byte, v *resource.Version) ([]byte, error) {
	value, err := o.value()
	if err != nil {
		return dst, err
	}
	if !o.asStored(v) {
		converted, err := v.Codec.Convert(value.JSON)
		if err != nil {
			return dst, o.broken(err)
		}
		// The stored form knows where the revision goes.
		if value, err = resource.ParseValue(resource.EncodeValue(converted, resource.Meta{})); err != nil {
			return dst, o.broken(err)
		}
	}
	if o.rev == 0 {
		return append(dst, value.JSON...), nil
	}
	if dst == nil {
		dst = make([]byte, 0, len(value.JSON)+len(`"resourceVersion":"18446744073709551615",`))
	}
	return value.AppendJSON(dst, uint64(o.rev)), nil
}

// Hub is the object decoded into the version's hub form, with its resourceVersion. Copy before changing.
func (o *Object) Hub(v *resource.Version) (resource.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.form(v)
	if d := f.hub.Value(); d != nil {
		return d.obj, nil
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	obj, err := v.Codec.DecodeStored(value.JSON)
	if err != nil {
		return nil, o.broken(err)
	}
	obj.SetResourceVersion(o.ResourceVersion())
	f.hub = weak.Make(&decoded{obj})
	return obj, nil
}

// Decoded tells the hub form that Hub would make, to a writer's Object: it is the writer's no longer. It must be
// exactly what decoding the stored value gives.
func (o *Object) Decoded(v *resource.Version, obj resource.Object) {
	obj.SetResourceVersion(o.ResourceVersion())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.form(v).hub = weak.Make(&decoded{obj})
}

// Fields are the values of the version's selectable fields, without metadata.name and metadata.namespace.
func (o *Object) Fields(v *resource.Version) (fields.Set, error) {
	if v.Fields.Values == nil {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.form(v)
	if f.fields != nil {
		return f.fields, nil
	}
	value, err := o.value()
	if err != nil {
		return nil, err
	}
	set, err := v.Fields.Values(value.JSON)
	if err != nil {
		return nil, o.broken(err)
	}
	f.fields = set
	return set, nil
}

// form is called with mu held.
func (o *Object) form(v *resource.Version) *form {
	for _, f := range o.forms {
		if f.version == v {
			return f
		}
	}
	f := &form{version: v}
	o.forms = append(o.forms, f)
	return f
}

func (o *Object) value() (resource.Value, error) {
	v, err := resource.ParseValue(o.kv.Value)
	if err != nil {
		return v, o.broken(err)
	}
	return v, nil
}

// broken is the error for a stored object that can't be read.
func (o *Object) broken(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("%s %q can't be read as it is stored: %w", o.kind.GroupResource(), o.Name(), err))
}
