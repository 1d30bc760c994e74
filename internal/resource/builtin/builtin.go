// Package builtin makes the kinds that are compiled in, one file a group.
//
// Types, defaulting, conversion and validation are Kubernetes' own (k8s.io/kubernetes/pkg/apis/…), with the
// internal types as the hub. So are the strategies where they can be had without an API server's storage
// and clients; the others are written here after upstream's, in a few lines each. Field types for server-side
// apply come from the published OpenAPI documents, which are read at a kind's first write.
package builtin

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

// Kinds makes all kinds that are compiled in, in the order in which discovery lists them.
func Kinds() []*resource.Kind {
	b := newBuilder()
	var kinds []*resource.Kind
	for _, group := range []func(*builder) []*resource.Kind{
		coreGroup, apiextensionsGroup, appsGroup, batchGroup, coordinationGroup, eventsGroup, rbacGroup,
	} {
		kinds = append(kinds, group(b)...)
	}
	return kinds
}

// builder is what the groups' files make kinds with.
type builder struct {
	scheme *runtime.Scheme
	typed  *resource.Typed
	types  map[string]func() (managedfields.TypeConverter, error) // by set
}

func newBuilder() *builder {
	scheme := NewScheme()
	return &builder{
		scheme: scheme,
		typed:  resource.NewTyped(scheme),
		types:  map[string]func() (managedfields.TypeConverter, error){},
	}
}

// definition describes a kind with one served version.
type definition struct {
	gvk        schema.GroupVersionKind
	stored     schema.GroupVersionKind // zero: gvk
	object     runtime.Object          // the version's Go type
	plural     string
	singular   string
	shortNames []string
	categories []string
	namespaced bool
	verbs      []string // nil: all

	strategy      resource.Strategy
	subresources  map[string]*resource.Subresource
	resets        map[string]map[fieldpath.APIVersion]fieldpath.Filter // by subresource, "" for the kind
	fields        []string
	values        func(json []byte) (fields.Set, error)
	columns       resource.Columns
	returnDeleted bool
	storedGroup   *string
	typeSet       string // suffix of the set of field types, where the group and version have several
}

// kind makes a Kind of its description.
func (b *builder) kind(d definition) *resource.Kind {
	if d.stored.Empty() {
		d.stored = d.gvk
	}
	if d.verbs == nil {
		d.verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	}
	v := &resource.Version{
		Name:         d.gvk.Version,
		GVK:          d.gvk,
		Served:       true,
		Codec:        &codec{scheme: b.scheme, typed: b.typed, gvk: d.gvk, stored: d.stored},
		Fields:       b.selectors(d),
		Columns:      d.columns,
		PatchType:    reflect.ValueOf(d.object).Elem().Interface(),
		FieldManager: b.fieldManagers(d),
		ResetFields: func(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
			return d.resets[subresource]
		},
	}
	return &resource.Kind{
		GroupKind:     d.gvk.GroupKind(),
		Plural:        d.plural,
		Singular:      d.singular,
		ListKind:      d.gvk.Kind + "List",
		ShortNames:    d.shortNames,
		Categories:    d.categories,
		Namespaced:    d.namespaced,
		Verbs:         d.verbs,
		Versions:      []*resource.Version{v},
		Stored:        b.storedVersion(d, v),
		Strategy:      d.strategy,
		Subresources:  d.subresources,
		ReturnDeleted: d.returnDeleted,
		StoredGroup:   d.storedGroup,
	}
}

// storedVersion is v, or a version that isn't served under this kind.
func (b *builder) storedVersion(d definition, v *resource.Version) *resource.Version {
	if d.stored == d.gvk {
		return v
	}
	return &resource.Version{
		Name:  d.stored.Version,
		GVK:   d.stored,
		Codec: &codec{scheme: b.scheme, typed: b.typed, gvk: d.stored, stored: d.stored},
	}
}

// fieldManagers makes each subresource's field manager at its first use.
func (b *builder) fieldManagers(d definition) func(string) (*managedfields.FieldManager, error) {
	set := documentName(d.gvk.GroupVersion()) + d.typeSet
	if b.types[set] == nil {
		b.types[set] = sync.OnceValues(func() (managedfields.TypeConverter, error) { return typeConverter(set) })
	}
	types := b.types[set]
	managers := map[string]func() (*managedfields.FieldManager, error){}
	add := func(subresource string, gvk schema.GroupVersionKind) {
		managers[subresource] = sync.OnceValues(func() (*managedfields.FieldManager, error) {
			types, err := types()
			if err != nil {
				return nil, err
			}
			hub := schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
			if gvk != d.gvk {
				hub = gvk.GroupVersion() // bodies of other kinds stay in their version
			}
			return managedfields.NewDefaultFieldManager(types, b.scheme, b.scheme, b.scheme, gvk, hub, subresource, d.resets[subresource])
		})
	}
	add("", d.gvk)
	for name, s := range d.subresources {
		if s.Body.Empty() {
			add(name, d.gvk)
		} else {
			add(name, s.Body)
		}
	}
	return func(subresource string) (*managedfields.FieldManager, error) {
		m := managers[subresource]
		if m == nil {
			return nil, fmt.Errorf("builtin: %s has no subresource %q", d.gvk.Kind, subresource)
		}
		return m()
	}
}

// resets makes filters that leave out whole fields in one version.
func resets(gv schema.GroupVersion, paths ...fieldpath.Path) map[fieldpath.APIVersion]fieldpath.Filter {
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(gv.String()): fieldpath.NewSet(paths...),
	})
}

// at is a path of field names.
func at(names ...any) fieldpath.Path { return fieldpath.MakePathOrDie(names...) }

// metaDoc documents metadata's fields, for table columns.
func metaDoc(field string) string { return metav1.ObjectMeta{}.SwaggerDoc()[field] }
