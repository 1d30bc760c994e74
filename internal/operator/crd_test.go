package operator_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/operator/crd"
)

const (
	accepted    = "NamesAccepted=True/NoConflicts: no conflicts found"
	established = "Established=True/InitialNamesAccepted: the initial names have been accepted"
)

func TestEstablish(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.installWidgets()
	// The registry knows before the revision is visible.
	w.until("the conditions", func() bool { return len(w.crdConditions("widgets.example.com")) > 0 })
	equal(t, "conditions", w.crdConditions("widgets.example.com"), []string{accepted, established})
	d := w.get(crd.Kind(), "", "widgets.example.com").(*apiextensionsv1.CustomResourceDefinition)
	if n := d.Status.AcceptedNames; n.Kind != "Widget" || n.ListKind != "WidgetList" || n.Singular != "widget" || n.Plural != "widgets" {
		t.Errorf("accepted %+v", n)
	}
	if !slices.Equal(d.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("stored versions %v", d.Status.StoredVersions)
	}
	w.do(w.Create(ctx, widget("default", "a")))
}

// A controller whose kind isn't served yet waits for it, and holds up nobody.
func TestControllersWaitForTheirKind(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name, "widget")
	w.makeConfigMap("default", "a", nil)
	if n := w.ran("widget"); n != 0 {
		t.Errorf("%d reconciles of a kind that isn't served", n)
	}
	w.installWidgets() // crd works meanwhile
	w.do(w.Create(ctx, widget("default", "a")))
	w.until("the reconcile", func() bool { return w.ran("widget") > 0 })
	w.delete(crd.Kind(), "", "widgets.example.com")
	w.until("the kind to go", func() bool { return !w.there(crd.Kind(), "", "widgets.example.com") })
	before := w.ran("widget")
	w.installWidgets()
	w.do(w.Create(ctx, widget("default", "b")))
	w.until("the reconcile of the kind made anew", func() bool { return w.ran("widget") > before })
}

// S34: Established never precedes serving.
func TestS34EstablishedMeansServed(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	for i := range 50 {
		kind := fmt.Sprint("Thing", i)
		d := definition(kind, nil)
		w.do(w.Create(ctx, d))
		w.until("Established", func() bool {
			return slices.Contains(w.crdConditions(d.Name), established)
		})
		thing := widget("default", "a")
		thing.SetKind(kind)
		w.do(w.Create(ctx, thing))
	}
}

// A name belongs to who had it first, until that CRD is gone or gives it up.
func TestNamesConflict(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.do(w.Create(ctx, definition("Widget", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Names.ShortNames = []string{"wd"}
	})))
	w.do(w.set.Synced(ctx, widgets))
	w.do(w.Create(ctx, definition("Gadget", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Names.Kind, d.Spec.Names.ListKind, d.Spec.Names.Singular = "Widget", "GadgetList", "gadget"
		d.Spec.Names.ShortNames = []string{"wd", "gd"}
	})))
	refused := []string{`NamesAccepted=False/KindConflict: "Widget" is already in use`, "Established=False/NotAccepted: not all names are accepted"}
	w.until("the refusal", func() bool { return slices.Equal(w.crdConditions("gadgets.example.com"), refused) })
	names := w.get(crd.Kind(), "", "gadgets.example.com").(*apiextensionsv1.CustomResourceDefinition).Status.AcceptedNames
	if names.Kind != "" || names.ListKind != "GadgetList" || names.Plural != "gadgets" || names.Singular != "gadget" || len(names.ShortNames) != 0 {
		t.Errorf("accepted %+v", names)
	}
	if _, _, ok := w.reg.Lookup("example.com", "v1", "gadgets"); ok {
		t.Error("a CRD without its names is served")
	}

	// A free name in the spec helps at once.
	w.merge(crd.Kind(), "", "gadgets.example.com", `{"spec":{"names":{"kind":"Gizmo"}}}`)
	w.until("the short name to be what is missing", func() bool {
		return w.crdConditions("gadgets.example.com")[0] == `NamesAccepted=False/ShortNamesConflict: "wd" is already in use`
	})
	w.delete(crd.Kind(), "", "widgets.example.com")
	w.until("the names to be free", func() bool {
		return slices.Equal(w.crdConditions("gadgets.example.com"), []string{accepted, established})
	})
}

// Two CRDs that ask for one name at the same moment: exactly one gets it.
func TestNamesAreGivenOnce(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	const n = 8
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			err := w.Create(ctx, definition(fmt.Sprint("Thing", i), func(d *apiextensionsv1.CustomResourceDefinition) {
				d.Spec.Names.Kind, d.Spec.Names.ListKind, d.Spec.Names.Singular = "Same", fmt.Sprint("List", i), fmt.Sprint("one", i)
			}))
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	w.until("every CRD to be looked at", func() bool {
		decided, got := 0, 0
		for i := range n {
			for _, c := range w.crdConditions(fmt.Sprintf("thing%ds.example.com", i)) {
				switch c {
				case accepted:
					decided, got = decided+1, got+1
				case `NamesAccepted=False/KindConflict: "Same" is already in use`:
					decided++
				}
			}
		}
		if got > 1 {
			t.Fatalf("%d CRDs have one kind", got)
		}
		return decided == n && got == 1
	})
}

// Deleting a CRD deletes its objects first; one with a finalizer is waited for, without polling.
func TestTerminate(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.installWidgets()
	for i := range 20 {
		w.do(w.Create(ctx, widget("default", fmt.Sprint("w-", i))))
	}
	held := widget("kube-public", "held")
	held.SetFinalizers([]string{"example.com/hold"})
	w.do(w.Create(ctx, held))
	w.delete(crd.Kind(), "", "widgets.example.com")
	w.until("all but one to go", func() bool {
		n := 0
		for range w.set.Metadata().OfKind(widgets) {
			n++
		}
		return n == 1
	})
	terminating := "Terminating=True/InstanceDeletionInProgress: CustomResource deletion is in progress"
	w.until("the condition", func() bool { return slices.Contains(w.crdConditions("widgets.example.com"), terminating) })
	if err := w.Create(ctx, widget("default", "late")); !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		t.Errorf("create while the CRD is terminating: %v", err)
	}

	// S23: whoever holds it on doesn't make us spin.
	before := w.ran(crd.Name)
	for i := range 20 {
		w.merge(widgets, "kube-public", "held", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
	}
	w.do(w.set.AtLeast(ctx, ""))
	if n := w.ran(crd.Name) - before; n > 3 {
		t.Errorf("%d reconciles while nothing went", n)
	}

	w.merge(widgets, "kube-public", "held", `{"metadata":{"finalizers":null}}`)
	w.until("the CRD to go", func() bool { return !w.there(crd.Kind(), "", "widgets.example.com") })

	w.installWidgets()
	for item := range w.set.Metadata().OfKind(widgets) {
		t.Errorf("%v is in a kind made anew", item.Key)
	}
}

func TestTerminateAfterRestart(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, crd.Name)
	w.installWidgets()
	held := widget("default", "held")
	held.SetFinalizers([]string{"example.com/hold"})
	w.do(w.Create(ctx, held))
	w.delete(crd.Kind(), "", "widgets.example.com")
	w.stop()

	w = open(t, dir, crd.Name)
	w.until("the instance to be deleted", func() bool { i := w.item(widgets, "default", "held"); return i == nil || i.Deleting() })
	w.merge(widgets, "default", "held", `{"metadata":{"finalizers":null}}`)
	w.until("the CRD to go", func() bool { return !w.there(crd.Kind(), "", "widgets.example.com") })
}

func TestNeverEstablishedGoesAtOnce(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.installWidgets()
	w.do(w.Create(ctx, widget("default", "a")))
	w.do(w.Create(ctx, definition("Gadget", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Names.Kind, d.Spec.Names.ListKind, d.Spec.Names.Singular = "Widget", "GadgetList", "gadget"
	})))
	w.delete(crd.Kind(), "", "gadgets.example.com")
	w.until("the CRD to go", func() bool { return !w.there(crd.Kind(), "", "gadgets.example.com") })
	if !w.there(widgets, "default", "a") {
		t.Error("the object of another CRD that has the kind's name was deleted")
	}
}

func TestInstall(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	file := func(d *apiextensionsv1.CustomResourceDefinition) fstest.MapFS {
		d.APIVersion, d.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		data, err := yaml.Marshal(d)
		w.do(err)
		return fstest.MapFS{"crds/widgets.yaml": {Data: data}}
	}
	files := file(definition("Widget", nil))
	w.do(crd.Install(ctx, w.set, w.Local, files))
	// The kind is served, and its view filled, a moment before the write that says Established can be seen.
	w.until("the CRD to be Established", func() bool {
		return apihelpers.IsCRDConditionTrue(w.get(crd.Kind(), "", "widgets.example.com").(*apiextensionsv1.CustomResourceDefinition), apiextensionsv1.Established)
	})
	before := w.get(crd.Kind(), "", "widgets.example.com").GetResourceVersion()
	w.do(crd.Install(ctx, w.set, w.Local, files))
	if rv := w.get(crd.Kind(), "", "widgets.example.com").GetResourceVersion(); rv != before {
		t.Errorf("installed again unchanged: revision %s became %s", before, rv)
	}
	files = file(definition("Widget", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Names.ShortNames = []string{"wd"}
		d.Annotations = map[string]string{"example.com/build": "2"}
	}))
	w.do(crd.Install(ctx, w.set, w.Local, files))
	d := w.get(crd.Kind(), "", "widgets.example.com").(*apiextensionsv1.CustomResourceDefinition)
	if !slices.Equal(d.Spec.Names.ShortNames, []string{"wd"}) || d.Annotations["example.com/build"] != "2" {
		t.Errorf("not updated: %+v", d.Spec.Names)
	}
	w.until("the new name", func() bool {
		k, _ := w.reg.ByKind(widgets)
		return k != nil && slices.Equal(k.ShortNames, []string{"wd"})
	})
	w.do(crd.EnsureNamespaces(ctx, w.Local)) // again, since open did already
	if err := crd.Install(ctx, w.set, w.Local, fstest.MapFS{"a.yaml": {Data: []byte("kind: [")}}); err == nil {
		t.Error("what is no YAML was installed")
	}
}
