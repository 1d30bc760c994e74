package resource

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func TestValueRoundTrip(t *testing.T) {
	gone := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for name, meta := range map[string]Meta{
		"nothing": {},
		"all": {
			UID:    "5f0f-1",
			Labels: map[string]string{"a": "1", "b": "", "": "x"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: yes(), BlockOwnerDeletion: no()},
				{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "w"},
			},
			Finalizers:        []string{"x/y", "z"},
			DeletionTimestamp: &gone,
			Generation:        1 << 40,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(`{"kind":"X","metadata":{"name":"a","uid":"u"}}`)
			v, err := ParseValue(EncodeValue(body, meta))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(v.JSON, body) {
				t.Errorf("JSON is %s, want %s", v.JSON, body)
			}
			if got := v.Meta(); !reflect.DeepEqual(got, meta) {
				t.Errorf("Meta is %+v, want %+v", got, meta)
			}
		})
	}
}

func TestValueRevision(t *testing.T) {
	for _, c := range []struct{ name, json, stored, want string }{
		{
			"before uid in sorted names",
			`{"apiVersion":"v1","metadata":{"name":"a","uid":"u"},"spec":{}}`,
			`{"apiVersion":"v1","metadata":{"name":"a","uid":"u"},"spec":{}}`,
			`{"apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","uid":"u"},"spec":{}}`,
		},
		{
			"behind uid in a Go type's order",
			`{"metadata":{"name":"a","uid":"u","creationTimestamp":null},"spec":{}}`,
			`{"metadata":{"name":"a","uid":"u","creationTimestamp":null},"spec":{}}`,
			`{"metadata":{"name":"a","uid":"u","resourceVersion":"7","creationTimestamp":null},"spec":{}}`,
		},
		{
			"uid alone",
			`{"metadata":{"uid":"u"}}`,
			`{"metadata":{"uid":"u"}}`,
			`{"metadata":{"resourceVersion":"7","uid":"u"}}`,
		},
		{
			"no uid",
			`{"metadata":{"name":"a"}}`,
			`{"metadata":{"name":"a"}}`,
			`{"metadata":{"resourceVersion":"7","name":"a"}}`,
		},
		{"empty metadata", `{"metadata":{}}`, `{"metadata":{}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{"no metadata", `{"kind":"X"}`, `{"kind":"X"}`, `{"metadata":{"resourceVersion":"7"},"kind":"X"}`},
		{"empty object", `{}`, `{}`, `{"metadata":{"resourceVersion":"7"}}`},
		{
			"old revision first",
			`{"metadata":{"resourceVersion":"3","name":"a"}}`,
			`{"metadata":{"name":"a"}}`,
			`{"metadata":{"resourceVersion":"7","name":"a"}}`,
		},
		{
			"old revision in between",
			`{"metadata":{"name":"a","resourceVersion":"3","uid":"u"}}`,
			`{"metadata":{"name":"a","uid":"u"}}`,
			`{"metadata":{"name":"a","resourceVersion":"7","uid":"u"}}`,
		},
		{
			"old revision alone",
			`{"metadata":{"resourceVersion":"3"}}`,
			`{"metadata":{}}`,
			`{"metadata":{"resourceVersion":"7"}}`,
		},
		{
			"other resourceVersions and escapes stay",
			`{"a":"}\"{","involvedObject":{"resourceVersion":"1"},"metadata":{"annotations":{"resourceVersion":"2","uid":"{\\"},"name":"a"}}`,
			`{"a":"}\"{","involvedObject":{"resourceVersion":"1"},"metadata":{"annotations":{"resourceVersion":"2","uid":"{\\"},"name":"a"}}`,
			`{"a":"}\"{","involvedObject":{"resourceVersion":"1"},"metadata":{"resourceVersion":"7","annotations":{"resourceVersion":"2","uid":"{\\"},"name":"a"}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := ParseValue(EncodeValue([]byte(c.json), Meta{}))
			if err != nil {
				t.Fatal(err)
			}
			if string(v.JSON) != c.stored {
				t.Errorf("stored\n %s\nwant\n %s", v.JSON, c.stored)
			}
			if got := string(v.AppendJSON([]byte("> "), 7)); got != "> "+c.want {
				t.Errorf("answered\n %s\nwant\n > %s", got, c.want)
			}
		})
	}
}

func TestParseValueRefuses(t *testing.T) {
	good := EncodeValue([]byte(`{"metadata":{"name":"a"}}`), Meta{UID: "u"})
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"plain JSON":      []byte(`{"kind":"X"}`),
		"another format":  append([]byte{9}, good[1:]...),
		"cut in the head": good[:3],
		"offset too far":  append([]byte{valueFormat, 0, 0xff, 0x01}, good[3:]...),
		"header too long": append([]byte{valueFormat, 0, 0, 0xff, 0x7f}, good[4:]...),
	} {
		if _, err := ParseValue(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzValue stores arbitrary JSON objects: what comes back is the same object with the revision set.
func FuzzValue(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"metadata":{}}`, `{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"name":"a","uid":"b"}}`,
		` { "metadata" : { "uid" : "a" , "resourceVersion" : "2" , "x" : [ 1 , { } ] } , "b" : null } `,
		`{"a":{"metadata":{}},"metadata":{"annotations":{"uid":"\"}"}}}`, `{"metadata":"x"}`, `{"metadata":null}`,
	} {
		f.Add([]byte(s), "u", "label", "value")
	}
	f.Fuzz(func(t *testing.T, data []byte, uid, label, value string) {
		var before map[string]any
		if json.Unmarshal(data, &before) != nil || before == nil || hasDuplicates(data) {
			t.Skip()
		}
		m, isObject := before["metadata"].(map[string]any)
		if _, there := before["metadata"]; there && !isObject {
			t.Skip() // metadata that is no object never gets here
		}
		meta := Meta{UID: types.UID("u" + uid), Labels: map[string]string{label: value}, Finalizers: []string{uid}}
		v, err := ParseValue(EncodeValue(data, meta))
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Meta(); !reflect.DeepEqual(got, meta) {
			t.Fatalf("Meta is %+v, want %+v", got, meta)
		}
		var after map[string]any
		out := v.AppendJSON(nil, 42)
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s became %s: %v", data, out, err)
		}
		if m == nil {
			m = map[string]any{}
			before["metadata"] = m
		}
		m["resourceVersion"] = "42"
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", data, out)
		}
	})
}

// hasDuplicates tells whether a name occurs twice in an object, or is spelled with escapes or another case:
// encoders here never write that.
func hasDuplicates(data []byte) bool {
	s := scanner{b: data}
	return bytes.ContainsRune(data, '\\') || twice(&s)
}

func twice(s *scanner) bool {
	if s.token('[') {
		for n := 0; ; n++ {
			if s.token(']') {
				return false
			}
			if n > 0 && !s.token(',') || twice(s) {
				return true
			}
		}
	}
	if !s.token('{') {
		return !s.value()
	}
	seen := map[string]bool{}
	for n := 0; ; n++ {
		name, _, ok := s.member(n)
		if !ok {
			return !s.token('}')
		}
		lower := string(bytes.ToLower(name))
		if seen[lower] || twice(s) {
			return true
		}
		seen[lower] = true
	}
}

// FuzzParseValue reads arbitrary bytes: no panic, and no memory beyond what the bytes can hold.
func FuzzParseValue(f *testing.F) {
	f.Add(EncodeValue([]byte(`{"metadata":{"name":"a"}}`), Meta{UID: "u", Labels: map[string]string{"a": "b"}, Finalizers: []string{"x"}}))
	f.Add([]byte{1, 0, 0, 3, 2, 0xff, 0xff, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseValue(data)
		if err != nil {
			return
		}
		v.Meta()
		v.AppendJSON(nil, 1)
	})
}

func BenchmarkEncodeValue(b *testing.B) {
	body := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"labels":{"app":"a"},"name":"a","namespace":"default","uid":"5f0f-1"},"spec":{"text":"` + string(bytes.Repeat([]byte("x"), 800)) + `"}}`)
	meta := Meta{UID: "5f0f-1", Labels: map[string]string{"app": "a"}, Generation: 1}
	b.ReportAllocs()
	for b.Loop() {
		EncodeValue(body, meta)
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	body := []byte(`{"metadata":{"name":"a","uid":"5f0f-1"},"spec":{"text":"` + string(bytes.Repeat([]byte("x"), 900)) + `"}}`)
	stored := EncodeValue(body, Meta{UID: "5f0f-1"})
	buf := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		v, err := ParseValue(stored)
		if err != nil {
			b.Fatal(err)
		}
		v.AppendJSON(buf[:0], 12345)
	}
}
