package rest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/watchcache"
)

// version is one version of the test CRD; in each, spec has replicas and the further properties.
func version(name string, served, storage bool, properties string) string {
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,
		"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
		"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{"replicas":{"type":"integer"}%s}},
			"status":{"type":"object","properties":{"replicas":{"type":"integer"},"said":{"type":"string"}}}}}}}`, name, served, storage, properties)
}

const both = `,"same":{"type":"string"},"list":{"type":"array","items":{"type":"string"}}`

// versions sets the versions of the test CRD.
func (s *server) versions(list ...string) {
	s.Helper()
	s.must(s.patch(crdPath, "", "widgets.test.io", types.MergePatchType, `{"spec":{"versions":[`+strings.Join(list, ",")+`]}}`))
}

func (s *server) declareVersions(list ...string) {
	s.Helper()
	s.must(s.create(crdPath, "", `{"metadata":{"name":"widgets.test.io"},"spec":{
		"group":"test.io","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[`+strings.Join(list, ",")+`]}}`))
	s.establish("widgets.test.io", "widgets", "Widget")
}

// S83: what lies in a version that is no longer served keeps its fields, whoever reads or writes it.
func TestS83StoredAtAVersionThatIsNotServed(t *testing.T) {
	const v2 = "test.io/v2/widgets"
	for _, now := range []struct {
		name string
		make func(*server)
	}{
		{"unserved", func(s *server) {
			s.versions(version("v1", false, false, both), version("v2", true, true, both))
		}},
		{"gone", func(s *server) {
			s.versions(version("v1", false, false, both), version("v2", true, true, both))
			s.must(s.patch(crdPath, "", "widgets.test.io", types.MergePatchType, `{"status":{"storedVersions":["v2"]}}`, "status"))
			s.versions(version("v2", true, true, both))
		}},
	} {
		t.Run(now.name, func(t *testing.T) {
			s := newServer(t)
			s.declareVersions(version("v1", true, true, both))
			for _, name := range []string{"read", "merge", "apply", "put", "status", "scale", "meta", "delete"} {
				s.must(s.patch(widgets, "default", name, types.ApplyPatchType, `{"apiVersion":"test.io/v1","kind":"Widget",
					"metadata":{"name":"`+name+`","finalizers":["test.io/held"]},"spec":{"replicas":1,"same":"kept","list":["x"]}}`))
				s.must(s.patch(widgets, "default", name, types.MergePatchType, `{"status":{"replicas":1,"said":"kept"}}`, "status"))
			}
			now.make(s)
			kept := func(what string, u *unstructured.Unstructured) {
				t.Helper()
				same, _, _ := unstructured.NestedString(u.Object, "spec", "same")
				list, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "list")
				said, _, _ := unstructured.NestedString(u.Object, "status", "said")
				if u.GetAPIVersion() != "test.io/v2" || same != "kept" || !slices.Equal(list, []string{"x"}) || said != "kept" {
					t.Errorf("%s: %v", what, u.Object)
				}
			}
			kept("get", s.must(s.get(v2, "default", "read")))
			listed, err := s.verbs.List(t.Context(), s.on(v2, "default", ""), watchcache.ListOptions{})
			if err != nil || len(listed.Objects) != 8 {
				t.Fatalf("list: %v, %v", listed, err)
			}
			watch := s.events(v2)
			s.must(s.patch(v2, "default", "merge", types.MergePatchType, `{"spec":{"replicas":2}}`))
			s.must(s.patch(v2, "default", "apply", types.ApplyPatchType, `{"apiVersion":"test.io/v2","kind":"Widget",
				"metadata":{"name":"apply","finalizers":["test.io/held"]},"spec":{"replicas":2,"same":"kept","list":["x"]}}`))
			put := s.must(s.get(v2, "default", "put"))
			s.must(s.update(v2, "default", "put", set(put, map[string]any{"spec.replicas": int64(2)})))
			s.must(s.patch(v2, "default", "status", types.MergePatchType, `{"status":{"replicas":2}}`, "status"))
			_, err = s.patch(v2, "default", "scale", types.MergePatchType, `{"spec":{"replicas":2}}`, "scale")
			if err != nil {
				t.Error(err)
			}
			s.must(s.patch(v2, "default", "meta", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`))
			s.must(s.delete(v2, "default", "delete"))
			for _, name := range []string{"merge", "apply", "put", "status", "scale", "meta", "delete"} {
				kept(name, s.must(s.get(v2, "default", name)))
				ev := watch.next()
				if ev == nil || ev.Object.Name() != name {
					t.Fatalf("event of %s: %v", name, ev)
				}
				data, err := ev.Object.JSON(s.on(v2, "", "").Version)
				if err != nil || !strings.Contains(string(data), `"same":"kept"`) {
					t.Errorf("event of %s: %s, %v", name, data, err)
				}
			}
			for _, o := range listed.Objects {
				data, err := o.JSON(s.on(v2, "", "").Version)
				if err != nil || !strings.Contains(string(data), `"same":"kept"`) {
					t.Errorf("listed %s, %v", data, err)
				}
			}
			// Ownership from then is known still.
			res, err := s.verbs.Patch(t.Context(), s.on(v2, "default", "read"), types.ApplyPatchType,
				[]byte(`{"apiVersion":"test.io/v2","kind":"Widget","metadata":{"name":"read"},"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "other"})
			if now.name == "unserved" {
				s.refused(res, err, 409, metav1.StatusReasonConflict, `conflict with "applier": .spec.replicas`)
			} else if err != nil {
				t.Errorf("apply over the ownership of a version that is gone: %v", err)
			}
		})
	}
}

// A version that objects may lie in can't leave the CRD: status.storedVersions names it.
func TestAStoredVersionStaysDeclared(t *testing.T) {
	s := newServer(t)
	s.declareVersions(version("v1", true, true, both))
	s.versions(version("v1", false, false, both), version("v2", true, true, both))
	res, err := s.patch(crdPath, "", "widgets.test.io", types.MergePatchType, `{"spec":{"versions":[`+version("v2", true, true, both)+`]}}`)
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions")
}

// Our own kinds, when v1alpha1 becomes v1: what lies in the store as v1alpha1 is whole, also when that is no
// longer served.
func TestOwnKindsSurviveTheirGraduation(t *testing.T) {
	for _, plural := range []string{"clusters", "backups"} {
		s, crd := newServer(t), ownDefinition(t, plural)
		s.must(s.create(crdPath, "", asJSON(t, crd)))
		s.establish(crd.Name, plural, crd.Spec.Names.Kind)
		spec := map[string]string{
			"clusters": `{"members":3,"restoreFrom":"b","template":{"spec":{"containers":[{"name":"c"}]}}}`,
			"backups":  `{"path":"/var/backups/a"}`,
		}[plural]
		before := s.must(s.create("operatord.io/v1alpha1/"+plural, "default", `{"metadata":{"name":"a"},"spec":`+spec+`}`))
		next := *crd.Spec.Versions[0].DeepCopy()
		next.Name = "v1"
		crd.Spec.Versions[0].Storage, crd.Spec.Versions[0].Served = false, false
		crd.Spec.Versions = append(crd.Spec.Versions, next)
		crd.ResourceVersion = s.must(s.get(crdPath, "", crd.Name)).GetResourceVersion()
		s.must(s.update(crdPath, "", crd.Name, asJSON(t, crd)))
		after := s.must(s.patch("operatord.io/v1/"+plural, "default", "a", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`))
		if fmt.Sprint(after.Object["spec"]) != fmt.Sprint(before.Object["spec"]) || len(after.Object["spec"].(map[string]any)) == 0 {
			t.Errorf("%s: spec %v became %v", plural, before.Object["spec"], after.Object["spec"])
		}
	}
}

func ownDefinition(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile("../../../api/crds/operatord.io_" + plural + ".yaml")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = yaml.UnmarshalStrict(data, crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

func asJSON(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) string {
	t.Helper()
	data, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// S92: a Cluster that was stored with an absurd number, before there was a maximum, can be read, listed, changed
// elsewhere, scaled down and deleted, and no other can be made.
func TestS92CountsAboveTheMaximumRatchet(t *testing.T) {
	const clusters = "operatord.io/v1alpha1/clusters"
	s, crd := newServer(t), ownDefinition(t, "clusters")
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	limited := spec.Properties["members"]
	unlimited := limited
	unlimited.Maximum = nil
	spec.Properties["members"] = unlimited
	s.must(s.create(crdPath, "", asJSON(t, crd)))
	s.establish(crd.Name, "clusters", "Cluster")
	for _, name := range []string{"a", "gone"} {
		s.must(s.create(clusters, "default", `{"metadata":{"name":"`+name+`","finalizers":["operatord.io/cluster"]},"spec":{"members":1000000}}`))
	}
	spec.Properties["members"] = limited
	crd.ResourceVersion = s.must(s.get(crdPath, "", crd.Name)).GetResourceVersion()
	s.must(s.update(crdPath, "", crd.Name, asJSON(t, crd)))

	a := s.must(s.get(clusters, "default", "a"))
	if listed, err := s.verbs.List(t.Context(), s.on(clusters, "default", ""), watchcache.ListOptions{}); err != nil || len(listed.Objects) != 2 {
		t.Errorf("list: %v, %v", listed, err)
	}
	s.must(s.patch(clusters, "default", "a", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}},"spec":{"paused":true}}`))
	s.must(s.patch(clusters, "default", "a", types.MergePatchType, `{"status":{"members":5000,"phase":"Creating"}}`, "status"))
	res, err := s.patch(clusters, "default", "a", types.MergePatchType, `{"spec":{"members":999999}}`)
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "spec.members: Invalid value: 999999: spec.members in body should be less than or equal to 4096")
	res, err = s.patch(clusters, "default", "a", types.MergePatchType, `{"spec":{"replicas":5000}}`, "scale")
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "less than or equal to 4096")
	if _, err := s.patch(clusters, "default", "a", types.MergePatchType, `{"spec":{"replicas":4096}}`, "scale"); err != nil {
		t.Error(err)
	}
	s.must(s.delete(clusters, "default", "gone"))
	s.must(s.patch(clusters, "default", "gone", types.MergePatchType, `{"metadata":{"finalizers":null}}`))
	res, err = s.create(clusters, "default", set(a, map[string]any{"metadata.name": "new", "metadata.resourceVersion": nil, "metadata.uid": nil}))
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "less than or equal to 4096")
}
