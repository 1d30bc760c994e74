package watchcache

import (
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// Object is one stored object at one revision. It is immutable and shared; everything it returns is shared
// too and must not be changed.
type Object struct {
	kind *resource.Kind
	kv   *storage.KV
	rev  storage.Rev
}

// NewObject wraps a stored value. rev is kv's own, or a deletion's, whose object has the old state at the
// new revision. Revision 0 is an object that isn't stored (a dry run's): it has no resourceVersion.
func NewObject(k *resource.Kind, kv *storage.KV, rev storage.Rev) (*Object, error) {
	return &Object{kind: k, kv: kv, rev: rev}, nil
}

func (o *Object) Kind() *resource.Kind { return o.kind }

// KV is the stored value; of a deleted object, the last one.
func (o *Object) KV() *storage.KV { return o.kv }

// Rev is the object's resourceVersion.
func (o *Object) Rev() uint64 { return uint64(o.rev) }

func (o *Object) Name() string      { return "" }
func (o *Object) Namespace() string { return "" }

// Meta is what the stored header says.
func (o *Object) Meta() *resource.Meta { return nil }

// JSON is the complete object in a version, resourceVersion, apiVersion and kind included.
func (o *Object) JSON(v *resource.Version) ([]byte, error) { return nil, nil }

// Hub is the object decoded into the version's hub form, with its resourceVersion. Copy before changing.
func (o *Object) Hub(v *resource.Version) (resource.Object, error) { return nil, nil }
