package crd

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"operatord.io/operatord/internal/resource"
)

const twoVersions = `
- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
- {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

func TestCheck(t *testing.T) {
	webhook := func(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		return crd
	}
	broken := definitionOf(t, "[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {$ref: elsewhere}}}}}]")
	for _, c := range []struct {
		name   string
		crd    *apiextensionsv1.CustomResourceDefinition
		reason string
	}{
		{"two versions", definitionOf(t, twoVersions), ""},
		{"a webhook and one version", webhook(definitionOf(t, "[{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]")), ""},
		{"a webhook and two versions", webhook(definitionOf(t, twoVersions)), "ConversionNotSupported"},
		{"a schema that isn't structural", broken, "SchemaNotUsable"},
		{"no storage version", definitionOf(t, "[{name: v1, served: true, storage: false}]"), "SchemaNotUsable"},
		{"no versions", definitionOf(t, "[]"), "SchemaNotUsable"},
	} {
		unservable := Check(c.crd)
		if c.reason == "" && unservable != nil || c.reason != "" && (unservable == nil || unservable.Reason != c.reason || strings.Contains(unservable.Error(), "panic")) {
			t.Errorf("%s: %v, want %q", c.name, unservable, c.reason)
		}
	}
}

// A kept spec is what is compiled in the definition's place, and one that is damaged is an error.
func TestKeptSpec(t *testing.T) {
	crd := definitionOf(t, twoVersions)
	kept, err := Keep(&definitionOf(t, "[{name: v0, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]").Spec)
	if err != nil {
		t.Fatal(err)
	}
	crd.Annotations = map[string]string{resource.ServedSpecAnnotation: kept}
	if k := compile(t, crd); len(k.Versions) != 1 || k.Versions[0].Name != "v0" || k.Plural != "widgets" {
		t.Errorf("compiled %+v", k)
	}
	for _, damaged := range []string{"", "x", kept[:len(kept)/2]} {
		crd.Annotations[resource.ServedSpecAnnotation] = damaged
		if _, err := Compile(crd); err == nil || !strings.Contains(err.Error(), resource.ServedSpecAnnotation) {
			t.Errorf("%.10q: %v", damaged, err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	crd := definitionOf(b, twoVersions)
	for b.Loop() {
		if err := Check(crd); err != nil {
			b.Fatal(err)
		}
	}
}
