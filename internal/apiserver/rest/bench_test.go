package rest_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/watchcache"
)

// object is about 1 KiB.
func object(name, content string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"bench"}},%q:{"text":%q,"n":"1"}}`, name, content, strings.Repeat("x", 700))
}

// kinds are what is measured: one that is compiled in, one that a CRD declares.
var kinds = []struct{ name, path, content string }{
	{"ConfigMap", configMaps, "data"},
	{"Custom", widgets, "spec"},
}

// writers is enough for commits to share syncs, so that the processor is what is measured.
const writers = 64

func BenchmarkCreate(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			s := newServer(b)
			s.declare("")
			a, body := s.on(k.path, "default", ""), s.body(k.path, object("NAME", k.content))
			var n atomic.Int64
			b.SetParallelism(writers)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					mine := body
					mine.Data = []byte(strings.Replace(string(body.Data), "NAME", fmt.Sprint("n", n.Add(1)), 1))
					if _, err := s.verbs.Create(b.Context(), a, mine, metav1.CreateOptions{}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkPatch(b *testing.B) {
	for _, k := range kinds {
		for _, pt := range []types.PatchType{types.MergePatchType, types.ApplyPatchType} {
			b.Run(k.name+"/"+strings.Split(string(pt), "/")[1], func(b *testing.B) {
				s := newServer(b)
				s.declare("")
				gvk := s.on(k.path, "", "").Version.GVK
				var n atomic.Int64
				b.SetParallelism(writers)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					name := fmt.Sprint("n", n.Add(1))
					s.must(s.create(k.path, "default", object(name, k.content)))
					a := s.on(k.path, "default", name)
					opts := metav1.PatchOptions{FieldManager: "bench"}
					for i := 0; pb.Next(); i++ {
						patch := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%q:{"i":"%d"}}`, gvk.GroupVersion(), gvk.Kind, name, k.content, i)
						if _, err := s.verbs.Patch(b.Context(), a, pt, []byte(patch), opts); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			s := newServer(b)
			s.declare("")
			s.must(s.create(k.path, "default", object("a", k.content)))
			a := s.on(k.path, "default", "a")
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				res, err := s.verbs.Get(b.Context(), a, metav1.GetOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if buf, err = res.Object.AppendJSON(buf[:0], a.Version); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	const objects = 1000
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			s := newServer(b)
			s.declare("")
			for i := range objects {
				s.must(s.create(k.path, "default", object(fmt.Sprint("n", i), k.content)))
			}
			a := s.on(k.path, "default", "")
			buf := make([]byte, 0, 2<<20)
			b.ReportAllocs()
			for b.Loop() {
				l, err := s.verbs.List(b.Context(), a, watchcache.ListOptions{})
				if err != nil || len(l.Objects) != objects {
					b.Fatal(len(l.Objects), err)
				}
				buf = buf[:0]
				for _, o := range l.Objects {
					if buf, err = o.AppendJSON(buf, a.Version); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
