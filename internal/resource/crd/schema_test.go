package crd

import (
	"strings"
	"testing"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

// TestS31SchemaStores has what becomes of a spec: what is dropped and what is filled in.
func TestS31SchemaStores(t *testing.T) {
	for _, c := range []struct{ rule, schema, spec, want string }{
		{
			"unknown fields go at every depth, in lists and maps",
			"{type: object, properties: {a: {type: string}, list: {type: array, items: {type: object, properties: {k: {type: string}}}}, map: {type: object, additionalProperties: {type: object, properties: {k: {type: string}}}}}}",
			"{a: x, nope: 1, list: [{k: '1', nope: {deep: 1}}, {}], map: {m: {k: s, nope: 1}}}",
			`{"a":"x","list":[{"k":"1"},{}],"map":{"m":{"k":"s"}}}`,
		},
		{
			"preserved fields stay, but not below a field that is specified",
			"{type: object, properties: {open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {closed: {type: object, properties: {k: {type: string}}}}}}}",
			"{open: {any: {thing: [1]}, closed: {k: '1', nope: 1}}}",
			`{"open":{"any":{"thing":[1]},"closed":{"k":"1"}}}`,
		},
		{
			"defaults fill what is missing, in list items and map values",
			"{type: object, properties: {mode: {type: string, default: Auto}, size: {type: integer, default: 3}, list: {type: array, items: {type: object, properties: {p: {type: string, default: TCP}, q: {type: integer}}}}, map: {type: object, additionalProperties: {type: object, properties: {p: {type: string, default: v}}}}}}",
			"{size: 0, list: [{q: 1}, {p: UDP}], map: {k: {}}}",
			`{"list":[{"p":"TCP","q":1},{"p":"UDP"}],"map":{"k":{"p":"v"}},"mode":"Auto","size":0}`,
		},
		{
			"defaults make no parents, unless those have one themselves",
			"{type: object, properties: {inner: {type: object, properties: {x: {type: string, default: d}}}, made: {type: object, default: {}, properties: {x: {type: string, default: d}}}}}",
			"{}",
			`{"made":{"x":"d"}}`,
		},
		{
			"null gives way to a default, goes where it isn't nullable, stays where it is",
			"{type: object, properties: {d: {type: string, default: x}, n: {type: string}, z: {type: string, nullable: true}, zd: {type: string, nullable: true, default: y}}}",
			"{d: null, n: null, z: null, zd: null}",
			`{"d":"x","z":null,"zd":null}`,
		},
		{
			"an embedded resource keeps its fields, its metadata is pruned",
			"{type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}",
			"{template: {apiVersion: v1, kind: Pod, metadata: {name: ok, unknown: 1}, spec: {any: thing}}}",
			`{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ok"},"spec":{"any":"thing"}}}`,
		},
		{
			"metadata that isn't embedded is pruned as any object",
			"{type: object, properties: {template: {type: object, properties: {metadata: {type: object}}}}}",
			"{template: {metadata: {name: gone, labels: {a: b}}}}",
			`{"template":{"metadata":{}}}`,
		},
		{
			"int-or-string keeps both",
			"{type: object, properties: {a: {x-kubernetes-int-or-string: true}, b: {x-kubernetes-int-or-string: true}}}",
			"{a: 5, b: 50%}",
			`{"a":5,"b":"50%"}`,
		},
		{
			"big integers keep their digits, floats their value",
			"{type: object, properties: {i: {type: integer}, j: {type: integer, format: int64}, f: {type: number}, g: {type: number}}}",
			"{i: -9223372036854775808, j: 9007199254740993, f: 1, g: 0.1}",
			`{"f":1,"g":0.1,"i":-9223372036854775808,"j":9007199254740993}`,
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			o := create(t, widgets(t, c.schema, ""), widget(c.spec))
			if got := part(o, "spec"); got != c.want {
				t.Errorf("spec is\n\t%s\nwant\n\t%s", got, c.want)
			}
			// Reading gives the same, and finds nothing to do.
			value, err := resource.ParseValue(o.Stored)
			if err != nil {
				t.Fatal(err)
			}
			again, err := o.Version.Codec.Convert(value.JSON)
			if err != nil {
				t.Fatal(err)
			}
			if &again[0] != &value.JSON[0] {
				t.Errorf("Convert made\n\t%s\nof\n\t%s", again, value.JSON)
			}
		})
	}
}

// TestSchemaRefuses has what is wrong with a spec, in the words of the real server.
func TestSchemaRefuses(t *testing.T) {
	for _, c := range []struct {
		rule, schema, spec string
		want               []string
	}{
		{
			"each JSON type in the place of another",
			"{type: object, properties: {s: {type: string}, i: {type: integer}, b: {type: boolean}, o: {type: object, properties: {k: {type: string}}}, l: {type: array, items: {type: string}}}}",
			"{s: 1, i: '1', b: 'true', o: [], l: {}}",
			[]string{
				`spec.b: Invalid value: "string": spec.b in body must be of type boolean: "string"`,
				`spec.i: Invalid value: "string": spec.i in body must be of type integer: "string"`,
				`spec.l: Invalid value: "object": spec.l in body must be of type array: "object"`,
				`spec.o: Invalid value: "array": spec.o in body must be of type object: "array"`,
				`spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer"`,
			},
		},
		{
			"required fields, each with a cause",
			"{type: object, required: [size, name], properties: {size: {type: integer}, name: {type: string}}}",
			"{}",
			[]string{`spec.name: Required value`, `spec.size: Required value`},
		},
		{
			"limits of numbers and strings",
			"{type: object, properties: {size: {type: integer, minimum: 1}, name: {type: string, maxLength: 4}, word: {type: string, pattern: '^[a-z]+$'}, e: {type: string, enum: [a, b]}}}",
			"{size: 0, name: too long, word: A, e: c}",
			[]string{
				`spec.e: Unsupported value: "c": supported values: "a", "b"`,
				`spec.name: Too long: may not be more than 4 bytes`,
				`spec.word: Invalid value: "A": spec.word in body should match '^[a-z]+$'`,
				`spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1`,
			},
		},
		{
			"a maximum is a float, as in the CRD's own type",
			"{type: object, properties: {i: {type: integer, maximum: 9007199254740993}}}",
			"{i: 9007199254740993}",
			[]string{`spec.i: Invalid value: 9007199254740993: spec.i in body should be less than or equal to 9007199254740992`},
		},
		{
			"int-or-string takes nothing else",
			"{type: object, properties: {v: {x-kubernetes-int-or-string: true}}}",
			"{v: 1.5}",
			[]string{`spec.v: Invalid value: "number": spec.v in body must be of type integer,string: "number"`},
		},
		{
			"a set's items are distinct",
			"{type: object, properties: {tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}",
			"{tags: [a, b, a, b]}",
			[]string{`spec.tags[2]: Duplicate value: "a"`, `spec.tags[3]: Duplicate value: "b"`},
		},
		{
			"a list map's keys are distinct, defaulted ones too",
			"{type: object, properties: {ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port, proto], items: {type: object, required: [port], properties: {port: {type: integer}, proto: {type: string, default: TCP}}}}}}",
			"{ports: [{port: 1}, {port: 1, proto: TCP}, {port: 1, proto: UDP}]}",
			[]string{`spec.ports[1]: Duplicate value: {"port":1,"proto":"TCP"}`},
		},
		{
			"an embedded resource has apiVersion and kind",
			"{type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}",
			"{template: {metadata: {name: x}}}",
			[]string{`spec.template.apiVersion: Required value`, `spec.template.kind: Required value`},
		},
		{
			"a rule has its message, or its text",
			"{type: object, properties: {min: {type: integer}, max: {type: integer}}, x-kubernetes-validations: [{rule: 'self.min <= self.max', message: min must not exceed max}, {rule: 'self.max < 100'}]}",
			"{min: 500, max: 300}",
			[]string{`spec: Invalid value: min must not exceed max`, `spec: Invalid value: failed rule: self.max < 100`},
		},
		{
			"a rule's messageExpression, reason and fieldPath",
			"{type: object, properties: {a: {type: integer}}, x-kubernetes-validations: [{rule: 'self.a < 10', reason: FieldValueForbidden, fieldPath: .a, messageExpression: \"'below 10, not ' + string(self.a)\"}]}",
			"{a: 12}",
			[]string{`spec.a: Forbidden: below 10, not 12`},
		},
		{
			"rules aren't run where the schema is violated",
			"{type: object, required: [a], properties: {a: {type: integer}, b: {type: integer}}, x-kubernetes-validations: [{rule: self.b > 0, message: b must be positive}]}",
			"{b: 0}",
			[]string{`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`, `spec.a: Required value`},
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := resourcetest.Create(widgets(t, c.schema, ""), widget(c.spec))
			wantCauses(t, err, c.want...)
		})
	}
}

// TestRatcheting: what was stored before a rule may stay until it is touched.
func TestRatcheting(t *testing.T) {
	before := widgets(t, "{type: object, properties: {a: {type: string}, b: {type: string}, l: {type: array, items: {type: object, properties: {k: {type: string}}}}}}", "")
	after := widgets(t, "{type: object, properties: {a: {type: string, maxLength: 2, x-kubernetes-validations: [{rule: 'self != \"long\"', message: not long}]}, b: {type: string}, l: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string}}}}}}", "")
	o := create(t, before, widget("{a: long, b: x, l: [{k: a}, {k: a}]}"))
	o.Kind, o.Version = after, after.Versions[0]
	if err := o.Change("", func(content map[string]any) { content["spec"].(map[string]any)["b"] = "z" }); err != nil {
		t.Errorf("an update of another field: %v", err)
	}
	err := o.Change("", func(content map[string]any) { content["spec"].(map[string]any)["a"] = "longer" })
	wantCauses(t, err, "spec.a: Too long: may not be more than 2 bytes", "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
	if err := o.Change("", func(content map[string]any) {
		content["spec"].(map[string]any)["l"] = []any{map[string]any{"k": "a"}}
	}); err != nil {
		t.Errorf("removing the duplicate: %v", err)
	}
	err = o.Change("", func(content map[string]any) {
		content["spec"].(map[string]any)["l"] = []any{map[string]any{"k": "a"}, map[string]any{"k": "a"}}
	})
	wantCauses(t, err, `spec.l[1]: Duplicate value: {"k":"a"}`)
}

// TestTransitionRules: oldSelf is there on update only.
func TestTransitionRules(t *testing.T) {
	k := widgets(t, "{type: object, properties: {fixed: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: fixed is immutable}]}, n: {type: integer}}}", "")
	o := create(t, k, widget("{fixed: a}"))
	err := o.Change("", func(content map[string]any) { content["spec"].(map[string]any)["fixed"] = "b" })
	wantCauses(t, err, `spec.fixed: Invalid value: "b": fixed is immutable`)
	if err := o.Change("", func(content map[string]any) { content["spec"].(map[string]any)["n"] = 1 }); err != nil {
		t.Error(err)
	}
	if err := o.Change("", func(content map[string]any) { delete(content["spec"].(map[string]any), "fixed") }); err != nil {
		t.Error(err)
	}
}

// TestMetadata: names are DNS subdomains, and metadata is decoded into its types.
func TestMetadata(t *testing.T) {
	k := widgets(t, "", "")
	_, err := resourcetest.Create(k, strings.Replace(widget(""), "name: a", "name: Bad_Name", 1))
	if got := causes(t, err); len(got) != 1 || !strings.HasPrefix(got[0], `metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of`) {
		t.Errorf("causes are %v", got)
	}
	o := create(t, k, strings.Replace(widget(""), "name: a", "name: a, labels: {x: 'y'}, nope: 1, finalizers: [plain, with.dots, a.b/ok]", 1))
	if want := []string{
		`unknown field "metadata.nope"`,
		`metadata.finalizers: "plain": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "with.dots": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
	}; strings.Join(o.Warnings, "\n") != strings.Join(want, "\n") {
		t.Errorf("warnings are\n\t%s", strings.Join(o.Warnings, "\n\t"))
	}
}
