package operator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
)

const webhook = `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://localhost:1/convert"}}}`

const notConvertible = "spec.conversion.strategy Webhook between 2 versions is not supported yet: set it to None, or declare one version"

// twoVersions are versions v1 and v2, of which one is the storage version.
func twoVersions(storage string) string {
	var list []string
	for _, name := range []string{"v1", "v2"} {
		list = append(list, fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{"%sOnly":{"type":"string"}}}}}}}`, name, storage == name, name))
	}
	return "[" + strings.Join(list, ",") + "]"
}

const widgetCRD = "widgets.example.com"

// installNarrowWidgets makes Widgets with a schema of one version v1, and one object.
func (w *world) installNarrowWidgets() {
	w.t.Helper()
	w.do(w.Create(ctx, definition("Widget", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"v1Only": {Type: "string"}}},
		}
	})))
	w.do(w.set.Synced(ctx, widgets))
	obj := widget("default", "kept")
	w.do(unstructured.SetNestedField(obj.Object, "kept", "spec", "v1Only"))
	w.do(w.Create(ctx, obj))
}

func (w *world) untilConditions(name string, want ...string) {
	w.t.Helper()
	w.until(fmt.Sprint(want), func() bool {
		got := w.crdConditions(name)
		for _, c := range want {
			if !slices.Contains(got, c) {
				return false
			}
		}
		return true
	})
}

// S89: what can't be served is not Established, and says why; mended, it is.
func TestS89WhatIsNotServedIsNotEstablished(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.do(w.Create(ctx, definition("Widget", nil)))
	w.do(w.set.Synced(ctx, widgets))
	w.delete(crd.Kind(), "", widgetCRD)
	w.until("it to go", func() bool { return !w.there(crd.Kind(), "", widgetCRD) })

	d := definition("Widget", nil)
	two := *d.Spec.Versions[0].DeepCopy()
	two.Name, two.Storage = "v2", false
	d.Spec.Versions = append(d.Spec.Versions, two)
	url := "https://localhost:1/convert"
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url},
		},
	}
	d.Annotations = map[string]string{resource.ServedSpecAnnotation: "forged"}
	w.do(w.Create(ctx, d))
	w.untilConditions(widgetCRD, accepted, "Servable=False/ConversionNotSupported: "+notConvertible, "Established=False/ConversionNotSupported: "+notConvertible)
	if _, served := w.reg.ByKind(widgets); served {
		t.Error("it is served")
	}
	if a := w.get(crd.Kind(), "", widgetCRD).GetAnnotations(); len(a) > 0 {
		t.Errorf("annotations %v", a)
	}

	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	w.untilConditions(widgetCRD, accepted, established)
	if got := w.crdConditions(widgetCRD); len(got) != 2 {
		t.Errorf("conditions %q", got)
	}
	w.do(w.Create(ctx, widget("default", "a")))
}

// S89: a served definition that is edited into one that can't be served goes on as it was, over restarts and further
// edits, until it can be served again.
func TestS89TheLastGoodFormGoesOn(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, crd.Name)
	w.installNarrowWidgets()
	// A new storage version at the same time: with the new versions and no conversion the object would lose its spec.
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":`+webhook+`,"versions":`+twoVersions("v2")+`}}`)

	const said = "ConversionNotSupported: " + notConvertible + "; until then, what was declared before goes on being served"
	asBefore := func(when string) {
		t.Helper()
		w.untilConditions(widgetCRD, accepted, "Established=False/"+said, "Servable=False/"+said)
		w.do(w.set.Synced(ctx, widgets))
		k := w.kind(widgets)
		if len(k.Versions) != 1 || k.Versions[0].Name != "v1" || k.Stored.Name != "v1" {
			t.Errorf("%s: served in %v, stored in %s", when, k.Versions, k.Stored.Name)
		}
		w.merge(widgets, "default", "kept", `{"metadata":{"labels":{"when":"`+strings.ReplaceAll(when, " ", "-")+`"}}}`)
		obj := w.get(widgets, "default", "kept").(*unstructured.Unstructured)
		if text, _, _ := unstructured.NestedString(obj.Object, "spec", "v1Only"); text != "kept" || obj.GetAPIVersion() != "example.com/v1" {
			t.Errorf("%s: the object is %v", when, obj.Object)
		}
	}
	asBefore("edited")
	w.stop()
	w = open(t, dir, crd.Name)
	asBefore("after a restart")
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"names":{"shortNames":["wd"]}},"metadata":{"annotations":{"operatord.io/served-spec":null}}}`)
	asBefore("edited again")
	w.do(w.Patch(ctx, crd.Kind(), key("", widgetCRD), types.MergePatchType, []byte(`{"metadata":{"annotations":{"operatord.io/served-spec":"x"}}}`), "status"))
	asBefore("with a forged form")
	for _, patch := range []string{`{"spec":{"scope":"Cluster"}}`, `{"spec":{"names":{"kind":"Gadget"}}}`} {
		if err := w.Patch(ctx, crd.Kind(), key("", widgetCRD), types.MergePatchType, []byte(patch), ""); !apierrors.IsInvalid(err) {
			t.Errorf("%s under objects that are there: %v", patch, err)
		}
	}

	// Mended while nobody looks.
	w.stop()
	w = open(t, dir)
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":{"strategy":"None","webhook":null},"versions":`+twoVersions("v1")+`}}`)
	w.untilConditions(widgetCRD, accepted, established)
	w.stop()
	w = open(t, dir, crd.Name)
	w.untilConditions(widgetCRD, accepted, established)
	if got := w.crdConditions(widgetCRD); len(got) != 2 {
		t.Errorf("conditions %q", got)
	}
	if k := w.kind(widgets); len(k.Versions) != 2 {
		t.Errorf("served in %v", k.Versions)
	}
	if a := w.get(crd.Kind(), "", widgetCRD).GetAnnotations(); len(a) > 0 {
		t.Errorf("annotations %v", a)
	}
}

func TestS89TheLastGoodFormIsEmptied(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name)
	w.installNarrowWidgets()
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":`+webhook+`,"versions":`+twoVersions("v2")+`}}`)
	w.delete(crd.Kind(), "", widgetCRD)
	w.until("the CRD to go", func() bool { return !w.there(crd.Kind(), "", widgetCRD) })
	w.installNarrowWidgets() // which would find its object there already
}

// A definition that an earlier release called Established without serving it says so after the upgrade, keeps its
// objects, and serves them once it is mended.
func TestEstablishedInVainByAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, crd.Name)
	w.installNarrowWidgets()
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":`+webhook+`,"versions":`+twoVersions("v1")+`}}`)
	w.untilConditions(widgetCRD, accepted)
	w.stop()

	w = openAfter(t, dir, func(d *apiextensionsv1.CustomResourceDefinition) {
		delete(d.Annotations, resource.ServedSpecAnnotation)
		apihelpers.SetCRDCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		})
		d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == "Servable" })
	}, crd.Name)
	w.untilConditions(widgetCRD, accepted, "Established=False/ConversionNotSupported: "+notConvertible)
	if err := w.Create(ctx, widget("default", "b")); !apierrors.IsNotFound(err) {
		t.Errorf("a create of what isn't served: %v", err)
	}
	w.merge(crd.Kind(), "", widgetCRD, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	w.untilConditions(widgetCRD, accepted, established)
	w.do(w.set.Synced(ctx, widgets))
	if !w.there(widgets, "default", "kept") {
		t.Error("the object is lost")
	}
}

// openAfter opens a world whose Widget definition was written as edit has it, past the strategy.
func openAfter(t *testing.T, dir string, edit func(*apiextensionsv1.CustomResourceDefinition), operators ...string) *world {
	t.Helper()
	store, err := bolt.Open(ctx, bolt.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	view, err := store.View(ctx, storage.Latest())
	must(err)
	kv, _ := view.Get("/apiextensions.k8s.io/customresourcedefinitions/" + widgetCRD)
	value, err := resource.ParseValue(kv.Value)
	must(err)
	var d apiextensionsv1.CustomResourceDefinition
	must(json.Unmarshal(value.AppendJSON(nil, uint64(kv.Rev)), &d))
	edit(&d)
	d.ResourceVersion = ""
	data, err := json.Marshal(&d)
	must(err)
	_, err = store.Commit(ctx, storage.Write{Key: kv.Key, Value: resource.EncodeValue(data, resource.MetaOf(&d)), If: kv.Rev})
	must(err)
	must(store.Close())
	return open(t, dir, operators...)
}
