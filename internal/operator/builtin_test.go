package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/operator/garbagecollector"
	"operatord.io/operatord/internal/operator/namespace"
	"operatord.io/operatord/internal/resource"
)

var leases = schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}

// imitation is a CRD of a built-in kind's names in another scope and with an unknown version beside the real one.
func imitation(k *resource.Kind, edit func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	return definition(k.Kind, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.Spec.Group = k.Plural+"."+k.Group, k.Group
		d.Annotations = map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/78458"}
		d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
			Plural: k.Plural, Singular: k.Singular, Kind: k.Kind, ListKind: k.ListKind, ShortNames: k.ShortNames,
		}
		d.Spec.Scope = apiextensionsv1.NamespaceScoped
		if k.Namespaced {
			d.Spec.Scope = apiextensionsv1.ClusterScoped
		}
		other := *d.Spec.Versions[0].DeepCopy()
		other.Name, other.Storage = "v9", false
		d.Spec.Versions = append(d.Spec.Versions, other)
		if edit != nil {
			edit(d)
		}
	})
}

// builtins are the built-in kinds in whose groups a CRD can be: those with a dot.
func (w *world) builtins() (kinds []*resource.Kind) {
	for _, k := range w.reg.Builtin() {
		if strings.Contains(k.Group, ".") {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// treasure makes objects that an imitation must not touch, and returns how to tell that they are as they were.
func (w *world) treasure() (untouched func(when string)) {
	w.t.Helper()
	w.do(w.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}))
	w.do(w.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}))
	w.do(w.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}))
	w.installWidgets()
	w.do(w.Create(ctx, widget("default", "kept")))
	kept := map[schema.GroupKind]controller.Key{
		leases: key("default", "kept"),
		{Group: rbacv1.GroupName, Kind: "ClusterRole"}: key("", "kept"),
		{Group: rbacv1.GroupName, Kind: "Role"}:        key("default", "kept"),
		crd.Kind():                                     key("", "widgets.example.com"),
		widgets:                                        key("default", "kept"),
	}
	uids := map[schema.GroupKind]types.UID{}
	for gk, k := range kept {
		uids[gk] = w.item(gk, k.Namespace, k.Name).UID()
	}
	return func(when string) {
		w.t.Helper()
		for gk, k := range kept {
			if item := w.item(gk, k.Namespace, k.Name); item == nil || item.Deleting() || item.UID() != uids[gk] {
				w.t.Errorf("%s: %s %s is not what it was: %+v", when, gk, k.Name, item)
			}
		}
	}
}

// onlyBuiltin tells whether a kind is the only one of its names, and the built-in one.
func (w *world) onlyBuiltin(k *resource.Kind) {
	w.t.Helper()
	n := 0
	for _, served := range w.reg.Kinds() {
		if served.Group == k.Group && (served.Plural == k.Plural || served.Kind == k.Kind) {
			n++
		}
	}
	byKind, _ := w.reg.ByKind(k.GroupKind)
	byResource, _ := w.reg.ByResource(k.GroupResource())
	if _, _, served := w.reg.Lookup(k.Group, "v9", k.Plural); n != 1 || byKind != k || byResource != k || served {
		w.t.Errorf("%s is served %d times, also in v9: %t", k.GroupKind, n, served)
	}
}

// S82: a CRD of a built-in kind's name is taken in, never stands for it, and deleting it deletes nothing else.
func TestS82BuiltInKindsWin(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name, garbagecollector.Name, namespace.Name)
	untouched := w.treasure()
	for _, k := range w.builtins() {
		d := imitation(k, nil)
		w.do(w.Create(ctx, d))
		refused := fmt.Sprintf("NamesAccepted=False/BuiltInKind: %s with kind %s is built in and stays as it is; "+
			"this definition is never served, and deleting it deletes nothing else", d.Name, k.Kind)
		w.until("the conditions of "+d.Name, func() bool {
			got := w.crdConditions(d.Name)
			return slices.Contains(got, refused) && slices.Contains(got, "Established=False/NotAccepted: not all names are accepted")
		})
		w.onlyBuiltin(k)
		w.delete(crd.Kind(), "", d.Name)
		w.until(d.Name+" to go", func() bool { return !w.there(crd.Kind(), "", d.Name) })
		untouched("after " + d.Name)
	}

	// A namespace is emptied of the built-in's objects, with the imitation there.
	w.do(w.Create(ctx, imitation(w.kind(leases), nil)))
	w.do(w.Create(ctx, ns("emptied")))
	w.do(w.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "emptied", Name: "a"}}))
	w.delete(namespace.Kind(), "", "emptied")
	w.until("the namespace to go", func() bool { return !w.there(namespace.Kind(), "", "emptied") })
	untouched("after a namespace")
}

func (w *world) kind(gk schema.GroupKind) *resource.Kind {
	w.t.Helper()
	k, ok := w.reg.ByKind(gk)
	if !ok {
		w.t.Fatalf("%s isn't served", gk)
	}
	return k
}

// One name of a built-in kind is enough to be refused; a resource of its own in a built-in kind's group is served.
func TestNamesOfBuiltInKindsAreTaken(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	lease := w.kind(leases)
	for _, c := range []struct {
		name string
		edit func(*apiextensionsv1.CustomResourceDefinitionNames)
		want string
	}{
		{"kind", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.Kind = "Lease" }, "NamesAccepted=False/BuiltInKind: "},
		{"listkind", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.ListKind = "LeaseList" }, `NamesAccepted=False/ListKindConflict: "LeaseList" is already in use`},
		{"singular", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.Singular = "lease" }, `NamesAccepted=False/SingularConflict: "lease" is already in use`},
		{"plural-as-singular", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.Singular = "leases" }, `NamesAccepted=False/SingularConflict: "leases" is already in use`},
		{"short", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.ShortNames = []string{"lease"} }, `NamesAccepted=False/ShortNamesConflict: "lease" is already in use`},
		{"case", func(n *apiextensionsv1.CustomResourceDefinitionNames) { n.Kind = "LEASE" }, accepted},
		{"none", func(*apiextensionsv1.CustomResourceDefinitionNames) {}, accepted},
	} {
		d := imitation(lease, func(d *apiextensionsv1.CustomResourceDefinition) {
			plural := strings.ReplaceAll(c.name, "-", "") + "ish"
			d.Name = plural + "." + d.Spec.Group
			d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural + "one", Kind: "Kind" + plural, ListKind: "List" + plural}
			c.edit(&d.Spec.Names)
		})
		w.do(w.Create(ctx, d))
		w.until(c.name+": "+c.want, func() bool {
			return slices.ContainsFunc(w.crdConditions(d.Name), func(got string) bool { return strings.HasPrefix(got, c.want) })
		})
		w.onlyBuiltin(lease)
		if _, _, served := w.reg.Lookup(d.Spec.Group, "v1", d.Spec.Names.Plural); served != (c.want == accepted) {
			t.Errorf("%s: served is %t", c.name, served)
		}
	}
}

// A CRD that was served before the kind was built in: the built-in takes over its objects, whole, and keeps them
// when the CRD is deleted.
func TestS82ServedBeforeTheKindWasBuiltIn(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir) // no operator: the status is what an earlier release wrote
	w.do(w.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}))
	w.do(w.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}))
	uid := w.item(leases, "default", "kept").UID()
	for _, k := range w.builtins() {
		d := imitation(k, nil)
		w.do(w.Create(ctx, d))
		w.do(w.Patch(ctx, crd.Kind(), key("", d.Name), types.MergePatchType, fmt.Appendf(nil, `{"status":{
			"acceptedNames":{"plural":%q,"singular":%q,"kind":%q,"listKind":%q},
			"conditions":[{"type":"NamesAccepted","status":"True","reason":"NoConflicts","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"},
				{"type":"Established","status":"True","reason":"InitialNamesAccepted","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
			k.Plural, k.Singular, k.Kind, k.ListKind), "status"))
		w.onlyBuiltin(k)
	}
	// One is deleted before anybody has looked at it.
	w.delete(crd.Kind(), "", "leases.coordination.k8s.io")
	w.stop()

	w = open(t, dir, crd.Name, garbagecollector.Name)
	w.until("the deleted one to go", func() bool { return !w.there(crd.Kind(), "", "leases.coordination.k8s.io") })
	for _, k := range w.builtins() {
		name := k.Plural + "." + k.Group
		if !w.there(crd.Kind(), "", name) {
			continue
		}
		w.onlyBuiltin(k)
		w.until(name+" to be told", func() bool {
			return slices.Contains(w.crdConditions(name), "Established=False/NotAccepted: not all names are accepted")
		})
		w.delete(crd.Kind(), "", name)
		w.until(name+" to go", func() bool { return !w.there(crd.Kind(), "", name) })
	}
	lease, role := w.item(leases, "default", "kept"), w.item(schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRole"}, "", "kept")
	if lease == nil || lease.Deleting() || lease.UID() != uid || role == nil || role.Deleting() {
		t.Errorf("the Lease is %+v, the ClusterRole %+v", lease, role)
	}
}

// A status that names another's resource or kind gives a definition nothing of it, least of all to delete.
func TestNamesInAStatusGiveNothingOfOthers(t *testing.T) {
	for _, forged := range []string{
		`{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"}`,
		`{"plural":"gadgets","singular":"gadget","kind":"Widget","listKind":"WidgetList"}`,
		`{"plural":"widgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"}`,
	} {
		dir := t.TempDir()
		w := open(t, dir, crd.Name)
		w.installWidgets()
		w.do(w.Create(ctx, widget("default", "kept")))
		uid := w.item(widgets, "default", "kept").UID()
		w.do(w.Create(ctx, definition("Gadget", nil)))
		w.do(w.set.Synced(ctx, schema.GroupKind{Group: "example.com", Kind: "Gadget"}))
		w.stop()

		w = open(t, dir)
		w.do(w.Patch(ctx, crd.Kind(), key("", "gadgets.example.com"), types.MergePatchType, []byte(`{"status":{"acceptedNames":`+forged+`}}`), "status"))
		w.delete(crd.Kind(), "", "gadgets.example.com")
		w.stop()

		w = open(t, dir, crd.Name)
		w.until("the definition to go", func() bool { return !w.there(crd.Kind(), "", "gadgets.example.com") })
		if i := w.item(widgets, "default", "kept"); i == nil || i.Deleting() || i.UID() != uid {
			t.Errorf("%s: the Widget is %+v", forged, i)
		}
		w.stop()
	}
}

// Our own definitions can't be taken by others of their name, scope or kind, whether ours are there or not.
func TestOwnDefinitionsAreOurs(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	own, err := crd.Definitions(api.CRDs)
	w.do(err)
	for _, want := range own {
		other := want.DeepCopy()
		other.Spec.Scope = apiextensionsv1.ClusterScoped
		w.do(w.Create(ctx, other))
		w.until(want.Name+" to be refused", func() bool {
			return slices.ContainsFunc(w.crdConditions(want.Name), func(c string) bool {
				return strings.HasPrefix(c, "Established=False/NotAsInstalled: "+want.Name+" is operatord's own, Namespaced with kind "+want.Spec.Names.Kind)
			})
		})
	}
	thief := definition("Thief", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.Spec.Group = "thiefs.operatord.io", "operatord.io"
		d.Spec.Names.Kind, d.Spec.Names.ListKind, d.Spec.Names.Singular = "Cluster", "ThiefList", "thief"
	})
	w.do(w.Create(ctx, thief))
	w.until("the kind to be refused", func() bool {
		return slices.Contains(w.crdConditions(thief.Name), `NamesAccepted=False/KindConflict: "Cluster" is already in use`)
	})
	// A start makes them right.
	w.do(crd.Install(ctx, w.set, w.Local, api.CRDs))
	for _, want := range own {
		w.do(w.set.Synced(ctx, schema.GroupKind{Group: want.Spec.Group, Kind: want.Spec.Names.Kind}))
		if k := w.kind(schema.GroupKind{Group: want.Spec.Group, Kind: want.Spec.Names.Kind}); !k.Namespaced {
			t.Errorf("%s is served cluster-scoped", k.GroupKind)
		}
	}
}
