package crd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/resource"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestDecodeStrictness(t *testing.T) {
	k := widgets(t, "{type: object, properties: {a: {type: string}, nested: {type: object, properties: {b: {type: string}}}}}", "")
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","extra":1},"spec":{"a":"1","a":"2","zzz":1,"nested":{"yyy":2}},"top":1}`
	problems := []string{
		`duplicate field "spec.a"`, `unknown field "metadata.extra"`, `unknown field "spec.nested.yyy"`, `unknown field "spec.zzz"`, `unknown field "top"`,
	}
	codec := k.Versions[0].Codec
	for _, validation := range []string{"", "Warn"} {
		obj, warnings, err := codec.Decode([]byte(body), resource.DecodeOptions{FieldValidation: validation})
		if err != nil || !slices.Equal(warnings, problems) {
			t.Errorf("%q: warnings %q, error %v", validation, warnings, err)
		}
		if data, _ := codec.Encode(obj); !contains(string(data), `"spec":{"a":"2","nested":{}}`) {
			t.Errorf("%q: decoded %s", validation, data)
		}
	}
	if _, warnings, err := codec.Decode([]byte(body), resource.DecodeOptions{FieldValidation: "Ignore"}); err != nil || warnings != nil {
		t.Errorf("Ignore: warnings %q, error %v", warnings, err)
	}
	_, _, err := codec.Decode([]byte(body), resource.DecodeOptions{FieldValidation: "Strict"})
	if want := `Widget in version "v1" cannot be handled as a Widget: strict decoding error: ` + strings.Join(problems, ", "); !apierrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("Strict: %v, want %s", err, want)
	}
	_, _, err = codec.Decode([]byte(body), resource.DecodeOptions{FieldValidation: "Strict", Patched: true, PatchErrors: []error{fmt.Errorf("of the patch")}})
	if got := causes(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "patch: Invalid value: ") || !strings.HasSuffix(got[0], ": strict decoding error: of the patch, "+strings.Join(problems, ", ")) {
		t.Errorf("Strict, patched: %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	codec := widgets(t, "", "").Versions[0].Codec
	for _, c := range []struct{ name, body, media, want string }{
		{"cut", `{"metadata":{"name":"a"`, "application/json", `the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: unexpected end of JSON input ({"metadata":{"name":"a")`},
		{"empty", ``, "application/json", `the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)`},
		{"no object", `"text"`, "application/json", `the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (227465787422)`},
		{"no kind", `{"apiVersion":"example.com/v1","metadata":{"name":"a"}}`, "application/json", `the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{"apiVersion":"example.com/v1","metadata":{"name":"a"}}' ({"apiVersion":"example.com/v1" ...)`},
		{"no version", `{"kind":"Widget","metadata":{"name":"a"}}`, "application/json", `the API version in the data () does not match the expected API version (example.com/v1)`},
		{"another version", `{"apiVersion":"example.com/v2","kind":"Widget"}`, "application/json", `the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)`},
		{"labels of numbers", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":1}}}`, "application/json", `Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string`},
		{"protobuf", "k8s\x00", "application/vnd.kubernetes.protobuf", `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
	} {
		if _, _, err := codec.Decode([]byte(c.body), resource.DecodeOptions{MediaType: c.media}); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n\t%v\nwant\n\t%s", c.name, err, c.want)
		}
	}
}

func TestDecodeYAML(t *testing.T) {
	codec := widgets(t, "", "").Versions[0].Codec
	obj, _, err := codec.Decode([]byte("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {num: 9007199254740993}\n"),
		resource.DecodeOptions{MediaType: "application/yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := codec.Encode(obj); !contains(string(data), `"num":9007199254740993`) {
		t.Errorf("decoded %s", data)
	}
}

// TestReadingByANewSchema: what was stored before a schema changed is read by the new one.
func TestReadingByANewSchema(t *testing.T) {
	o := create(t, widgets(t, "", ""), widget("{old: 1, n: null}"))
	k := widgets(t, "{type: object, properties: {n: {type: string}, mode: {type: string, default: Auto}}}", "")
	value, err := resource.ParseValue(o.Stored)
	if err != nil {
		t.Fatal(err)
	}
	data, err := k.Versions[0].Codec.Convert(value.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if !contains(string(data), `"spec":{"mode":"Auto"}`) {
		t.Errorf("read %s", data)
	}
}

// TestSchemaThatCannotBeUsed: such a CRD doesn't get in; if it is there it says what is wrong.
func TestSchemaThatCannotBeUsed(t *testing.T) {
	k := widgets(t, "{type: object, patternProperties: {a: {type: string}}}", "")
	_, _, err := k.Versions[0].Codec.Decode(resourceBody, resource.DecodeOptions{})
	if !apierrors.IsInternalError(err) || !contains(err.Error(), "the schema of v1 in CustomResourceDefinition widgets.example.com can't be used") {
		t.Errorf("decode: %v", err)
	}
}

var resourceBody = []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"a":1}}`)

// FuzzDecode: no body panics, and what is decoded encodes.
func FuzzDecode(f *testing.F) {
	k := widgets(f, "{type: object, properties: {a: {type: string, default: x}, l: {type: array, x-kubernetes-list-type: set, items: {type: string}}, t: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}, m: {type: object, additionalProperties: {type: integer}}}}", "subresources: {status: {}}")
	f.Add(resourceBody)
	f.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":null,"spec":{"l":["a",null],"t":{"metadata":{"labels":[]}},"m":{"a":1.5}}}`))
	codec := k.Versions[0].Codec
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, _, err := codec.Decode(data, resource.DecodeOptions{FieldValidation: "Warn"})
		if err != nil {
			return
		}
		if _, err := codec.Encode(obj); err != nil {
			t.Fatalf("decoded but not encoded: %v", err)
		}
	})
}
