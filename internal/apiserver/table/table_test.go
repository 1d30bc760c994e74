package table

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/resource"
)

func TestField(t *testing.T) {
	for _, c := range []struct{ in, name, want string }{
		{`{"metadata":{"name":"a"}}`, "metadata", `{"name":"a"}`},
		{`{"kind":"W","metadata":{"a":"}\"{","b":[1,{"c":2}]},"spec":{}}`, "metadata", `{"a":"}\"{","b":[1,{"c":2}]}`},
		{` { "a" : 1 , "metadata" : [ 1 , 2 ] } `, "metadata", `[ 1 , 2 ]`},
		{`{"spec":{"metadata":1},"metadata":2}`, "metadata", `2`},
		{`{"n":-1.5e3,"t":true,"z":null}`, "t", `true`},
		{`{"n":-1.5e3,"t":true,"z":null}`, "z", `null`},
		{`{"s":"metadata"}`, "metadata", ``},
		{`{}`, "metadata", ``},
	} {
		got, err := Field([]byte(c.in), c.name)
		if err != nil || string(got) != c.want {
			t.Errorf("%s of %s: %s, %v; want %s", c.name, c.in, got, err, c.want)
		}
	}
	for _, in := range []string{``, `[]`, `"x"`, `1`} {
		if _, err := Field([]byte(in), "a"); err == nil {
			t.Errorf("%q was taken for an object", in)
		}
	}
}

// FuzzField compares with encoding/json on every document that it takes, and must not fail on any other.
func FuzzField(f *testing.F) {
	for _, seed := range []string{`{"metadata":{"a":"\"}"},"b":[1,2,{"c":null}]}`, `{"a":1e9,"b":"é\u0041","":{}}`, `{`, `{"a":`, `{"a":"\`, `{"a" 1}`, `{]}`} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, doc []byte, name string) {
		got, err := Field(doc, name)
		var want map[string]json.RawMessage
		if json.Unmarshal(doc, &want) != nil || want == nil || strings.ContainsAny(name, "\"\\") {
			return // only that it ends
		}
		if bytes.Contains(doc, []byte(`\`)) || strings.Count(string(doc), `"`+name+`"`) > 1 {
			return // names may be escaped, or given twice
		}
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		if w, ok := want[name]; !ok {
			if got != nil {
				t.Fatalf("%q has no %q, got %q", doc, name, got)
			}
		} else if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(w)) {
			t.Fatalf("%q of %q: %q, want %q", name, doc, got, w)
		}
	})
}

const object = `{"kind":"W","apiVersion":"g/v1","metadata":{"name":"a","creationTimestamp":"2001-01-01T00:00:00Z"},"spec":{"x":1}}`

func render(t *testing.T, v *resource.Version, o Options, objects ...string) map[string]any {
	t.Helper()
	w := New(v, o)
	remaining := int64(7)
	b, err := w.Begin(nil, Meta{ResourceVersion: "9", Continue: "next", Remaining: &remaining})
	for _, obj := range objects {
		if err == nil {
			b, err = w.Row(b, []byte(obj))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(w.End(b), &out); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return out
}

func TestTable(t *testing.T) {
	got := render(t, &resource.Version{}, Options{Version: "v1"}, object, object)
	if got["kind"] != "Table" || got["apiVersion"] != "meta.k8s.io/v1" {
		t.Errorf("type %v %v", got["kind"], got["apiVersion"])
	}
	if want := map[string]any{"resourceVersion": "9", "continue": "next", "remainingItemCount": 7.0}; !reflect.DeepEqual(got["metadata"], want) {
		t.Errorf("metadata %v, want %v", got["metadata"], want)
	}
	rows := got["rows"].([]any)
	if len(rows) != 2 || len(got["columnDefinitions"].([]any)) != 2 {
		t.Fatalf("%d rows, columns %v", len(rows), got["columnDefinitions"])
	}
	row := rows[0].(map[string]any)
	if cells := row["cells"].([]any); cells[0] != "a" || !strings.HasSuffix(cells[1].(string), "y") {
		t.Errorf("cells %v", cells)
	}
	if o := row["object"].(map[string]any); o["kind"] != "PartialObjectMetadata" || o["spec"] != nil || o["metadata"].(map[string]any)["name"] != "a" {
		t.Errorf("object %v", o)
	}
}

func TestTableOptions(t *testing.T) {
	first := func(o Options) any {
		return render(t, &resource.Version{}, o, object)["rows"].([]any)[0].(map[string]any)["object"]
	}
	if o := first(Options{Version: "v1", Include: metav1.IncludeNone}); o != nil {
		t.Errorf("None: %v", o)
	}
	if o := first(Options{Version: "v1", Include: metav1.IncludeObject}); o.(map[string]any)["spec"] == nil {
		t.Errorf("Object: %v", o)
	}
	if o := first(Options{Version: "v1beta1"}); o.(map[string]any)["apiVersion"] != "meta.k8s.io/v1beta1" {
		t.Errorf("v1beta1: %v", o)
	}
	if d := render(t, &resource.Version{}, Options{Version: "v1", NoHeaders: true})["columnDefinitions"]; d != nil {
		t.Errorf("NoHeaders: %v", d)
	}
	w := New(&resource.Version{}, Options{Version: "v1", Include: metav1.IncludeNone})
	b, err := w.Bookmark(nil, []byte(`{"kind":"W","metadata":{"resourceVersion":"3"}}`))
	if err != nil || !strings.Contains(string(b), `"resourceVersion":"3"`) {
		t.Errorf("a bookmark without its metadata: %s, %v", b, err)
	}
}

func TestAgeOfAnUnknownTime(t *testing.T) {
	cells, err := nameAndAge{}.Cells([]byte(`{"metadata":{"name":"a"}}`))
	if err != nil || cells[1] != "<unknown>" {
		t.Errorf("%v, %v", cells, err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if cells, err = (nameAndAge{}).Cells([]byte(`{"metadata":{"name":"a","creationTimestamp":"` + now + `"}}`)); err != nil || !strings.HasSuffix(cells[1].(string), "s") {
		t.Errorf("%v, %v", cells, err)
	}
}
