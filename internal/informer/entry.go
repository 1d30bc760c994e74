package informer

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// entry is one object at one revision in a view. It is immutable but for the decoded form, which is made
// once, when somebody asks.
type entry struct {
	Item
	obj     *watchcache.Object
	decoded atomic.Pointer[decoded]
}

type decoded struct {
	once sync.Once
	obj  Object
	err  error
}

func newEntry(k *resource.Kind, key Key, obj *watchcache.Object) *entry {
	return &entry{Item: Item{Key: key, Rev: obj.Rev(), kind: k, meta: obj.Meta()}, obj: obj}
}

func (e *entry) item() *Item {
	if e == nil {
		return nil
	}
	return &e.Item
}

// object is the decoded object: typed if the scheme knows the stored version or else another served one,
// unstructured otherwise.
func (s *Set) object(e *entry) (Object, error) {
	d := e.decoded.Load()
	if d == nil {
		if d = new(decoded); !e.decoded.CompareAndSwap(nil, d) {
			d = e.decoded.Load()
		}
	}
	d.once.Do(func() {
		d.obj, d.err = s.decode(e)
		if d.err != nil {
			s.log.Error("informer: an object can't be decoded", "kind", e.Kind(), "object", e.Key, "revision", e.Rev, "cause", d.err)
		}
	})
	return d.obj, d.err
}

func (s *Set) decode(e *entry) (Object, error) {
	version := e.kind.Stored
	typed := s.scheme.Recognizes(version.GVK)
	for i := 0; !typed && i < len(e.kind.Versions); i++ {
		if v := e.kind.Versions[i]; s.scheme.Recognizes(v.GVK) {
			version, typed = v, true
		}
	}
	data, err := e.obj.JSON(version)
	if err != nil {
		return nil, err
	}
	if typed {
		fresh, err := s.scheme.New(version.GVK)
		if err != nil {
			return nil, err
		}
		if obj, ok := fresh.(Object); ok {
			if err := json.UnmarshalCaseSensitivePreserveInts(data, obj); err != nil {
				return nil, err
			}
			obj.GetObjectKind().SetGroupVersionKind(version.GVK)
			return obj, nil
		}
	}
	content := map[string]any{}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// orMetadata is the decoded object, what the stored header says where that fails, or nil without an entry.
func (s *Set) orMetadata(e *entry) Object {
	if e == nil {
		return nil
	}
	obj, err := s.object(e)
	if err == nil {
		return obj
	}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:         e.Key.Namespace,
		Name:              e.Key.Name,
		UID:               e.UID(),
		Labels:            e.meta.Labels,
		OwnerReferences:   e.Owners(),
		Finalizers:        e.Finalizers(),
		DeletionTimestamp: e.meta.DeletionTimestamp,
		Generation:        e.meta.Generation,
	}}
	partial.SetGroupVersionKind(e.kind.Stored.GVK)
	return partial
}
