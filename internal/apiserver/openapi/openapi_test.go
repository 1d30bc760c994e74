package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
)

type registry struct {
	kinds      []*resource.Kind
	generation uint64
}

func (r *registry) Kinds() []*resource.Kind { return r.kinds }
func (r *registry) Generation() uint64      { return r.generation }

func widget(namespaced bool) *resource.Kind {
	gvk := schema.GroupVersionKind{Group: "my-group.example.com", Version: "v1", Kind: "Widget"}
	v := &resource.Version{Name: "v1", GVK: gvk, Schema: func() *spec.Schema {
		return new(spec.Schema).Typed("object", "").SetProperty("metadata", *spec.RefSchema(schemaRef + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").WithDescription("Metadata."))
	}}
	return &resource.Kind{
		GroupKind: gvk.GroupKind(), Plural: "widgets", ListKind: "WidgetList", Namespaced: namespaced, Custom: true,
		Versions: []*resource.Version{v}, Stored: v,
	}
}

func decode(t *testing.T, d *Document, err error) map[string]any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(d.JSON, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestClusterScopedKind(t *testing.T) {
	o := New(&registry{kinds: []*resource.Kind{widget(false)}}, builtin.OpenAPI)
	d, err := o.Group(t.Context(), schema.GroupVersion{Group: "my-group.example.com", Version: "v1"})
	paths := decode(t, d, err)["paths"].(map[string]any)
	if len(paths) != 2 {
		t.Errorf("paths %v", reflect.ValueOf(paths).MapKeys())
	}
	one, _ := paths["/apis/my-group.example.com/v1/widgets/{name}"].(map[string]any)
	if id := one["get"].(map[string]any)["operationId"]; id != "readMyGroupExampleComV1Widget" {
		t.Errorf("operation %v", id)
	}
	for _, p := range one["parameters"].([]any) {
		if p.(map[string]any)["name"] == "namespace" {
			t.Error("a cluster-scoped kind takes a namespace")
		}
	}
}

func TestDescribedReferencesAreWrapped(t *testing.T) {
	o := New(&registry{kinds: []*resource.Kind{widget(true)}}, builtin.OpenAPI)
	d, err := o.Group(t.Context(), schema.GroupVersion{Group: "my-group.example.com", Version: "v1"})
	schemas := decode(t, d, err)["components"].(map[string]any)["schemas"].(map[string]any)
	metadata := schemas["com.example.my-group.v1.Widget"].(map[string]any)["properties"].(map[string]any)["metadata"].(map[string]any)
	if metadata["$ref"] != nil || metadata["allOf"] == nil || metadata["description"] != "Metadata." {
		t.Errorf("metadata %v", metadata)
	}
	if schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"] == nil {
		t.Error("a schema that is referred to through another is missing")
	}
	if schemas["io.k8s.api.apps.v1.Deployment"] != nil {
		t.Error("the model's own schema is left in")
	}
}

func TestDocumentsAreKeptWhileTheirKindsStay(t *testing.T) {
	reg := &registry{kinds: []*resource.Kind{widget(true)}}
	o := New(reg, builtin.OpenAPI)
	gv := schema.GroupVersion{Group: "my-group.example.com", Version: "v1"}
	first, err := o.Group(t.Context(), gv)
	if err != nil {
		t.Fatal(err)
	}
	reg.generation++
	if again, err := o.Group(t.Context(), gv); again != first {
		t.Error("built again although the kind is the same:", err)
	}
	reg.kinds, reg.generation = []*resource.Kind{widget(false)}, reg.generation+1
	if changed, err := o.Group(t.Context(), gv); err != nil || changed.ETag == first.ETag {
		t.Error("a changed kind has the old document:", err)
	}
	if none, err := o.Group(t.Context(), schema.GroupVersion{Group: "none", Version: "v1"}); none != nil || err != nil {
		t.Error("a document of what isn't served:", err)
	}
}

func TestSchemaV2(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"string","nullable":true}`:                                                   `{}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{}}}`: `{"x-kubernetes-preserve-unknown-fields":true}`,
		`{"allOf":[{"$ref":"#/components/schemas/A"}],"default":{},"description":"d"}`:        `{"$ref":"#/definitions/A","description":"d"}`,
		`{"anyOf":[{"type":"string"}],"type":"string"}`:                                       `{"type":"string"}`,
		`{"type":"array","items":{"$ref":"#/components/schemas/A"}}`:                          `{"type":"array","items":{"$ref":"#/definitions/A"}}`,
		// Properties may be named like keywords.
		`{"type":"object","properties":{"$ref":{"type":"string"},"not":{"allOf":[{"$ref":"#/components/schemas/A"}]},"items":{"type":"integer"}}}`: `{"type":"object","properties":{"$ref":{"type":"string"},"not":{"$ref":"#/definitions/A"},"items":{"type":"integer"}}}`,
	} {
		var v, w any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if got := schemaV2(v); !reflect.DeepEqual(got, w) {
			t.Errorf("%s became %v, want %s", in, got, want)
		}
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]schema.GroupVersion{
		"api/v1": {Version: "v1"}, "apis/apps/v1": {Group: "apps", Version: "v1"}, "apis/apps": {}, "apis": {}, "": {}, "x/y/z": {},
	} {
		if got, ok := ParsePath(path); got != want || ok != (want.Version != "") {
			t.Errorf("%q: %v, %v", path, got, ok)
		}
	}
}

// After one kind has changed, its own piece alone is made again.
func TestOneChangeMakesOnePiece(t *testing.T) {
	made := map[string]int{}
	kind := func(group string) *resource.Kind {
		k := widget(true)
		v := *k.Versions[0]
		v.GVK.Group, k.Group = group, group
		of := v.Schema
		v.Schema = func() *spec.Schema { made[group]++; return of() }
		k.Versions, k.Stored = []*resource.Version{&v}, &v
		return k
	}
	reg := &registry{kinds: []*resource.Kind{kind("a.example.com"), kind("b.example.com")}}
	o := New(reg, builtin.OpenAPI)
	ask := func() {
		if _, err := o.Index(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := o.V2(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	before := o.groups[schema.GroupVersion{Group: "a.example.com", Version: "v1"}].v2
	reg.kinds[1] = kind("b.example.com")
	reg.generation++
	ask()
	if made["a.example.com"] != 1 || made["b.example.com"] != 2 {
		t.Errorf("documents were made %v times", made)
	}
	if o.groups[schema.GroupVersion{Group: "a.example.com", Version: "v1"}].v2 != before {
		t.Error("the part of an unchanged group in v2 was made again")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reg.generation++
	if _, err := o.V2(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with the request's time over: %v", err)
	}
}

func BenchmarkThousandKinds(b *testing.B) {
	reg := &registry{}
	for i := range 1000 {
		k := widget(true)
		v := *k.Versions[0]
		k.Group = fmt.Sprintf("g%d.example.com", i)
		v.GVK.Group = k.Group
		k.Versions, k.Stored = []*resource.Version{&v}, &v
		reg.kinds = append(reg.kinds, k)
	}
	o := New(reg, builtin.OpenAPI)
	ask := func(b *testing.B) {
		if _, err := o.Index(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := o.V2(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			o = New(reg, builtin.OpenAPI)
			ask(b)
		}
	})
	b.Run("after a change", func(b *testing.B) {
		ask(b)
		for b.Loop() {
			k := *reg.kinds[7]
			reg.kinds[7] = &k
			reg.generation++
			ask(b)
		}
	})
}
