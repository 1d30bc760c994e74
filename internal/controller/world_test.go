package controller

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// world is a Source and a Writer over a few objects in memory, whose views lag behind its writes. The real
// ones are tested together with the store; here time and faults are what matters.
type world struct {
	lag time.Duration // of views and events behind writes

	mu      sync.Mutex
	rev     uint64
	stored  map[ref]Object
	seen    map[ref]Object
	seenRev uint64
	last    map[ref]uint64 // the newest revision of each that was seen
	moved   chan struct{}
	subs    map[schema.GroupKind][]func(old, new Object)
	events  []*corev1.Event
	writes  []string
	refuse  func(op string, obj Object) error // nil: no fault
}

type ref struct {
	gk  schema.GroupKind
	key Key
}

var _ interface {
	Source
	Writer
} = (*world)(nil)

func newWorld() *world {
	return &world{stored: map[ref]Object{}, seen: map[ref]Object{}, last: map[ref]uint64{}, moved: make(chan struct{}), subs: map[schema.GroupKind][]func(old, new Object){}}
}

func refOf(obj Object) ref {
	return ref{obj.GetObjectKind().GroupVersionKind().GroupKind(), Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
}

func copyOf(obj Object) Object { return obj.DeepCopyObject().(Object) }

// Get reads the view.
func (w *world) Get(gk schema.GroupKind, key Key) (Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj, ok := w.seen[ref{gk, key}]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)
}

func (w *world) List(gk schema.GroupKind, q Query) iter.Seq[Object] {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Object
	for r, obj := range w.seen {
		if r.gk == gk && (q.Namespace == "" || r.key.Namespace == q.Namespace) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b Object) int {
		return len(a.GetName()) - len(b.GetName())
	})
	return slices.Values(out)
}

func (w *world) AtLeast(ctx context.Context, revision string) error {
	return w.AtLeastOf(ctx, revision)
}

func (w *world) AtLeastOf(ctx context.Context, revision string, _ ...schema.GroupKind) error {
	w.mu.Lock()
	want := w.rev
	w.mu.Unlock()
	if revision != "" {
		want, _ = strconv.ParseUint(revision, 10, 64)
	}
	for {
		w.mu.Lock()
		there, moved := w.seenRev >= want, w.moved
		w.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Subscribe(gk schema.GroupKind, fn func(old, new Object)) {
	w.subs[gk] = append(w.subs[gk], fn)
}
func (w *world) Synced(context.Context, schema.GroupKind) error         { return nil }
func (w *world) SyncedIfServed(context.Context, schema.GroupKind) error { return nil }

// store makes obj (nil: nothing) the present state, and the view's after the lag.
func (w *world) store(r ref, obj Object, what string) {
	w.rev++
	rev := w.rev
	w.writes = append(w.writes, what)
	if obj == nil {
		delete(w.stored, r)
	} else {
		obj.SetResourceVersion(strconv.FormatUint(rev, 10))
		obj = copyOf(obj)
		w.stored[r] = obj
	}
	show := func() {
		w.mu.Lock()
		if w.last[r] > rev { // timers that fire at one moment do so in any order
			w.mu.Unlock()
			return
		}
		w.last[r] = rev
		old := w.seen[r]
		if obj == nil {
			delete(w.seen, r)
		} else {
			w.seen[r] = obj
		}
		w.seenRev = max(w.seenRev, rev)
		close(w.moved)
		w.moved = make(chan struct{})
		subs := w.subs[r.gk]
		w.mu.Unlock()
		for _, fn := range subs {
			fn(old, obj)
		}
	}
	if w.lag == 0 {
		w.mu.Unlock()
		show()
		w.mu.Lock()
		return
	}
	time.AfterFunc(w.lag, show)
}

func (w *world) Create(_ context.Context, obj Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		if err := w.refuse("create", obj); err != nil {
			return err
		}
	}
	if e, ok := obj.(*corev1.Event); ok {
		for _, have := range w.events {
			if have.Name == e.Name {
				return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
			}
		}
		w.events = append(w.events, e)
		return nil
	}
	r := refOf(obj)
	if _, ok := w.stored[r]; ok {
		return apierrors.NewAlreadyExists(schema.GroupResource{Group: r.gk.Group, Resource: r.gk.Kind}, r.key.Name)
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + r.key.Name + "-" + strconv.FormatUint(w.rev, 10)))
	}
	w.store(r, obj, "create "+r.key.Name)
	return nil
}

// conflict is what rest.Local answers, present revision included.
type conflict struct {
	error
	present string
}

func (c conflict) Unwrap() error           { return c.error }
func (c conflict) PresentRevision() string { return c.present }

func (w *world) Update(_ context.Context, obj Object, subresource ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		if err := w.refuse("update", obj); err != nil {
			return err
		}
	}
	r := refOf(obj)
	have, ok := w.stored[r]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: r.gk.Group, Resource: r.gk.Kind}, r.key.Name)
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != have.GetResourceVersion() {
		return conflict{apierrors.NewConflict(schema.GroupResource{Resource: r.gk.Kind}, r.key.Name, nil), have.GetResourceVersion()}
	}
	what := "update"
	if len(subresource) > 0 {
		what = subresource[0]
	}
	w.store(r, obj, what+" "+r.key.Name)
	return nil
}

func (w *world) Patch(_ context.Context, gk schema.GroupKind, key Key, _ types.PatchType, _ []byte, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, ok := w.stored[ref{gk, key}]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)
	}
	w.store(ref{gk, key}, copyOf(have), "patch "+key.Name)
	return nil
}

func (w *world) Apply(ctx context.Context, obj Object) error { return w.Update(ctx, obj) }

func (w *world) Delete(_ context.Context, gk schema.GroupKind, key Key, _ metav1.DeleteOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.stored[ref{gk, key}]; !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)
	}
	w.store(ref{gk, key}, nil, "delete "+key.Name)
	return nil
}

// change edits the present state of an object as somebody else would.
func (w *world) change(gk schema.GroupKind, key Key, edit func(Object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	obj := copyOf(w.stored[ref{gk, key}])
	edit(obj)
	w.store(ref{gk, key}, obj, "change "+key.Name)
}

// present is the stored state.
func (w *world) present(gk schema.GroupKind, key Key) Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored[ref{gk, key}]
}

func (w *world) names(gk schema.GroupKind) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for r := range maps.Keys(w.stored) {
		if r.gk == gk {
			out = append(out, r.key.Name)
		}
	}
	slices.Sort(out)
	return out
}

// count is the number of writes of one sort so far.
func (w *world) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, write := range w.writes {
		if write == what {
			n++
		}
	}
	return n
}

var configMaps = schema.GroupKind{Kind: "ConfigMap"}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
}

func key(name string) Key { return Key{Namespace: "default", Name: name} }
