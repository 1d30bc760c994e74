package operator_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/operator/garbagecollector"
	"operatord.io/operatord/internal/operator/namespace"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

func ownedBy(owners ...controller.Object) (refs []metav1.OwnerReference) {
	for _, o := range owners {
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.GetName(), UID: o.GetUID()}
		if gvk := o.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
			ref.APIVersion, ref.Kind = gvk.GroupVersion().String(), gvk.Kind
		}
		refs = append(refs, ref)
	}
	return refs
}

func blocking(refs []metav1.OwnerReference) []metav1.OwnerReference {
	yes := true
	for i := range refs {
		refs[i].BlockOwnerDeletion = &yes
	}
	return refs
}

func (w *world) makeConfigMap(ns, name string, refs []metav1.OwnerReference, finalizers ...string) *corev1.ConfigMap {
	w.t.Helper()
	c := configMap(ns, name)
	c.OwnerReferences, c.Finalizers = refs, finalizers
	w.do(w.Create(ctx, c))
	return c
}

func (w *world) untilGone(names ...string) {
	w.t.Helper()
	w.until(fmt.Sprint(names, " to go"), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return w.there(configMaps, "default", name) })
	})
}

func TestBackground(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	a := w.makeConfigMap("default", "a", nil)
	b := w.makeConfigMap("default", "b", ownedBy(a))
	w.makeConfigMap("default", "c", ownedBy(b))
	other := w.makeConfigMap("default", "other", nil)
	w.makeConfigMap("default", "shared", ownedBy(a, other))
	w.delete(configMaps, "default", "a", background)
	w.untilGone("a", "b", "c")
	w.until("the dead owner to be taken off", func() bool {
		refs := w.get(configMaps, "default", "shared").GetOwnerReferences()
		return len(refs) == 1 && refs[0].UID == other.UID
	})

	// Made with an owner that is gone already.
	w.makeConfigMap("default", "late", ownedBy(a))
	w.untilGone("late")

	// The same name isn't the same owner.
	again := w.makeConfigMap("default", "again", nil)
	w.makeConfigMap("default", "child", ownedBy(again))
	w.delete(configMaps, "default", "again", orphan)
	w.untilGone("again")
	w.makeConfigMap("default", "again", nil)
	w.makeConfigMap("default", "stranger", ownedBy(again))
	w.untilGone("stranger")
	if !w.there(configMaps, "default", "child") || !w.there(configMaps, "default", "again") {
		t.Error("too much was deleted")
	}
}

func TestOrphan(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	a := w.makeConfigMap("default", "a", nil)
	other := w.makeConfigMap("default", "other", nil)
	w.makeConfigMap("default", "b", ownedBy(a))
	w.makeConfigMap("default", "c", ownedBy(a, other))
	w.delete(configMaps, "default", "a", orphan)
	w.untilGone("a")
	if refs := w.get(configMaps, "default", "b").GetOwnerReferences(); len(refs) != 0 {
		t.Errorf("an orphan has owners %v", refs)
	}
	if refs := w.get(configMaps, "default", "c").GetOwnerReferences(); len(refs) != 1 || refs[0].UID != other.UID {
		t.Errorf("owners %v, want the one that is left", refs)
	}
}

func TestForeground(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	a := w.makeConfigMap("default", "a", nil)
	b := w.makeConfigMap("default", "b", blocking(ownedBy(a)))
	w.makeConfigMap("default", "c", blocking(ownedBy(b)), "example.com/hold")
	w.makeConfigMap("default", "free", ownedBy(a), "example.com/hold") // doesn't block
	w.delete(configMaps, "default", "a", foreground)
	w.until("the leaves to be deleted", func() bool {
		c, free := w.item(configMaps, "default", "c"), w.item(configMaps, "default", "free")
		return c != nil && c.Deleting() && free != nil && free.Deleting()
	})
	if !w.there(configMaps, "default", "a") || !w.there(configMaps, "default", "b") {
		t.Error("an owner went before what blocks it")
	}
	w.merge(configMaps, "default", "c", `{"metadata":{"finalizers":null}}`)
	w.untilGone("a", "b", "c")
	if !w.there(configMaps, "default", "free") {
		t.Error("a finalizer was overrun")
	}

	// The finalizer alone, without a deletion, means nothing.
	alive := w.makeConfigMap("default", "alive", nil, metav1.FinalizerDeleteDependents)
	w.makeConfigMap("default", "dependent", blocking(ownedBy(alive)))
	before := w.ran(garbagecollector.Name)
	w.merge(configMaps, "default", "dependent", `{"metadata":{"ownerReferences":null}}`)
	w.merge(configMaps, "default", "dependent", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"alive","uid":"`+string(alive.UID)+`"}]}}`)
	w.until("the dependent to be looked at", func() bool { return w.ran(garbagecollector.Name) > before })
	if i := w.item(configMaps, "default", "dependent"); i == nil || i.Deleting() {
		t.Error("the dependent of a live owner was deleted")
	}

	// An owner of two, of which one is deleted in the foreground: the other keeps it.
	p, q := w.makeConfigMap("default", "p", nil), w.makeConfigMap("default", "q", nil)
	w.makeConfigMap("default", "child", blocking(ownedBy(p, q)))
	w.delete(configMaps, "default", "p", foreground)
	w.untilGone("p")
	if refs := w.get(configMaps, "default", "child").GetOwnerReferences(); len(refs) != 1 || refs[0].UID != q.UID {
		t.Errorf("owners %v", refs)
	}
}

// S49: a second foreground delete, and a kill between the mark and the children's deletes.
func TestS49ForegroundTwiceAndRestarted(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir) // nobody collects yet
	a := w.makeConfigMap("default", "a", nil, "example.com/hold")
	w.makeConfigMap("default", "b", blocking(ownedBy(a)))
	w.delete(configMaps, "default", "a", foreground)
	w.delete(configMaps, "default", "a", foreground)
	w.stop()

	w = open(t, dir, garbagecollector.Name)
	w.untilGone("b")
	w.until("only the foreign finalizer to be left", func() bool {
		return slices.Equal(w.get(configMaps, "default", "a").GetFinalizers(), []string{"example.com/hold"})
	})
	w.merge(configMaps, "default", "a", `{"metadata":{"finalizers":null}}`)
	w.untilGone("a")
}

// S47: owners that can't be owners, and owners of kinds that aren't served (yet), over restarts.
func TestS47InvalidOwners(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, crd.Name)
	w.installWidgets()
	w.do(w.Create(ctx, ns("elsewhere")))
	owner := widget("default", "owner")
	w.do(w.Create(ctx, owner))
	live := w.makeConfigMap("default", "live", nil)

	w.makeConfigMap("default", "owned", ownedBy(live))
	w.makeConfigMap("default", "owned-by-widget", ownedBy(owner))
	w.makeConfigMap("elsewhere", "across", ownedBy(live))
	w.makeConfigMap("default", "unknown-kind", []metav1.OwnerReference{{APIVersion: "none.example.com/v1", Kind: "None", Name: "x", UID: "x"}})
	w.makeConfigMap("default", "unknown-version", []metav1.OwnerReference{{APIVersion: "example.com/v9", Kind: "Widget", Name: "x", UID: "x"}})
	cluster := ns("cluster-scoped")
	cluster.OwnerReferences = ownedBy(live)
	w.do(w.Create(ctx, cluster))
	gone := ns("cluster-scoped-gone")
	gone.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}}
	w.do(w.Create(ctx, gone))
	w.stop()

	for range 5 {
		w = open(t, dir, crd.Name, garbagecollector.Name)
		w.until("everything with owners to be looked at", func() bool { return w.ran(garbagecollector.Name) >= 6 })
		w.until("the one in another namespace to go", func() bool { return !w.there(configMaps, "elsewhere", "across") })
		for _, name := range []string{"owned", "owned-by-widget", "unknown-kind", "unknown-version"} {
			if !w.there(configMaps, "default", name) {
				t.Errorf("%s was deleted", name)
			}
		}
		for _, name := range []string{"cluster-scoped", "cluster-scoped-gone"} {
			if i := w.item(namespace.Kind(), "", name); i == nil || i.Deleting() {
				t.Errorf("%s was deleted", name)
			}
		}
		var told []string
		w.until("the Events", func() bool {
			w.do(w.set.AtLeast(ctx, ""))
			told = nil
			for obj := range w.set.List(events, controller.Query{}) {
				if e := obj.(*corev1.Event); e.Reason == "OwnerRefInvalidNamespace" && e.Type == "Warning" {
					told = append(told, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name)
				}
			}
			return len(told) >= 3
		})
		slices.Sort(told)
		equal(t, "Events", told, []string{"ConfigMap across", "Namespace cluster-scoped", "Namespace cluster-scoped-gone"})
		w.stop()
	}

	// The kind appears: now it is known that the owner isn't there.
	w = open(t, dir, crd.Name, garbagecollector.Name)
	none := definition("None", nil)
	none.Name, none.Spec.Group = "nones.none.example.com", "none.example.com"
	w.do(w.Create(ctx, none))
	w.until("the dependent to go", func() bool { return !w.there(configMaps, "default", "unknown-kind") })

	// A CRD goes, its objects with it, and so do their dependents.
	w.delete(crd.Kind(), "", "widgets.example.com")
	w.until("the dependent of a custom object to go", func() bool { return !w.there(configMaps, "default", "owned-by-widget") })
	if !w.there(configMaps, "default", "owned") {
		t.Error("what has a live owner was deleted")
	}
}

// Owner references name a version that is no longer served: the owner is found all the same, there or gone.
func TestOwnersInAVersionThatIsNotServed(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name, garbagecollector.Name)
	w.installWidgets()
	owners := map[string]*unstructured.Unstructured{}
	for _, name := range []string{"stays", "background", "foreground", "orphan"} {
		o := widget("default", name)
		w.do(w.Create(ctx, o))
		owners[name] = o
		w.makeConfigMap("default", name, blocking(ownedBy(o)))
	}
	w.merge(crd.Kind(), "", "widgets.example.com", `{"spec":{"versions":[
		{"name":"v1","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
		{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	w.until("v2 to be served alone", func() bool { k := w.kind(widgets); return len(k.Versions) == 1 && k.Versions[0].Name == "v2" })
	w.delete(widgets, "default", "background", background)
	w.delete(widgets, "default", "foreground", foreground)
	w.delete(widgets, "default", "orphan", orphan)
	w.makeConfigMap("default", "late", ownedBy(owners["background"]))
	w.untilGone("background", "foreground", "late")
	w.until("the owners to go", func() bool {
		return !w.there(widgets, "default", "foreground") && !w.there(widgets, "default", "orphan")
	})
	if refs := w.get(configMaps, "default", "orphan").GetOwnerReferences(); len(refs) > 0 {
		t.Errorf("the orphan's owners are %v", refs)
	}
	if i := w.item(configMaps, "default", "stays"); i == nil || i.Deleting() || len(i.Owners()) != 1 {
		t.Errorf("the dependent of a live owner is %+v", i)
	}
}

// A model of ownership: what must be left after a deletion.
type family map[string]map[string]bool // name → its owners

func (f family) delete(name string, how metav1.DeletionPropagation) {
	delete(f, name)
	if how == orphan {
		for _, owners := range f {
			delete(owners, name)
		}
		return
	}
	for again := true; again; {
		again = false
		for child, owners := range f {
			alive := 0
			for owner := range owners {
				if _, ok := f[owner]; ok {
					alive++
				}
			}
			switch {
			case len(owners) > 0 && alive == 0:
				delete(f, child)
				again = true
			case alive < len(owners):
				maps.DeleteFunc(owners, func(owner string, _ bool) bool { _, ok := f[owner]; return !ok })
				again = true
			}
		}
	}
}

// Whatever the graph and the order of deletions: what is left is what the model says, and a collector that
// starts afterwards finds nothing to do.
func TestCollectsExactlyWhatIsUnowned(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, garbagecollector.Name)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		name := func(i int) string { return fmt.Sprintf("r%d-%d", run, i) }
		n := rapid.IntRange(1, 8).Draw(r, "objects")
		f, uids := family{}, map[string]types.UID{}
		for i := range n {
			owners := map[string]bool{}
			var refs []metav1.OwnerReference
			for j := range i {
				if rapid.Bool().Draw(r, fmt.Sprint(i, " is owned by ", j)) {
					owners[name(j)] = true
					ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name(j), UID: uids[name(j)]}
					if rapid.Bool().Draw(r, "blocks") {
						ref = blocking([]metav1.OwnerReference{ref})[0]
					}
					refs = append(refs, ref)
				}
			}
			c := configMap("default", name(i))
			c.OwnerReferences = refs
			if err := w.Create(ctx, c); err != nil {
				r.Fatal(err)
			}
			uids[name(i)] = c.UID
			f[name(i)] = owners
		}
		for len(f) > 0 && rapid.IntRange(0, 3).Draw(r, "go on") > 0 {
			names := slices.Sorted(maps.Keys(f))
			victim := rapid.SampledFrom(names).Draw(r, "delete")
			how := rapid.SampledFrom([]metav1.DeletionPropagation{background, foreground, orphan}).Draw(r, "how")
			f.delete(victim, how)
			if err := w.Delete(ctx, configMaps, key("default", victim), metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
				r.Fatal(err)
			}
			want := slices.Sorted(maps.Keys(f))
			var got []string
			same := func() bool {
				w.do(w.set.AtLeast(ctx, ""))
				got = nil
				for i := range n {
					item, ok := w.set.Metadata().Get(configMaps, key("default", name(i)))
					if !ok {
						continue
					}
					got = append(got, name(i))
					if len(item.Owners()) != len(f[name(i)]) || item.Deleting() {
						return false
					}
				}
				return slices.Equal(got, want)
			}
			w.until(fmt.Sprintf("%v to be left after %s of %s", want, how, victim), same)
		}
	})
	w.do(w.set.AtLeast(ctx, ""))
	rev := w.store.Status().Rev
	owned := 0
	for item := range w.set.Metadata().OfKind(configMaps) {
		if len(item.Owners()) > 0 {
			owned++
		}
	}
	w.stop()
	w = open(t, dir, garbagecollector.Name)
	w.until("everything to be looked at again", func() bool { return w.ran(garbagecollector.Name) >= owned })
	if now := w.store.Status().Rev; now != rev {
		t.Errorf("a collector with nothing to do wrote: revision %d became %d", rev, now)
	}
}

// A write that lost a race looks again, and does nothing if there is nothing to do any more.
func TestAdoptedJustInTime(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	for i := range 30 {
		a := w.makeConfigMap("default", fmt.Sprint("a-", i), nil)
		b := w.makeConfigMap("default", fmt.Sprint("b-", i), nil)
		child := w.makeConfigMap("default", fmt.Sprint("child-", i), ownedBy(a))
		w.delete(configMaps, "default", a.Name)
		child.OwnerReferences = ownedBy(b)
		err := w.Update(ctx, child)
		w.do(w.set.AtLeast(ctx, ""))
		switch {
		case err == nil:
			if !w.there(configMaps, "default", child.Name) {
				t.Fatalf("%s was collected although its owner %s is there", child.Name, b.Name)
			}
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			t.Fatal(errors.Join(errors.New("adopt"), err))
		}
	}
}
