package builtin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

func metaWithUID(uid types.UID) metav1.ObjectMeta { return metav1.ObjectMeta{Name: "a", UID: uid} }

func crdKind(t testing.TB) *resource.Kind {
	return kind(t, "apiextensions.k8s.io", "CustomResourceDefinition")
}

const crdBody = `{metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [
{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}}}]}}`

func TestCustomResourceDefinition(t *testing.T) {
	o := create(t, crdKind(t), crdBody)
	wantField(t, o, `{"kind":"Widget","listKind":"WidgetList","plural":"widgets","singular":"widget"}`, "spec", "names")
	wantField(t, o, `{"strategy":"None"}`, "spec", "conversion")
	wantField(t, o, `["v1"]`, "status", "storedVersions")
	wantField(t, o, `1`, "metadata", "generation")
	if o.Kind.Strategy.AllowUnconditionalUpdate(t.Context()) {
		t.Error("a PUT without resourceVersion is taken")
	}

	versions := func(content map[string]any) []any {
		return content["spec"].(map[string]any)["versions"].([]any)
	}
	if err := o.Change("", func(content map[string]any) {
		v1 := versions(content)[0].(map[string]any)
		v2 := map[string]any{"name": "v2", "served": true, "storage": true, "schema": v1["schema"]}
		v1["storage"] = false
		content["spec"].(map[string]any)["versions"] = []any{v1, v2}
		content["status"] = map[string]any{}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `["v1","v2"]`, "status", "storedVersions")
	wantField(t, o, `2`, "metadata", "generation")
	err := o.Change("", func(content map[string]any) {
		content["spec"].(map[string]any)["versions"] = versions(content)[1:]
	})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `status.storedVersions[0]: Invalid value: "v1": missing from spec.versions`) {
		t.Errorf("dropping a stored version: %v", err)
	}
	if err := o.Change("status", func(content map[string]any) {
		content["spec"].(map[string]any)["scope"] = "Cluster"
		content["status"].(map[string]any)["storedVersions"] = []any{"v2"}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `"Namespaced"`, "spec", "scope")
	wantField(t, o, `["v2"]`, "status", "storedVersions")
}

func TestCustomResourceDefinitionRefuses(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"its name", "name: widgets.example.com", "name: gadgets.example.com", `metadata.name: Invalid value: "gadgets.example.com": must be spec.names.plural+"."+spec.group`},
		{"no schema", "schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}}", "deprecated: false", `spec.versions[0].schema.openAPIV3Schema: Required value`},
		{"a default that is invalid", "a: {type: string}", "a: {type: string, default: 5}", `spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: "integer":  in body must be of type string: "integer"`},
		{"a schema that isn't structural", "a: {type: string}", "a: {}", `spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Required value: must not be empty for specified object fields`},
		{"a rule that can't be compiled", "a: {type: string}", "a: {type: string, x-kubernetes-validations: [{rule: self > 5}]}", `spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self \u003e 5","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:6: found no matching overload for '_>_' applied to '(string, int)'` + "\n | self > 5\n | .....^"},
	} {
		body := strings.Replace(crdBody, c.from, c.to, 1)
		if body == crdBody {
			t.Fatalf("%s: nothing replaced", c.name)
		}
		_, err := resourcetest.Create(crdKind(t), body)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n\t%v\nwant\n\t%s", c.name, err, c.want)
		}
	}
}

func TestCustomResourceDefinitionWarns(t *testing.T) {
	body := strings.Replace(crdBody, "a: {type: string}", "a: {type: string, format: nonsense}, l: {type: array, x-kubernetes-list-type: set, items: {type: object, x-kubernetes-map-type: atomic}}", 1)
	o := create(t, crdKind(t), body)
	want := []string{`unrecognized format "nonsense"`, `x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules`}
	if !slices.Equal(o.Warnings, want) {
		t.Errorf("warnings are %q", o.Warnings)
	}
	if err := o.Change("", func(map[string]any) {}); err != nil || len(o.Warnings) != 0 {
		t.Errorf("what was there before warns: %q, %v", o.Warnings, err)
	}
}

func TestCustomResourceDefinitionDeletion(t *testing.T) {
	k := crdKind(t)
	hub, err := create(t, k, crdBody).Hub()
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for range 2 { // marking twice changes nothing more
		k.Strategy.(resource.DeletionMarker).MarkDeleted(hub, nil, now)
	}
	crd := hub.(*apiextensions.CustomResourceDefinition)
	if !crd.DeletionTimestamp.Equal(&now) || !slices.Equal(crd.Finalizers, []string{"customresourcecleanup.apiextensions.k8s.io"}) || crd.Generation != 1 {
		t.Errorf("marked: %+v", crd.ObjectMeta)
	}
	if c := crd.Status.Conditions; len(c) != 1 || c[0].Type != apiextensions.Terminating || c[0].Status != apiextensions.ConditionTrue || c[0].Reason != "InstanceDeletionPending" {
		t.Errorf("conditions are %+v", c)
	}
	if k.ReturnDeleted {
		t.Error("a DELETE that removes a CRD answers with a Status")
	}
	cells, err := k.Versions[0].Columns.Cells([]byte(`{"metadata":{"name":"x","creationTimestamp":"2020-01-01T00:00:00Z"}}`))
	if err != nil || !slices.Equal(cells, []any{"x", "2020-01-01T00:00:00Z"}) {
		t.Errorf("cells are %v, %v", cells, err)
	}
}
