package apiserver_test

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"operatord.io/operatord/internal/apiserver"
)

// fuzzed answers requests as admin and fails when one takes more than a request may: a panic, 10 s, 512 MiB.
type fuzzed struct{ *server }

func newFuzzed(f *testing.F) fuzzed {
	s := newServer(f, func(c *apiserver.Config) {
		c.Log = slog.New(slog.DiscardHandler)
	})
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a","labels":{"k":"v"}},"data":{"k":"v"}}`)
	s.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	return fuzzed{s}
}

func (z fuzzed) try(t *testing.T, method, path, contentType, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before, start := sample[0].Value.Uint64(), time.Now()
	z.Config.Handler.ServeHTTP(w, r)
	metrics.Read(sample)
	if grown := sample[0].Value.Uint64() - before; grown > heapBound {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("it took %v", d)
	}
	if strings.Contains(w.Body.String(), "caused apiserver to panic") {
		t.Error("it panicked")
	}
}

func FuzzYAML(f *testing.F) {
	z := newFuzzed(f)
	f.Add("metadata: {name: b}\ndata: {a: &a x, b: *a}")
	f.Add("a: &a [*a]")
	f.Add(laughs("metadata: {name: b}\ndata:\n", func(n string) string { return "{<<: " + n + "}" }))
	f.Add("? [a]\n: !!binary x\n---\n%YAML 9")
	f.Fuzz(func(t *testing.T, body string) {
		z.try(t, "POST", configMaps+"?dryRun=All", yamlType, body)
		z.try(t, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", yamlType, body)
		z.try(t, "DELETE", configMaps+"/a?dryRun=All", yamlType, body)
	})
}

func FuzzPatch(f *testing.F) {
	z := newFuzzed(f)
	f.Add(copies(20))
	f.Add(`[{"op":"test","path":"/data/k","value":"v"},{"op":"move","from":"/data","path":"/metadata/labels"}]`)
	f.Add(`{"spec":{"containers":[{"name":"c","$patch":"delete"}],"$setElementOrder/containers":[{"name":"c"}]}}`)
	f.Add(`{"metadata":{"finalizers":["a/b"],"$deleteFromPrimitiveList/finalizers":["a/b"],"labels":null}}`)
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: j}]}")
	f.Fuzz(func(t *testing.T, patch string) {
		for _, contentType := range []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"} {
			for _, path := range []string{configMaps + "/a", "/api/v1/namespaces/default/pods/p"} {
				z.try(t, "PATCH", path+"?dryRun=All&fieldManager=m&force=true", contentType, patch)
			}
		}
	})
}

func FuzzSelectors(f *testing.F) {
	z := newFuzzed(f)
	f.Add("k in (v,w),!x,y!=z,n>1", "metadata.name=a,metadata.namespace!=b")
	f.Add("a=b,,", `metadata.name=a\,b`)
	f.Fuzz(func(t *testing.T, label, field string) {
		q := url.Values{"labelSelector": {label}, "fieldSelector": {field}}.Encode()
		z.try(t, "GET", configMaps+"?"+q, "application/json", "")
		z.try(t, "GET", "/apis/events.k8s.io/v1/events?"+q, "application/json", "")
	})
}

func FuzzProtobuf(f *testing.F) {
	z := newFuzzed(f)
	f.Add("k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x0b\n\x09\n\x01b\x12\x00\x1a\x00\"\x00")
	f.Add("k8s\x00\n\x10\n\x02v1\x12\x0aDeleteOpts\x12\x7f")
	f.Fuzz(func(t *testing.T, body string) {
		z.try(t, "POST", configMaps+"?dryRun=All", "application/vnd.kubernetes.protobuf", body)
		z.try(t, "POST", "/api/v1/namespaces/default/pods?dryRun=All", "application/vnd.kubernetes.protobuf", body)
		z.try(t, "DELETE", configMaps+"/a?dryRun=All", "application/vnd.kubernetes.protobuf", body)
	})
}
