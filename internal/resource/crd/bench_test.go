package crd

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"operatord.io/operatord/internal/resource"
)

// benchSpec and benchBody are a schema as operators have them, with a rule, and an object of about 1 KiB.
const benchSpec = `{type: object, required: [size, name], properties: {
  name: {type: string, maxLength: 63, pattern: '^[a-z0-9-]+$'}, size: {type: integer, minimum: 1, maximum: 100},
  mode: {type: string, enum: [Auto, Manual], default: Auto}, paused: {type: boolean}, timeout: {type: string, format: duration},
  ports: {type: array, maxItems: 64, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port], items: {type: object, required: [port], properties: {port: {type: integer, format: int32}, protocol: {type: string, default: TCP}, name: {type: string, maxLength: 15}}}},
  env: {type: array, maxItems: 64, items: {type: object, required: [name], properties: {name: {type: string, maxLength: 64}, value: {type: string, maxLength: 1024}}}},
  labels: {type: object, additionalProperties: {type: string}}},
  x-kubernetes-validations: [{rule: 'self.size < 50 || self.mode == "Manual"', message: big ones are manual}]}`

const benchBody = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default","labels":{"app":"a","tier":"web"},"annotations":{"note":"some text that goes on for a while"},"uid":"5f0f9c1e-7e1d-4a88-9d5d-0c9a54b2d0aa","creationTimestamp":"2026-01-01T00:00:00Z","generation":3},"spec":{"name":"a-widget","size":3,"mode":"Auto","paused":false,"timeout":"5m","ports":[{"port":80,"protocol":"TCP","name":"http"},{"port":443,"protocol":"TCP","name":"https"}],"env":[{"name":"A","value":"one"},{"name":"B","value":"two"},{"name":"C","value":"three of them"},{"name":"D","value":"four"}],"labels":{"a":"1","b":"2","c":"3","d":"4"}},"status":{"ready":3,"conditions":[{"type":"Ready","status":"True","reason":"Fine","message":"all three are there and answer","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Progressing","status":"False","reason":"Done","message":"nothing is left to be done","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

func benchKind(b *testing.B) *resource.Kind {
	b.Helper()
	return widgets(b, benchSpec, "subresources: {status: {}}")
}

func benchDefinition(b *testing.B) *apiextensionsv1.CustomResourceDefinition {
	b.Helper()
	return definitionOf(b, "[{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: "+benchSpec+", status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]")
}

func benchObject(b *testing.B, k *resource.Kind) *unstructured.Unstructured {
	b.Helper()
	obj, warnings, err := k.Versions[0].Codec.Decode([]byte(benchBody), resource.DecodeOptions{})
	if err != nil || warnings != nil {
		b.Fatal(warnings, err)
	}
	return obj.(*unstructured.Unstructured)
}

func BenchmarkDecode(b *testing.B) {
	k := benchKind(b)
	benchObject(b, k)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := k.Versions[0].Codec.Decode([]byte(benchBody), resource.DecodeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStored(b *testing.B) {
	k := benchKind(b)
	benchObject(b, k)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Versions[0].Codec.DecodeStored([]byte(benchBody)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	k := benchKind(b)
	u := benchObject(b, k)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Versions[0].Codec.Encode(u); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	k := benchKind(b)
	u := benchObject(b, k)
	ctx := b.Context()
	if errs := k.Strategy.Validate(ctx, u); len(errs) > 0 {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		k.Strategy.Validate(ctx, u)
	}
}

func BenchmarkValidateUpdate(b *testing.B) {
	k := benchKind(b)
	old := benchObject(b, k)
	old.SetResourceVersion("1")
	u := old.DeepCopy()
	u.Object["spec"].(map[string]any)["size"] = int64(4)
	ctx := b.Context()
	if errs := k.Strategy.ValidateUpdate(ctx, u, old); len(errs) > 0 {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		k.Strategy.ValidateUpdate(ctx, u, old)
	}
}

func BenchmarkFieldManagerUpdate(b *testing.B) {
	k := benchKind(b)
	u := benchObject(b, k)
	manager, err := k.Versions[0].FieldManager("")
	if err != nil {
		b.Fatal(err)
	}
	old := k.Versions[0].Codec.New()
	b.ReportAllocs()
	for b.Loop() {
		manager.UpdateNoErrors(old, u.DeepCopy(), "bench")
	}
}

// BenchmarkCompile is what a committer waits for when a CRD changes; BenchmarkFirstUse what the first
// request of a version waits for.
func BenchmarkCompile(b *testing.B) {
	crd := benchDefinition(b)
	b.ReportAllocs()
	for b.Loop() {
		compile(b, crd)
	}
}

func BenchmarkFirstUse(b *testing.B) {
	crd := benchDefinition(b)
	b.ReportAllocs()
	for b.Loop() {
		k := compile(b, crd)
		u := benchObject(b, k)
		k.Strategy.Validate(b.Context(), u)
		if _, err := k.Versions[0].FieldManager(""); err != nil {
			b.Fatal(err)
		}
	}
}
