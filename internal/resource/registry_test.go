package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// registry makes a Registry of one compiled-in kind, whose compile counts and obeys *fail.
func registry(t *testing.T) (r *Registry, compiled *int, fail *error) {
	t.Helper()
	compiled, fail = new(int), new(error)
	builtin := testKind("", "ConfigMap", "configmaps")
	return NewRegistry([]*Kind{builtin}, func(crd *apiextensionsv1.CustomResourceDefinition) (*Kind, error) {
		*compiled++
		if *fail != nil {
			return nil, *fail
		}
		return testKind(crd.Spec.Group, crd.Status.AcceptedNames.Kind, crd.Status.AcceptedNames.Plural), nil
	}), compiled, fail
}

func testKind(group, kind, plural string) *Kind {
	gk := schema.GroupKind{Group: group, Kind: kind}
	v := &Version{Name: "v1", GVK: gk.WithVersion("v1"), Served: true}
	return &Kind{GroupKind: gk, Plural: plural, Versions: []*Version{v}, Stored: v}
}

func crd(established apiextensionsv1.ConditionStatus, change func(*apiextensionsv1.CustomResourceDefinition)) []byte {
	c := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "u", ResourceVersion: "7"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: established}},
		},
	}
	if change != nil {
		change(c)
	}
	data, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return data
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func set(t *testing.T, r *Registry, data []byte) {
	t.Helper()
	if err := r.SetCRD(data); err != nil {
		t.Fatal(err)
	}
}

func lookup(t *testing.T, r *Registry) *Kind {
	t.Helper()
	k, v, ok := r.Lookup("example.com", "v1", "widgets")
	if !ok {
		t.Fatal("Widgets aren't served")
	}
	if v != k.Versions[0] {
		t.Fatal("Lookup found another version")
	}
	return k
}

func TestRegistryFindsKinds(t *testing.T) {
	r, _, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	k := lookup(t, r)
	if got, ok := r.ByKind(schema.GroupKind{Group: "example.com", Kind: "Widget"}); !ok || got != k {
		t.Error("ByKind doesn't find it")
	}
	if got, ok := r.ByResource(schema.GroupResource{Group: "example.com", Resource: "widgets"}); !ok || got != k {
		t.Error("ByResource doesn't find it")
	}
	if kinds := r.Kinds(); len(kinds) != 2 || kinds[0].Kind != "ConfigMap" || kinds[1] != k {
		t.Errorf("Kinds are %v", kinds)
	}
	for _, path := range [][3]string{{"example.com", "v2", "widgets"}, {"example.com", "v1", "gadgets"}, {"", "v1", "widgets"}} {
		if _, _, ok := r.Lookup(path[0], path[1], path[2]); ok {
			t.Errorf("Lookup%q found something", path)
		}
	}
}

func TestRegistryServesWhileEstablished(t *testing.T) {
	r, _, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionFalse, nil))
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); ok {
		t.Error("served before it is established")
	}
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	k := lookup(t, r)
	set(t, r, crd(apiextensionsv1.ConditionFalse, nil))
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); ok {
		t.Error("served when it is no longer established")
	}
	if !closed(k.Done()) {
		t.Error("Done isn't closed")
	}
}

func TestRegistryIsIdempotent(t *testing.T) {
	r, compiled, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	k, generation, changed := lookup(t, r), r.Generation(), r.Changed()
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	set(t, r, crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Labels = map[string]string{"new": "label"}
		c.ResourceVersion = "77"
		c.Status.StoredVersions = []string{"v1"}
	}))
	if lookup(t, r) != k || *compiled != 1 || r.Generation() != generation || closed(changed) || closed(k.Done()) {
		t.Error("something changed although nothing that serving depends on did")
	}
}

func TestRegistryReplacesAChangedKind(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"spec":  func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = apiextensionsv1.ClusterScoped },
		"names": func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.AcceptedNames.ShortNames = []string{"w"} },
		"uid":   func(c *apiextensionsv1.CustomResourceDefinition) { c.UID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := registry(t)
			set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
			old, generation, changed := lookup(t, r), r.Generation(), r.Changed()
			other := r.Kinds()[0]
			set(t, r, crd(apiextensionsv1.ConditionTrue, change))
			if now := lookup(t, r); now == old || closed(now.Done()) {
				t.Error("the kind wasn't replaced")
			}
			if !closed(old.Done()) {
				t.Error("the old kind isn't done")
			}
			if !closed(changed) || r.Generation() == generation {
				t.Error("the change isn't told")
			}
			if closed(other.Done()) {
				t.Error("another kind was closed too")
			}
		})
	}
}

// What is stored at or below Declared is read by the rules of a schema that it wasn't written by. A write of the CRD
// that changes no rule moves nothing.
func TestRegistryKnowsSinceWhenAKindIsAsItIs(t *testing.T) {
	r, _, _ := registry(t)
	for _, step := range []struct {
		revision string
		change   func(*apiextensionsv1.CustomResourceDefinition)
		want     uint64
	}{
		{"7", func(*apiextensionsv1.CustomResourceDefinition) {}, 7},
		{"8", func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = map[string]string{"a": "b"} }, 7},
		{"9", func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = apiextensionsv1.ClusterScoped }, 9},
		{"10", func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Scope = apiextensionsv1.ClusterScoped
			c.DeletionTimestamp = new(metav1.Now())
		}, 9},
	} {
		set(t, r, crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) {
			c.ResourceVersion = step.revision
			step.change(c)
		}))
		if k := lookup(t, r); k.Declared != step.want {
			t.Errorf("at revision %s: declared at %d, want %d", step.revision, k.Declared, step.want)
		}
	}
}

func TestRegistryKeepsWatchesOfATerminatingKind(t *testing.T) {
	r, compiled, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	old, changed := lookup(t, r), r.Changed()
	set(t, r, crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) {
		now := metav1.Now()
		c.DeletionTimestamp = &now
	}))
	k := lookup(t, r)
	if !k.Terminating || old.Terminating {
		t.Error("Terminating isn't told, or in the old kind")
	}
	if !closed(changed) || *compiled != 1 {
		t.Error("the change isn't told, or it was compiled again")
	}
	if closed(old.Done()) {
		t.Error("watches were ended")
	}
	r.RemoveCRD("widgets.example.com")
	if !closed(old.Done()) || !closed(k.Done()) {
		t.Error("watches weren't ended when the kind went")
	}
}

func TestRegistryRemoves(t *testing.T) {
	r, _, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	k, changed := lookup(t, r), r.Changed()
	r.RemoveCRD("widgets.example.com")
	r.RemoveCRD("widgets.example.com")
	r.RemoveCRD("never.heard.of")
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); ok || !closed(k.Done()) || !closed(changed) {
		t.Error("it is still there")
	}
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	if lookup(t, r) == k {
		t.Error("the old kind came back")
	}
}

func TestRegistryDoesNotServeWhatItCannotRead(t *testing.T) {
	r, _, fail := registry(t)
	if err := r.SetCRD([]byte(`{"metadata":{"name":"x.example.com"},"spec":7}`)); err == nil || !strings.Contains(err.Error(), "x.example.com") {
		t.Errorf("bad JSON: %v", err)
	}
	set(t, r, crd(apiextensionsv1.ConditionTrue, nil))
	old := lookup(t, r)
	*fail = errors.New("no such schema")
	err := r.SetCRD(crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) { c.UID = "v" }))
	if !errors.Is(err, *fail) || !strings.Contains(err.Error(), "widgets.example.com") {
		t.Errorf("bad schema: %v", err)
	}
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); ok || !closed(old.Done()) {
		t.Error("served by the rules of before")
	}
}

// A panic here would end the store's committer, and with it every start after.
func TestRegistrySurvivesAPanicOfCompile(t *testing.T) {
	panics := true
	r := NewRegistry(nil, func(crd *apiextensionsv1.CustomResourceDefinition) (*Kind, error) {
		if panics {
			panic("a library's bug")
		}
		return testKind("example.com", "Widget", "widgets"), nil
	})
	data := crd(apiextensionsv1.ConditionTrue, nil)
	if err := r.SetCRD(data); err == nil || !strings.Contains(err.Error(), "a library's bug") || !strings.Contains(err.Error(), "widgets.example.com") {
		t.Fatalf("SetCRD: %v, want the panic and the CRD's name", err)
	}
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); ok {
		t.Error("a kind that can't be compiled is served")
	}
	panics = false
	if err := r.SetCRD(data); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := r.Lookup("example.com", "v1", "widgets"); !ok {
		t.Error("the kind isn't served after the cause has gone")
	}
}

func TestRegistryPrefersCompiledInKinds(t *testing.T) {
	r, _, _ := registry(t)
	set(t, r, crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Spec.Group = ""
		c.Status.AcceptedNames = apiextensionsv1.CustomResourceDefinitionNames{Plural: "configmaps", Kind: "ConfigMap"}
	}))
	if k, _, _ := r.Lookup("", "v1", "configmaps"); k != r.Kinds()[0] {
		t.Error("a CRD hides a compiled-in kind")
	}
}

func TestKeys(t *testing.T) {
	core := ""
	for _, c := range []struct {
		kind            Kind
		ns, name        string
		key, kindPrefix string
	}{
		{Kind{Plural: "pods", Namespaced: true}, "default", "a", "/core/pods/default/a", "/core/pods/"},
		{Kind{Plural: "nodes"}, "ignored", "n", "/core/nodes/n", "/core/nodes/"},
		{Kind{GroupKind: schema.GroupKind{Group: "apps"}, Plural: "deployments", Namespaced: true}, "x", "d", "/apps/deployments/x/d", "/apps/deployments/"},
		{Kind{GroupKind: schema.GroupKind{Group: "events.k8s.io"}, Plural: "events", Namespaced: true, StoredGroup: &core}, "x", "e", "/core/events/x/e", "/core/events/"},
	} {
		if got := Key(&c.kind, c.ns, c.name); got != c.key {
			t.Errorf("Key is %s, want %s", got, c.key)
		}
		if got := Prefix(&c.kind, ""); got != c.kindPrefix {
			t.Errorf("Prefix is %s, want %s", got, c.kindPrefix)
		}
	}
	if g, p, ns, n, ok := SplitKey("/core/pods/default/a"); !ok || g != "" || p != "pods" || ns != "default" || n != "a" {
		t.Error("SplitKey of a namespaced key", g, p, ns, n, ok)
	}
	if g, p, ns, n, ok := SplitKey("/x.io/things/t"); !ok || g != "x.io" || p != "things" || ns != "" || n != "t" {
		t.Error("SplitKey of a cluster-scoped key", g, p, ns, n, ok)
	}
	if _, _, _, _, ok := SplitKey("/nonsense"); ok {
		t.Error("SplitKey takes nonsense")
	}
}

// TestRegistryReadersNeverSeeHalf: whatever is found while CRDs come and go is whole.
func TestRegistryReadersNeverSeeHalf(t *testing.T) {
	r, _, _ := registry(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				changed, before := r.Changed(), r.Generation()
				if k, v, ok := r.Lookup("example.com", "v1", "widgets"); ok && (k.Done() == nil || v != k.Versions[0]) {
					t.Error("a kind that isn't whole")
					return
				}
				if r.Generation() != before {
					<-changed // whoever saw a change is told of it
				}
			}
		})
	}
	for i := range 200 {
		set(t, r, crd(apiextensionsv1.ConditionTrue, func(c *apiextensionsv1.CustomResourceDefinition) { c.UID = types.UID(fmt.Sprint(i)) }))
		if i%3 == 0 {
			r.RemoveCRD("widgets.example.com")
		}
	}
	close(stop)
	readers.Wait()
}
