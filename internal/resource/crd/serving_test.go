package crd

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"operatord.io/operatord/internal/resource"
)

func TestApply(t *testing.T) {
	k := widgets(t, "{type: object, properties: {num: {type: number}, i: {type: integer}, ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [p], items: {type: object, required: [p], properties: {p: {type: integer}, v: {type: string}}}}}}", "subresources: {status: {}}")
	o := create(t, k, widget("{i: 9007199254740993, ports: [{p: 1, v: a}]}"))
	if err := o.Apply(widget("{num: 1, ports: [{p: 2, v: b}]}"), "", "one", false); err != nil {
		t.Fatal(err)
	}
	if got := part(o, "spec"); got != `{"i":9007199254740993,"num":1,"ports":[{"p":1,"v":"a"},{"p":2,"v":"b"}]}` {
		t.Errorf("spec is %s", got)
	}
	if err := o.Apply(widget("{num: 1.0, ports: [{p: 2, v: b}]}"), "", "two", false); err != nil {
		t.Errorf("1 and 1.0 conflict: %v", err)
	}
	err := o.Apply(widget("{num: 2}"), "", "three", false)
	if !apierrors.IsConflict(err) || !contains(err.Error(), `.spec.num`) {
		t.Errorf("another value: %v", err)
	}
	if err := o.Apply(widget("{num: 2}"), "", "three", true); err != nil {
		t.Errorf("another value, forced: %v", err)
	}
	if got := o.Managers(); !slices.Contains(got, "three") || !slices.Contains(got, "one") {
		t.Errorf("managers are %v", got)
	}
	// Status isn't owned through the object, nor spec through /status.
	if err := o.Apply("{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {i: 5}, status: {x: 1}}", "status", "four", true); err != nil {
		t.Fatal(err)
	}
	for _, m := range hub(t, o).GetManagedFields() {
		if m.Manager == "four" && string(m.FieldsV1.Raw) != `{"f:status":{"f:x":{}}}` {
			t.Errorf("owner through /status owns %s", m.FieldsV1.Raw)
		}
	}
}

func hub(t *testing.T, o interface {
	Hub() (resource.Object, error)
}) resource.Object {
	t.Helper()
	obj, err := o.Hub()
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestScale(t *testing.T) {
	k := widgets(t, "{type: object, properties: {replicas: {type: integer}}}",
		"subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}")
	sub := k.Subresource(k.Versions[0], "scale")
	if sub == nil || sub.Body != autoscalingv1.SchemeGroupVersion.WithKind("Scale") || sub.Project.Creates() {
		t.Fatalf("subresource is %+v", sub)
	}
	o := create(t, k, widget("{replicas: 2}"))
	if err := o.Change("status", func(content map[string]any) {
		content["status"] = map[string]any{"replicas": 1, "selector": "app=a"}
	}); err != nil {
		t.Fatal(err)
	}
	body, err := sub.Project.Get(k.Versions[0], hub(t, o))
	if err != nil {
		t.Fatal(err)
	}
	s := body.(*autoscalingv1.Scale)
	if s.Name != "a" || s.Spec.Replicas != 2 || s.Status.Replicas != 1 || s.Status.Selector != "app=a" || s.ManagedFields != nil || s.Kind != "Scale" {
		t.Errorf("scale is %+v", s)
	}
	if err := o.Scale(5); err != nil {
		t.Fatal(err)
	}
	if got := part(o, "spec"); got != `{"replicas":5}` || o.Generation() != 2 {
		t.Errorf("spec is %s, generation %d", got, o.Generation())
	}
	var owner string
	for _, m := range hub(t, o).GetManagedFields() {
		if strings.Contains(string(m.FieldsV1.Raw), "f:replicas") && m.Subresource == "scale" {
			owner = m.Manager
		}
	}
	if owner != "scaler" {
		t.Errorf("replicas belong to %q", owner)
	}
	wantCauses(t, o.Scale(-1), `.spec.replicas: Invalid value: -1: should be a non-negative integer`)
}

func TestScaleUnset(t *testing.T) {
	k := widgets(t, "", "subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}")
	sub, v := k.Subresource(k.Versions[0], "scale"), k.Versions[0]
	o := create(t, k, widget("{}"))
	if _, err := sub.Project.Get(v, hub(t, o)); !apierrors.IsInternalError(err) || !contains(err.Error(), `the spec replicas field ".spec.replicas" does not exist`) {
		t.Errorf("GET: %v", err)
	}
	base, err := sub.Project.Base(v, hub(t, o))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Project.Put(t.Context(), v, hub(t, o), base); !apierrors.IsBadRequest(err) || !contains(err.Error(), "cannot be empty") {
		t.Errorf("PUT of what was unset: %v", err)
	}
	if err := o.Scale(3); err != nil || part(o, "spec") != `{"replicas":3}` {
		t.Errorf("scale to 3: %v, %s", err, part(o, "spec"))
	}
}

func TestColumns(t *testing.T) {
	object := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"s":"x","i":3,"f":1.5,"b":true,"l":["p","q"],"t":"2020-01-01T00:00:00Z","bad":"text"}}`)
	t.Run("declared", func(t *testing.T) {
		c := widgets(t, "", `additionalPrinterColumns:
- {name: Str, type: string, jsonPath: .spec.s, description: a text}
- {name: Int, type: integer, jsonPath: .spec.i, priority: 1, format: int32}
- {name: Num, type: number, jsonPath: .spec.f}
- {name: Bool, type: boolean, jsonPath: .spec.b}
- {name: None, type: string, jsonPath: .spec.none}
- {name: List, type: string, jsonPath: '.spec.l[*]'}
- {name: Wrong, type: integer, jsonPath: .spec.bad}
- {name: BadDate, type: date, jsonPath: .spec.bad}`).Versions[0].Columns
		cells, err := c.Cells(object)
		if err != nil {
			t.Fatal(err)
		}
		if want := []any{"a", "x", int64(3), 1.5, true, nil, "p", nil, "<invalid>"}; !reflect.DeepEqual(cells, want) {
			t.Errorf("cells are %#v, want %#v", cells, want)
		}
		d := c.Definitions()
		if len(d) != 9 || d[0].Format != "name" || d[1].Description != "a text" || d[2].Priority != 1 || d[2].Format != "int32" ||
			d[3].Description != "Custom resource definition column (in JSONPath format): .spec.f" {
			t.Errorf("definitions are %+v", d)
		}
	})
	t.Run("none", func(t *testing.T) {
		c := widgets(t, "", "").Versions[0].Columns
		cells, err := c.Cells(object)
		if err != nil || len(cells) != 2 || cells[0] != "a" {
			t.Fatalf("cells are %v, %v", cells, err)
		}
		if age := cells[1].(string); !strings.HasSuffix(age, "y") && !strings.HasSuffix(age, "d") {
			t.Errorf("age is %s", age)
		}
		d := c.Definitions()
		if len(d) != 2 || d[1].Name != "Age" || d[1].Type != "date" || d[1].Description != (metav1.ObjectMeta{}).SwaggerDoc()["creationTimestamp"] {
			t.Errorf("definitions are %+v", d)
		}
	})
}

func TestSelectableFields(t *testing.T) {
	f := widgets(t, "", "selectableFields: [{jsonPath: .spec.color}, {jsonPath: .spec.size}]").Versions[0].Fields
	if !slices.Equal(f.Names, []string{"spec.color", "spec.size"}) {
		t.Errorf("names are %v", f.Names)
	}
	for json, want := range map[string]fields.Set{
		`{"spec":{"color":"red","size":9007199254740993}}`: {"spec.color": "red", "spec.size": "9007199254740993"},
		`{"spec":{}}`: {"spec.color": "", "spec.size": ""},
		`{}`:          {"spec.color": "", "spec.size": ""},
	} {
		if got, err := f.Values([]byte(json)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", json, got, err)
		}
	}
	for _, label := range []string{"metadata.name", "metadata.namespace", "spec.color"} {
		if got, value, err := f.Convert(label, "v"); err != nil || got != label || value != "v" {
			t.Errorf("%s: %v", label, err)
		}
	}
	if _, _, err := f.Convert("spec.nope", "v"); err == nil || err.Error() != "field label not supported: spec.nope" {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestPublishedSchema(t *testing.T) {
	k := widgets(t, "{type: object, description: wants, properties: {v: {x-kubernetes-int-or-string: true}, t: {type: object, x-kubernetes-embedded-resource: true}}}", "selectableFields: [{jsonPath: .spec.v}]")
	data, err := json.Marshal(k.Versions[0].Schema())
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Type       string
		GVK        []map[string]string `json:"x-kubernetes-group-version-kind"`
		Selectable []map[string]string `json:"x-kubernetes-selectable-fields"`
		Properties map[string]struct {
			Type, Description string
			Ref               string              `json:"$ref"`
			AllOf             []map[string]string `json:"allOf"`
			Properties        map[string]struct {
				AnyOf    []map[string]string `json:"anyOf"`
				Required []string
			}
		}
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if !reflect.DeepEqual(s.GVK, []map[string]string{{"group": "example.com", "version": "v1", "kind": "Widget"}}) || s.Type != "object" ||
		!reflect.DeepEqual(s.Selectable, []map[string]string{{"fieldPath": "spec.v"}}) {
		t.Errorf("schema is %s", data)
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if s.Properties[name].Type != "string" || s.Properties[name].Description == "" {
			t.Errorf("%s is %+v", name, s.Properties[name])
		}
	}
	if !contains(string(data), `"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"`) {
		t.Error("metadata isn't referred to")
	}
	if any := s.Properties["spec"].Properties["v"].AnyOf; len(any) != 2 {
		t.Errorf("int-or-string is %v", any)
	}
	if got := s.Properties["spec"].Properties["t"].Required; !slices.Equal(got, []string{"kind", "apiVersion"}) {
		t.Errorf("an embedded resource requires %v", got)
	}
	if SchemaName("example.com", "v1", "Widget") != "com.example.v1.Widget" {
		t.Error("the schema's name is", SchemaName("example.com", "v1", "Widget"))
	}
}
