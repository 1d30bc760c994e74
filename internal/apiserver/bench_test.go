package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a client that takes everything at once.
type discard struct {
	header http.Header
	code   int
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(b []byte) (int, error) { d.bytes += len(b); return len(b), nil }
func (d *discard) Flush()                      {}

func (s *server) bench(b *testing.B, path, accept string) {
	b.Helper()
	h := s.Server.Config.Handler
	r := httptest.NewRequest("GET", path, nil)
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{header: http.Header{}}
		r.Header.Set("Accept", accept)
		r.Header.Set("Authorization", "Bearer "+adminToken)
		h.ServeHTTP(w, r.WithContext(context.Background()))
		if w.code != 200 || w.bytes == 0 {
			b.Fatalf("%d, %d bytes", w.code, w.bytes)
		}
		b.SetBytes(int64(w.bytes))
	}
}

func BenchmarkGet(b *testing.B) {
	s := newServer(b, nil)
	s.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"k":%q}}`, strings.Repeat("x", 900)))
	s.bench(b, configMaps+"/a", "")
}

// BenchmarkList500 compares the stored bytes with forms that are made for the request.
func BenchmarkList500(b *testing.B) {
	s := newServer(b, nil)
	for i := range 500 {
		s.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"a%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 900)))
	}
	for name, accept := range map[string]string{
		"json":     "application/json",
		"protobuf": "application/vnd.kubernetes.protobuf",
		"table":    "application/json;as=Table;v=v1;g=meta.k8s.io",
		"metadata": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	} {
		b.Run(name, func(b *testing.B) { s.bench(b, configMaps, accept) })
	}
}

func BenchmarkDiscovery(b *testing.B) {
	newServer(b, nil).bench(b, "/apis/apps/v1", "")
}
