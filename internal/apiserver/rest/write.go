package rest

import (
	"bytes"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// encode is an object as it is stored. The object keeps its resourceVersion.
func (r *request) encode(obj resource.Object) ([]byte, error) {
	rev := obj.GetResourceVersion()
	obj.SetResourceVersion("")
	obj.SetSelfLink("")
	json, err := r.Kind.Stored.Codec.Encode(obj)
	obj.SetResourceVersion(rev)
	if err != nil {
		if _, ok := err.(apierrors.APIStatus); ok {
			return nil, err
		}
		return nil, apierrors.NewInternalError(fmt.Errorf("%s %q can't be encoded: %w", r.resource(), obj.GetName(), err))
	}
	return resource.EncodeValue(json, resource.MetaOf(obj)), nil
}

// put writes obj under a key that is at revision at; 0: that doesn't exist. An object that would be what is
// there already isn't written. A lost race is *storage.ConflictError, a guard that no longer holds
// storage.ErrFenced; all else is an API error.
func (r *request) put(obj resource.Object, key string, was *storage.KV) (*watchcache.Object, error) {
	value, err := r.encode(obj)
	if err != nil {
		return nil, err
	}
	var at storage.Rev
	if was != nil {
		at = was.Rev
		if bytes.Equal(value, was.Value) {
			return r.cfg.Cache.Object(r.Kind, was), nil
		}
	}
	if r.dryRun {
		return watchcache.NewObject(r.Kind, &storage.KV{Key: key, Value: value}, uint64(at)), nil
	}
	w := storage.Write{Key: key, Value: value, If: at, Guards: r.hold, Note: r.note()}
	kv, err := r.cfg.Store.Commit(r.ctx, w)
	if errors.Is(err, storage.ErrTooLarge) && obj.GetManagedFields() != nil {
		// Ownership of fields may be given up where it doesn't fit.
		obj.SetManagedFields(nil)
		if w.Value, err = r.encode(obj); err != nil {
			return nil, err
		}
		kv, err = r.cfg.Store.Commit(r.ctx, w)
	}
	if err != nil {
		return nil, r.written(err, obj.GetName())
	}
	o := r.cfg.Cache.Object(r.Kind, kv)
	if u, ok := obj.(*unstructured.Unstructured); ok && r.Version == r.Kind.Stored && !hasFloats(u.Object) {
		// The next write of the object needn't decode it. Whole numbers may be floats here and integers
		// in what is stored, and typed objects differ in what is nil and what is empty.
		o.Decoded(r.Version, obj)
	}
	return o, nil
}

// remove deletes a key that is at a revision, with errors as put's, and returns the revision of the deletion.
func (r *request) remove(was *storage.KV, name string) (uint64, error) {
	if r.dryRun {
		return uint64(was.Rev), nil
	}
	kv, err := r.cfg.Store.Commit(r.ctx, storage.Write{Key: was.Key, If: was.Rev, Note: r.note()})
	if err != nil {
		return 0, r.written(err, name)
	}
	return uint64(kv.Rev), nil
}

func (r *request) written(err error, name string) error {
	var lost *storage.ConflictError
	if errors.As(err, &lost) || errors.Is(err, storage.ErrFenced) {
		return err
	}
	return storeError(err, r.resource(), r.verb, name)
}

// present is the object that is there now; nil if there is none.
func (r *request) present(key string) (*storage.KV, error) {
	view, err := r.look()
	if err != nil {
		return nil, err
	}
	kv, _ := view.Get(key)
	return kv, nil
}

// lost takes the winner out of a lost race. ok is false for other errors.
func lost(err error) (present *storage.KV, ok bool) {
	var c *storage.ConflictError
	if errors.As(err, &c) {
		return c.Present, true
	}
	return nil, false
}

// hub is a present object, decoded, to be changed by the caller.
func (r *request) hub(kv *storage.KV) (resource.Object, error) {
	obj, err := r.cfg.Cache.Object(r.Kind, kv).Hub(r.Version)
	if err != nil {
		return nil, err
	}
	return obj.DeepCopyObject().(resource.Object), nil
}

func uidOf(obj resource.Object) *types.UID {
	if uid := obj.GetUID(); uid != "" {
		return &uid
	}
	return nil
}
