package discovery

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
)

type registry struct {
	kinds      []*resource.Kind
	generation uint64
}

func (r *registry) Kinds() []*resource.Kind { return r.kinds }
func (r *registry) Generation() uint64      { return r.generation }

func kind(group, name, plural string, custom bool, versions ...string) *resource.Kind {
	k := &resource.Kind{
		GroupKind: schema.GroupKind{Group: group, Kind: name}, Plural: plural, Singular: strings.ToLower(name), ListKind: name + "List",
		Namespaced: true, Custom: custom, Verbs: []string{"watch", "get", "list", "create"},
	}
	for _, v := range versions {
		k.Versions = append(k.Versions, &resource.Version{Name: v, GVK: schema.GroupVersionKind{Group: group, Version: v, Kind: name}})
	}
	k.Stored = k.Versions[0]
	return k
}

func document(t *testing.T, d *Discovery) *Document {
	t.Helper()
	doc, err := d.Document()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOrder(t *testing.T) {
	reg := &registry{kinds: []*resource.Kind{
		kind("z.example.com", "Z", "zs", true, "v1"),
		kind("a.example.com", "A", "as", true, "v1alpha1", "v2", "v10", "v1beta1"),
		kind("batch", "Job", "jobs", false, "v1"),
		kind("apps", "Deployment", "deployments", false, "v1"),
		kind("unlisted.k8s.io", "U", "us", false, "v1"),
		kind("", "Pod", "pods", false, "v1"),
		kind("", "ConfigMap", "configmaps", false, "v1"),
	}}
	doc := document(t, New(reg, nil))
	var groups []string
	for _, g := range doc.Groups.Groups {
		groups = append(groups, g.Name)
	}
	if want := "apps batch unlisted.k8s.io a.example.com z.example.com"; strings.Join(groups, " ") != want {
		t.Errorf("groups %v, want %s", groups, want)
	}
	var versions []string
	for _, v := range doc.Group["a.example.com"].Versions {
		versions = append(versions, v.Version)
	}
	if want := "v10 v2 v1beta1 v1alpha1"; strings.Join(versions, " ") != want || doc.Group["a.example.com"].PreferredVersion.Version != "v10" {
		t.Errorf("versions %v, want %s", versions, want)
	}
	if r := doc.Resources["v1"].APIResources; len(r) != 2 || r[0].Name != "configmaps" {
		t.Errorf("core resources %v", r)
	}
	if v := doc.Resources["v1"].APIResources[0].Verbs; !slices.IsSorted([]string(v)) {
		t.Errorf("verbs of a built-in kind: %v", v)
	}
	if v := doc.Resources["z.example.com/v1"].APIResources[0].Verbs; strings.Join(v, " ") != "get list create watch" {
		t.Errorf("verbs of a declared kind: %v", v)
	}
	if !doc.Builtin["apps"] || !doc.Builtin[""] || doc.Builtin["a.example.com"] {
		t.Errorf("built-in groups %v", doc.Builtin)
	}
}

func TestSubresourcesOfAVersion(t *testing.T) {
	k := kind("g", "W", "ws", true, "v1", "v2")
	k.Subresources = map[string]*resource.Subresource{
		"status": {Verbs: []string{"update", "get", "patch"}, Versions: []string{"v1"}},
		"scale":  {Verbs: []string{"get"}, Body: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}},
	}
	doc := document(t, New(&registry{kinds: []*resource.Kind{k}}, nil))
	names := func(gv string) (out []string) {
		for _, r := range doc.Resources[gv].APIResources {
			out = append(out, r.Name)
		}
		return out
	}
	if got := names("g/v1"); strings.Join(got, " ") != "ws ws/status ws/scale" {
		t.Errorf("v1: %v", got)
	}
	if got := names("g/v2"); strings.Join(got, " ") != "ws ws/scale" {
		t.Errorf("v2: %v", got)
	}
	scale := doc.Resources["g/v1"].APIResources[2]
	if scale.Group != "autoscaling" || scale.Version != "v1" || scale.Kind != "Scale" {
		t.Errorf("scale %+v", scale)
	}
	v1 := doc.All.Object.Items[0].Versions[1]
	if v1.Version != "v1" || len(v1.Resources) != 1 || len(v1.Resources[0].Subresources) != 2 {
		t.Fatalf("aggregated: %+v", v1)
	}
	if got := *v1.Resources[0].ResponseKind; got != (metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: "W"}) {
		t.Errorf("response kind %v", got)
	}
}

func TestCachedUntilTheRegistryChanges(t *testing.T) {
	reg := &registry{kinds: []*resource.Kind{kind("", "Pod", "pods", false, "v1")}}
	d := New(reg, []Virtual{{GVK: schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview"}, Plural: "tokenreviews", Verbs: []string{"create"}}})
	first := document(t, d)
	if first.Resources["authentication.k8s.io/v1"] == nil {
		t.Error("a virtual kind is missing")
	}
	if document(t, d) != first {
		t.Error("built again although nothing changed")
	}
	reg.kinds, reg.generation = append(reg.kinds, kind("g", "W", "ws", true, "v1")), 1
	second := document(t, d)
	if second.Group["g"] == nil || second.All.ETag == first.All.ETag || second.Core.ETag != first.Core.ETag {
		t.Error("a new group changed the wrong documents")
	}
}
