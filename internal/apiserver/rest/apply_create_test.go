package rest_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
)

const podTemplate = `{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"host"}]}}`

// fixtures are a least object of each kind, as a client writes it, and a body for each subresource that can be
// applied.
var fixtures = map[string]struct {
	object       string
	subresources map[string]string
}{
	"ConfigMap":      {object: `{"data":{"a":"b"}}`},
	"Event":          {object: `{"involvedObject":{"namespace":"default","name":"a"},"reason":"r"}`},
	"Namespace":      {object: `{}`, subresources: map[string]string{"status": `{"status":{"conditions":[{"type":"A","status":"True"}]}}`}},
	"Node":           {object: `{}`, subresources: map[string]string{"status": `{"status":{"capacity":{"cpu":"1"}}}`}},
	"Secret":         {object: `{"data":{"a":"Yg=="}}`},
	"ServiceAccount": {object: `{}`},
	"Pod": {
		object:       `{"spec":{"containers":[{"name":"c","image":"host","ports":[{"containerPort":80}]}]}}`,
		subresources: map[string]string{"status": `{"status":{"phase":"Running"}}`},
	},
	"CustomResourceDefinition.apiextensions.k8s.io": {
		object: `{"metadata":{"name":"gadgets.test.io"},"spec":{"group":"test.io","scope":"Namespaced",
			"names":{"plural":"gadgets","kind":"Gadget"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
		subresources: map[string]string{"status": `{"status":{"storedVersions":["v1"],"acceptedNames":{"plural":"gadgets","kind":"Gadget"},"conditions":null}}`},
	},
	"Deployment.apps":  workload(`"replicas":1`),
	"ReplicaSet.apps":  workload(`"replicas":1`),
	"StatefulSet.apps": workload(`"replicas":1`),
	"Job.batch": {
		object:       `{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"host"}]}}}}`,
		subresources: map[string]string{"status": `{"status":{"active":1}}`},
	},
	"CronJob.batch": {
		object:       `{"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"host"}]}}}}}}`,
		subresources: map[string]string{"status": `{"status":{"lastScheduleTime":"2020-01-01T00:00:00Z"}}`},
	},
	"Lease.coordination.k8s.io": {object: `{"spec":{"holderIdentity":"a"}}`},
	"Event.events.k8s.io": {object: `{"eventTime":"2020-01-01T00:00:00.000000Z","action":"a","reason":"r","type":"Normal",
		"reportingController":"example.com/c","reportingInstance":"i","regarding":{"namespace":"default","name":"a"}}`},
	"ClusterRole.rbac.authorization.k8s.io":        {object: `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`},
	"ClusterRoleBinding.rbac.authorization.k8s.io": {object: `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"a"},"subjects":[{"kind":"User","name":"a"}]}`},
	"Role.rbac.authorization.k8s.io":               {object: `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`},
	"RoleBinding.rbac.authorization.k8s.io":        {object: `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"},"subjects":[{"kind":"ServiceAccount","name":"a"}]}`},
	"Widget.test.io": {
		object: `{"spec":{"other":"b"}}`,
		subresources: map[string]string{
			"status": `{"status":{"ready":2}}`,
			"scale":  `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":3}}`,
		},
	},
}

func workload(status string) struct {
	object       string
	subresources map[string]string
} {
	return struct {
		object       string
		subresources map[string]string
	}{
		object: `{"spec":{"selector":{"matchLabels":{"app":"a"}},"template":` + podTemplate + `}}`,
		subresources: map[string]string{
			"status": `{"status":{` + status + `}}`,
			"scale":  `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":3}}`,
		},
	}
}

// newWidgets is a server with a custom kind that has defaults and all subresources.
func newWidgets(t *testing.T) *server {
	s := newServer(t)
	s.must(s.create(crdPath, "", `{"metadata":{"name":"widgets.test.io"},"spec":{
		"group":"test.io","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,
			"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.ready"}},
			"schema":{"openAPIV3Schema":{"type":"object","properties":{
				"spec":{"type":"object","default":{},"properties":{
					"replicas":{"type":"integer","default":1},"other":{"type":"string"},
					"nested":{"type":"object","default":{},"properties":{"deep":{"type":"boolean","default":true}}}}},
				"status":{"type":"object","default":{"phase":"New"},"properties":{"phase":{"type":"string"},"ready":{"type":"integer"}}}}}}}]}}`))
	s.establish("widgets.test.io", "widgets", "Widget")
	return s
}

// establish does to a CRD what the operator crd would.
func (s *server) establish(name, plural, kind string) {
	s.Helper()
	s.must(s.patch(crdPath, "", name, types.MergePatchType, `{"status":{
		"acceptedNames":{"plural":"`+plural+`","singular":"`+strings.ToLower(kind)+`","kind":"`+kind+`","listKind":"`+kind+`List"},
		"conditions":[{"type":"NamesAccepted","status":"True","reason":"x","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"},
			{"type":"Established","status":"True","reason":"x","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`, "status"))
}

// comparable is an object without what differs between any two, and without managedFields.
func comparable(u *unstructured.Unstructured) string {
	data, err := u.MarshalJSON()
	if err != nil {
		panic(err)
	}
	uid := u.GetUID()
	c := &unstructured.Unstructured{}
	if err := c.UnmarshalJSON([]byte(strings.ReplaceAll(string(data), string(uid), "UID"))); err != nil {
		panic(err)
	}
	for _, field := range []string{"managedFields", "creationTimestamp", "resourceVersion"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	out, err := json.Marshal(c.Object)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// What a create makes and what an apply makes of the same manifest differ in managedFields alone: for each kind
// that is served and each subresource that can be applied, with the fields that defaulting fills in set to
// others too.
func TestApplyMakesWhatCreateMakes(t *testing.T) {
	created, applied := newWidgets(t), newWidgets(t)
	kinds := created.reg.Kinds()
	for _, k := range kinds {
		t.Run(k.GroupKind.String(), func(t *testing.T) {
			fixture, ok := fixtures[k.GroupKind.String()]
			if !ok {
				t.Fatal("no fixture: every kind that is served is tried here")
			}
			created, applied := created.under(t), applied.under(t)
			for _, v := range k.Versions {
				applyAsCreate(t, created, applied, k, v, fixture.object)
			}
			path := pathOf(k, k.Versions[0])
			ns, name := place(k, fixture.object)
			for _, sub := range slices.Sorted(maps.Keys(k.Subresources)) {
				s := k.Subresources[sub]
				if !slices.Contains(s.Verbs, "patch") {
					continue
				}
				body, ok := fixture.subresources[sub]
				if !ok {
					t.Errorf("no fixture of subresource %s", sub)
					continue
				}
				body = named(body, ns, name, k, k.Versions[0])
				merged, err := created.patch(path, ns, name, types.MergePatchType, body, sub)
				if err != nil {
					t.Fatalf("merge patch of %s: %v", sub, err)
				}
				// Nobody has written these before, so what is there belongs to before-first-apply, as upstream has it.
				force := true
				res, err := applied.verbs.Patch(t.Context(), applied.on(path, ns, name, sub), types.ApplyPatchType, []byte(body),
					metav1.PatchOptions{FieldManager: "applier", Force: &force})
				if err != nil {
					t.Fatalf("apply of %s: %v", sub, err)
				}
				if merged.Created || res.Created {
					t.Errorf("%s was created", sub)
				}
				want, got := comparable(created.must(created.get(path, ns, name))), comparable(applied.must(applied.get(path, ns, name)))
				if sub != "scale" && want != got || sub == "scale" && !strings.Contains(got, `"replicas":3`) {
					t.Errorf("%s:\npatched %s\napplied %s", sub, want, got)
				}
			}
		})
	}
}

func applyAsCreate(t *testing.T, created, applied *server, k *resource.Kind, v *resource.Version, object string) {
	t.Helper()
	path := pathOf(k, v)
	ns, name := place(k, object)
	body := named(object, ns, name, k, v)
	want := comparable(created.must(created.create(path, ns, body)))
	res, err := applied.patch(path, ns, name, types.ApplyPatchType, body)
	if err != nil {
		t.Fatalf("an apply that creates: %v", err)
	}
	if !res.Created {
		t.Error("the answer doesn't say Created")
	}
	if got := comparable(applied.must(res, nil)); got != want {
		t.Errorf("created %s\napplied %s", want, got)
	}

	// A field with another value than defaulting's zero is this manager's own, and nobody's before.
	if k.Group == "apps" {
		with := strings.Replace(named(object, ns, name+"-0", k, v), `"spec":{`, `"spec":{"replicas":0,`, 1)
		want := comparable(created.must(created.create(path, ns, with)))
		res, err := applied.patch(path, ns, name+"-0", types.ApplyPatchType, with)
		if err != nil {
			t.Fatalf("an apply of 0 replicas: %v", err)
		}
		if got := comparable(applied.must(res, nil)); got != want {
			t.Errorf("with 0 replicas: created %s\napplied %s", want, got)
		}
		for verb, s := range map[string]*server{"create": created, "apply": applied} {
			u := s.must(s.get(path, ns, name+"-0"))
			if len(u.GetManagedFields()) != 1 || !strings.Contains(string(u.GetManagedFields()[0].FieldsV1.Raw), `"f:replicas":{}`) {
				t.Errorf("%s: who asked for 0 replicas doesn't own them: %v", verb, u.GetManagedFields())
			}
		}
		with = strings.Replace(with, `"replicas":0`, `"replicas":5`, 1)
		if _, err := applied.patch(path, ns, name+"-0", types.ApplyPatchType, with); err != nil {
			t.Errorf("the same manager changes its mind: %v", err)
		}
	}
}

// An apply by somebody else over what was applied is a conflict with the first manager, and with nobody called
// before-first-apply.
func TestApplyAfterApplyNamesTheOwner(t *testing.T) {
	s := newServer(t)
	body := strings.Replace(fixtures["Deployment.apps"].object, `"spec":{`, `"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":2,`, 1)
	const path = "apps/v1/deployments"
	s.must(s.patch(path, "default", "a", types.ApplyPatchType, body))
	res, err := s.verbs.Patch(s.Context(), s.on(path, "default", "a"), types.ApplyPatchType,
		[]byte(strings.Replace(body, `"replicas":2`, `"replicas":3`, 1)), metav1.PatchOptions{FieldManager: "other"})
	status := s.refused(res, err, 409, metav1.StatusReasonConflict, `conflict with "applier"`)
	if len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != ".spec.replicas" {
		t.Errorf("causes %v", status.Details.Causes)
	}
}

// under is the server in a subtest.
func (s *server) under(t *testing.T) *server {
	c := *s
	c.TB = t
	return &c
}

func pathOf(k *resource.Kind, v *resource.Version) string {
	return strings.TrimPrefix(k.Group+"/"+v.Name+"/"+k.Plural, "/")
}

// place is where a fixture's object lies.
func place(k *resource.Kind, object string) (ns, name string) {
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(object), &u.Object); err != nil {
		panic(err)
	}
	if name = u.GetName(); name == "" {
		name = "a-" + strings.ToLower(k.Kind) + strings.Trim(strings.ReplaceAll(k.Group, ".", ""), ".")
	}
	if k.Namespaced {
		ns = "default"
	}
	return ns, name
}

// named is a fixture with its place and kind.
func named(object, ns, name string, k *resource.Kind, v *resource.Version) string {
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(object), &u.Object); err != nil {
		panic(err)
	}
	u.SetName(name)
	if ns != "" {
		u.SetNamespace(ns)
	}
	if u.GetKind() == "" {
		u.SetGroupVersionKind(v.GVK)
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		panic(err)
	}
	return string(data)
}
