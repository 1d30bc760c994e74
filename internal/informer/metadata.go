package informer

import (
	"iter"
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
)

// Item is what is known of an object of any kind without decoding it. It is immutable and shared, and so is
// what its methods return.
type Item struct {
	Key  Key
	Rev  uint64
	kind *resource.Kind
	meta *resource.Meta
}

// Kind is its group and kind.
func (i *Item) Kind() schema.GroupKind { return i.kind.GroupKind }

// Resource is its group and plural.
func (i *Item) Resource() schema.GroupResource { return i.kind.GroupResource() }

// UID is its uid.
func (i *Item) UID() types.UID { return i.meta.UID }

// Owners are its owner references.
func (i *Item) Owners() []metav1.OwnerReference { return i.meta.OwnerReferences }

// Finalizers are its finalizers.
func (i *Item) Finalizers() []string { return i.meta.Finalizers }

// Deleting tells whether it has a deletionTimestamp.
func (i *Item) Deleting() bool { return i.meta.DeletionTimestamp != nil }

// Metadata is one view over all kinds. Each kind moves forward on its own: who compares two kinds waits for
// a revision first (Set.WaitFor). All methods may be called concurrently; Subscribe only before the Set runs.
type Metadata struct {
	set         *Set
	subscribers []func(old, new *Item)
}

// Subscribe has fn called for every change of any object, as Set.Subscribe says: in order for one kind,
// concurrently for several.
func (m *Metadata) Subscribe(fn func(old, new *Item)) { m.subscribers = append(m.subscribers, fn) }

// ByUID finds the object with a uid.
func (m *Metadata) ByUID(uid types.UID) (*Item, bool) {
	m.set.mu.RLock()
	defer m.set.mu.RUnlock()
	e, ok := m.set.byUID[uid]
	return e.item(), ok
}

// Get finds an object by its name.
func (m *Metadata) Get(gk schema.GroupKind, key Key) (*Item, bool) {
	m.set.mu.RLock()
	defer m.set.mu.RUnlock()
	v := m.set.views[gk]
	if v == nil {
		return nil, false
	}
	e, ok := v.tree.Get(&entry{Item: Item{Key: key}})
	return e.item(), ok
}

// Dependents are the objects with an owner reference to a uid, ordered by kind, namespace and name.
func (m *Metadata) Dependents(owner types.UID) []*Item {
	m.set.mu.RLock()
	defer m.set.mu.RUnlock()
	out := make([]*Item, 0, len(m.set.byOwner[owner]))
	for uid := range m.set.byOwner[owner] {
		if e := m.set.byUID[uid]; e != nil {
			out = append(out, &e.Item)
		}
	}
	sort.Slice(out, func(i, j int) bool { return itemBefore(out[i], out[j]) })
	return out
}

// InNamespace gives everything in a namespace, ordered by kind and name, as of the call.
func (m *Metadata) InNamespace(namespace string) iter.Seq[*Item] {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	if namespace == "" {
		return items()
	}
	kinds := make([]schema.GroupKind, 0, len(m.set.views))
	for gk, v := range m.set.views {
		if v.kind.Namespaced && v.tree.Len() > 0 {
			kinds = append(kinds, gk)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kindBefore(kinds[i], kinds[j]) })
	parts := make([]iter.Seq[*entry], len(kinds))
	for i, gk := range kinds {
		parts[i] = ascend(m.set.views[gk].snapshot(), namespace, "")
	}
	return items(parts...)
}

// OfKind gives every object of a kind, ordered by namespace and name, as of the call.
func (m *Metadata) OfKind(gk schema.GroupKind) iter.Seq[*Item] {
	m.set.mu.Lock()
	defer m.set.mu.Unlock()
	v := m.set.views[gk]
	if v == nil {
		return items()
	}
	return items(ascend(v.snapshot(), "", ""))
}

func items(parts ...iter.Seq[*entry]) iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for _, part := range parts {
			for e := range part {
				if !yield(&e.Item) {
					return
				}
			}
		}
	}
}

func itemBefore(a, b *Item) bool {
	if a.kind != b.kind && a.Kind() != b.Kind() {
		return kindBefore(a.Kind(), b.Kind())
	}
	if a.Key.Namespace != b.Key.Namespace {
		return a.Key.Namespace < b.Key.Namespace
	}
	return a.Key.Name < b.Key.Name
}

func kindBefore(a, b schema.GroupKind) bool {
	if a.Group != b.Group {
		return a.Group < b.Group
	}
	return a.Kind < b.Kind
}
