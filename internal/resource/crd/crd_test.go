package crd

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

// definitionOf is an established CRD of Widget with the versions in a YAML list.
func definitionOf(t testing.TB, versions string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "widgets.example.com"
	crd.Spec.Group = "example.com"
	crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"wd"}, Categories: []string{"all"},
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	if err := yaml.UnmarshalStrict([]byte(versions), &crd.Spec.Versions); err != nil {
		t.Fatalf("versions: %v", err)
	}
	return crd
}

// widgets compiles Widget with one version v1: the YAML of its spec's and status's schemas, and of further
// fields of the version.
func widgets(t testing.TB, spec, version string) *resource.Kind {
	t.Helper()
	if spec == "" {
		spec = "{type: object, x-kubernetes-preserve-unknown-fields: true}"
	}
	return compile(t, definitionOf(t, `
- name: v1
  served: true
  storage: true
  schema: {openAPIV3Schema: {type: object, properties: {spec: `+spec+`, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`+indent(version)))
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
}

func compile(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *resource.Kind {
	t.Helper()
	k, err := Compile(crd)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// widget is the body of a Widget named a with a spec.
func widget(spec string) string {
	if spec == "" {
		return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}"
	}
	return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: " + spec + "}"
}

func create(t testing.TB, k *resource.Kind, body string) *resourcetest.Object {
	t.Helper()
	o, err := resourcetest.Create(k, body)
	if err != nil {
		t.Fatalf("create %s: %v", body, err)
	}
	return o
}

// part is one top-level field of an object as compact JSON.
func part(o *resourcetest.Object, field string) string {
	v, ok := o.Content()[field]
	if !ok {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// causes are a 422's causes as "field: message", sorted.
func causes(t testing.TB, err error) []string {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != 422 {
		t.Fatalf("error is %v, want a 422", err)
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		out = append(out, c.Field+": "+c.Message)
	}
	slices.Sort(out)
	return out
}

func wantCauses(t testing.TB, err error, want ...string) {
	t.Helper()
	got := causes(t, err)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("causes are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestCompileNames(t *testing.T) {
	k := widgets(t, "", "")
	if k.Group != "example.com" || k.Kind != "Widget" || k.Plural != "widgets" || k.Singular != "widget" || k.ListKind != "WidgetList" {
		t.Errorf("names are %+v", k)
	}
	if !k.Custom || !k.Namespaced || !slices.Equal(k.ShortNames, []string{"wd"}) || !slices.Equal(k.Categories, []string{"all"}) {
		t.Errorf("kind is %+v", k)
	}
	if v := k.Versions[0]; v != k.Stored || v.PatchType != nil {
		t.Error("the one version isn't stored, or takes strategic merge patches")
	}
	if !slices.Contains(k.Verbs, "deletecollection") || len(k.Subresources) != 0 {
		t.Error("verbs or subresources are wrong")
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"names that aren't accepted yet": func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.AcceptedNames.Kind = "" },
		"no storage version":             func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Storage = false },
	} {
		crd := definitionOf(t, "[{name: v1, served: true, storage: true}]")
		change(crd)
		if _, err := Compile(crd); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestVersionsByPriority(t *testing.T) {
	k := compile(t, definitionOf(t, `
- {name: v1alpha1, served: true, storage: false}
- {name: v2beta1, served: true, storage: false}
- {name: v1, served: true, storage: false}
- {name: v11, served: true, storage: false}
- {name: v2, served: false, storage: true}
- {name: v3, served: false, storage: false}
- {name: foo, served: true, storage: false}
- {name: v1beta10, served: true, storage: false}
`))
	var names []string
	for _, v := range k.Versions {
		names = append(names, v.Name)
	}
	if want := []string{"v11", "v1", "v2beta1", "v1beta10", "v1alpha1", "foo"}; !slices.Equal(names, want) {
		t.Errorf("versions are %v, want %v", names, want)
	}
	if k.Stored.Name != "v2" || k.Version("v2") != nil {
		t.Error("a stored version that isn't served must be Stored only")
	}
}

func TestDeprecation(t *testing.T) {
	k := compile(t, definitionOf(t, `
- {name: v1alpha1, served: true, storage: false, deprecated: true}
- {name: v1beta1, served: true, storage: false, deprecated: true, deprecationWarning: use something else}
- {name: v1, served: true, storage: false}
- {name: v2, served: true, storage: true}
`))
	for version, want := range map[string]string{
		"v1alpha1": "example.com/v1alpha1 Widget is deprecated; use example.com/v2 Widget",
		"v1beta1":  "use something else",
		"v1":       "",
	} {
		if got := k.Version(version).DeprecationNotice; got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
