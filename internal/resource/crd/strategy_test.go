package crd

import (
	"fmt"
	"sync"
	"testing"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

// TestGeneration: with a status subresource spec raises it and status doesn't; without one all but metadata do.
func TestGeneration(t *testing.T) {
	set := func(path ...any) func(map[string]any) {
		return func(content map[string]any) {
			at := content
			for _, name := range path[:len(path)-2] {
				next, ok := at[name.(string)].(map[string]any)
				if !ok {
					next = map[string]any{}
					at[name.(string)] = next
				}
				at = next
			}
			at[path[len(path)-2].(string)] = path[len(path)-1]
		}
	}
	for _, c := range []struct {
		name                  string
		subresource           string
		change                func(map[string]any)
		withStatus, noSubResc int64 // generation afterwards; 0: not tried
	}{
		{"spec", "", set("spec", "size", 2), 2, 2},
		{"status through the object", "", set("status", "x", 1), 1, 2},
		{"status through /status", "status", set("status", "x", 1), 1, 0},
		{"spec through /status", "status", set("spec", "size", 2), 1, 0},
		{"labels", "", set("metadata", "labels", "a", "b"), 1, 1},
		{"a generation of the client's", "", set("metadata", "generation", 77), 1, 1},
		{"managedFields", "", set("metadata", "managedFields", []any{}), 1, 1},
		{"nothing", "", func(map[string]any) {}, 1, 1},
	} {
		for version, want := range map[string]int64{"subresources: {status: {}}": c.withStatus, "": c.noSubResc} {
			if want == 0 {
				continue
			}
			t.Run(c.name+" "+version, func(t *testing.T) {
				o := create(t, widgets(t, "", version), widget("{size: 1}"))
				if err := o.Change(c.subresource, c.change); err != nil {
					t.Fatal(err)
				}
				if got := o.Generation(); got != want {
					t.Errorf("generation is %d, want %d", got, want)
				}
			})
		}
	}
}

func TestStatusIsolation(t *testing.T) {
	body := "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 1}, status: {x: 1}}"
	t.Run("with the subresource", func(t *testing.T) {
		o := create(t, widgets(t, "", "subresources: {status: {}}"), body)
		if got := part(o, "status"); got != "" {
			t.Errorf("a create stored status %s", got)
		}
		everything := func(n int) func(map[string]any) {
			return func(content map[string]any) {
				content["spec"] = map[string]any{"size": n}
				content["status"] = map[string]any{"x": n}
				content["metadata"].(map[string]any)["labels"] = map[string]any{"n": fmt.Sprint(n)}
				content["metadata"].(map[string]any)["finalizers"] = []any{"a.b/c"}
			}
		}
		if err := o.Change("status", everything(2)); err != nil {
			t.Fatal(err)
		}
		if part(o, "spec") != `{"size":1}` || part(o, "status") != `{"x":2}` {
			t.Errorf("/status stored %s, %s", part(o, "spec"), part(o, "status"))
		}
		if hub, _ := o.Hub(); hub.GetLabels() != nil || hub.GetFinalizers() != nil {
			t.Error("/status changed metadata")
		}
		if err := o.Change("", everything(3)); err != nil {
			t.Fatal(err)
		}
		if part(o, "spec") != `{"size":3}` || part(o, "status") != `{"x":2}` {
			t.Errorf("a PUT stored %s, %s", part(o, "spec"), part(o, "status"))
		}
		if err := o.Change("status", func(content map[string]any) { delete(content, "status") }); err != nil {
			t.Fatal(err)
		}
		if got := part(o, "status"); got != "" {
			t.Errorf("status is %s, want none", got)
		}
	})
	t.Run("without", func(t *testing.T) {
		o := create(t, widgets(t, "", ""), body)
		if got := part(o, "status"); got != `{"x":1}` {
			t.Errorf("status is %s", got)
		}
		if o.Kind.Subresource(o.Version, "status") != nil {
			t.Error("there is a status subresource")
		}
	})
}

// TestStatusIsValidated: by its own schema, and by rules at the root.
func TestStatusIsValidated(t *testing.T) {
	k := compile(t, definitionOf(t, `
- name: v1
  served: true
  storage: true
  subresources: {status: {}}
  schema:
    openAPIV3Schema:
      type: object
      x-kubernetes-validations:
      - {rule: "!has(self.status) || self.status.num <= self.spec.num", message: status within spec}
      properties:
        spec: {type: object, properties: {num: {type: integer}}}
        status: {type: object, properties: {num: {type: integer}}}
`))
	o := create(t, k, widget("{num: 1}"))
	status := func(v any) func(map[string]any) {
		return func(content map[string]any) { content["status"] = map[string]any{"num": v} }
	}
	wantCauses(t, o.Change("status", status("x")), `status.num: Invalid value: "string": num in body must be of type integer: "string"`,
		"<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
	wantCauses(t, o.Change("status", status(2)), "<nil>: Invalid value: status within spec")
	if err := o.Change("status", status(1)); err != nil {
		t.Error(err)
	}
}

// TestSubresourcesPerVersion: a subresource is there in the versions that declare it.
func TestSubresourcesPerVersion(t *testing.T) {
	k := compile(t, definitionOf(t, `
- {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
- {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`))
	if k.Subresource(k.Version("v1"), "status") == nil || k.Subresource(k.Version("v2"), "status") != nil {
		t.Error("status isn't where it is declared")
	}
	o, err := resourcetest.CreateIn(k, k.Version("v2"), "{apiVersion: example.com/v2, kind: Widget, metadata: {name: a}, status: {x: 1}}", resource.DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := part(o, "status"); got != `{"x":1}` {
		t.Errorf("the version without the subresource dropped status: %s", got)
	}
}

// TestVersionMustMatch: an update through one version can't turn the object into another kind or version.
func TestVersionMustMatch(t *testing.T) {
	o := create(t, widgets(t, "", ""), widget(""))
	err := o.Change("", func(content map[string]any) { content["kind"] = "Gadget" })
	wantCauses(t, err, `kind: Invalid value: "Gadget": must be Widget`)
}

func TestTwoVersions(t *testing.T) {
	k := compile(t, definitionOf(t, `
- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}, b: {type: string, default: filled}}}}}}}
- {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}, c: {type: string, default: made}}}}}}}
`))
	v2 := k.Version("v2")
	o, err := resourcetest.CreateIn(k, v2, "{apiVersion: example.com/v2, kind: Widget, metadata: {name: a}, spec: {a: '1'}}", resource.DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// What v1 lacks isn't stored; v1's defaults are filled in when it is read, and v2 lacks those.
	if got := part(o, "spec"); got != `{"a":"1"}` {
		t.Errorf("in v2: %s", got)
	}
	o.Version = k.Version("v1")
	hub, err := o.Hub()
	if err != nil {
		t.Fatal(err)
	}
	data, err := o.Version.Codec.Encode(hub)
	if err != nil {
		t.Fatal(err)
	}
	if spec := string(data); !contains(spec, `"apiVersion":"example.com/v1"`) || !contains(spec, `"spec":{"a":"1","b":"filled"}`) {
		t.Errorf("in v1: %s", spec)
	}
}

// TestFirstUseByMany: what is compiled at first use is compiled once, whoever comes first.
func TestFirstUseByMany(t *testing.T) {
	k := widgets(t, benchSpec, "subresources: {status: {}}\nselectableFields: [{jsonPath: .spec.name}]")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			o, err := resourcetest.Create(k, benchBody)
			if err != nil {
				t.Error(err)
				return
			}
			if err := o.Change("status", func(content map[string]any) { content["status"] = map[string]any{"i": i} }); err != nil {
				t.Error(err)
			}
			k.Versions[0].Schema()
			if _, err := k.Versions[0].Columns.Cells(o.JSON()); err != nil {
				t.Error(err)
			}
			if f, err := k.Versions[0].Fields.Values(o.JSON()); err != nil || f["spec.name"] != "a-widget" {
				t.Error(f, err)
			}
		})
	}
	all.Wait()
	one, err := k.Versions[0].FieldManager("status")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := k.Versions[0].FieldManager("status"); again != one {
		t.Error("a field manager was made twice")
	}
}
