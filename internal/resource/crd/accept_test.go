package crd

import (
	"encoding/json"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"pgregory.net/rapid"
)

// schemas draws a schema; small numbers and few names make values hit and miss its limits.
func schemas(depth int) *rapid.Generator[*spec.Schema] {
	return rapid.Custom(func(t *rapid.T) *spec.Schema {
		s := &spec.Schema{}
		types := []string{"", "string", "integer", "number", "boolean"}
		if depth > 0 {
			types = append(types, "object", "object", "array")
		}
		name := rapid.SampledFrom(types).Draw(t, "type")
		switch {
		case rapid.IntRange(0, 9).Draw(t, "int-or-string") == 0:
			s.Type = spec.StringOrArray{"integer", "string"}
		case name != "":
			s.Type = spec.StringOrArray{name}
		}
		some := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
		count := func(label string) *int64 {
			if !some(label) {
				return nil
			}
			n := rapid.Int64Range(0, 3).Draw(t, label+" is")
			return &n
		}
		number := func(label string) *float64 {
			if !some(label) {
				return nil
			}
			n := rapid.SampledFrom([]float64{-1, 0, 1, 2, 1.5, 1e300, 9007199254740993}).Draw(t, label+" is")
			return &n
		}
		s.Nullable = some("nullable")
		s.MinLength, s.MaxLength, s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties =
			count("minLength"), count("maxLength"), count("minItems"), count("maxItems"), count("minProperties"), count("maxProperties")
		s.Minimum, s.Maximum, s.ExclusiveMinimum, s.ExclusiveMaximum = number("minimum"), number("maximum"), some("exclusiveMinimum"), some("exclusiveMaximum")
		s.UniqueItems = some("uniqueItems") && some("really")
		if some("pattern") {
			s.Pattern = rapid.SampledFrom([]string{"^a", "b$", "("}).Draw(t, "pattern is")
		}
		if some("format") {
			s.Format = rapid.SampledFrom([]string{"int32", "int64", "float", "double", "date", "byte", "no-such"}).Draw(t, "format is")
		}
		if some("enum") {
			s.Enum = rapid.SliceOfN(rapid.SampledFrom([]any{"a", "b", int64(1), 1.5, true, nil}), 1, 3).Draw(t, "enum is")
		}
		if some("required") {
			s.Required = []string{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "required is")}
		}
		if depth == 0 {
			return s
		}
		sub := func(label string) spec.Schema { return *schemas(depth-1).Draw(t, label) }
		if some("properties") || name == "object" {
			s.Properties = map[string]spec.Schema{"a": sub("a"), "b": sub("b")}
		}
		if some("additionalProperties") {
			s.AdditionalProperties = &spec.SchemaOrBool{Allows: !some("forbidden")}
			if some("with a schema") {
				p := sub("additional")
				s.AdditionalProperties.Schema = &p
			}
		}
		if some("items") || name == "array" {
			p := sub("items")
			s.Items = &spec.SchemaOrArray{Schema: &p}
		}
		if some("anyOf") {
			s.AnyOf = []spec.Schema{sub("any 1"), sub("any 2")}
		}
		if some("allOf") {
			s.AllOf = []spec.Schema{sub("all")}
		}
		if some("oneOf") && some("really") {
			s.OneOf = []spec.Schema{sub("one 1"), sub("one 2")}
		}
		if some("not") && some("really") {
			p := sub("not")
			s.Not = &p
		}
		return s
	})
}

// values draws a JSON value.
func values(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth > 0 {
			kinds = 9
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2, 3:
			return rapid.SampledFrom([]any{int64(0), int64(1), int64(2), int64(-1), int64(3000000000), int64(9007199254740993), 1.0, 1.5, -0.5, 1e300}).Draw(t, "number")
		case 4, 5:
			return rapid.SampledFrom([]any{"", "a", "b", "ab", "aaaa", "ä", "2020-01-01", "aGk="}).Draw(t, "string")
		case 6:
			return rapid.SliceOfN(values(depth-1), 0, 4).Draw(t, "list")
		default:
			return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), values(depth-1), 0, 3).Draw(t, "object")
		}
	})
}

// TestAcceptNeverForgives: whatever is accepted quickly has no error for the real validator.
func TestAcceptNeverForgives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schemas(2).Draw(t, "schema")
		yes := compileAccept(s)
		for range 50 {
			value := values(3).Draw(t, "value")
			if yes(value) {
				if r := validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(value); !r.IsValid() {
					text, _ := json.Marshal(s)
					t.Fatalf("%s accepts %#v, but: %v", text, value, r.Errors)
				}
			}
		}
	})
}

// TestAcceptIsQuick: an object of a usual schema isn't left to the validator.
func TestAcceptIsQuick(t *testing.T) {
	k := widgets(t, benchSpec, "subresources: {status: {}}")
	v, err := k.Strategy.(*strategy).def.versions["v1"].validation()
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal([]byte(benchBody), &content); err != nil {
		t.Fatal(err)
	}
	o := create(t, k, benchBody)
	yes := v.object.(*validator).yes
	if !yes(o.Content()) {
		t.Error("a valid object isn't accepted")
	}
	spec := content["spec"].(map[string]any)
	spec["size"] = int64(1000)
	if yes(content) {
		t.Error("an invalid object is accepted")
	}
}
