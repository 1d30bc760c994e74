package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	"operatord.io/operatord/internal/resource/crd"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}

// server is the verbs over a real store with the real kinds.
type server struct {
	testing.TB
	store storage.Store
	reg   *resource.Registry
	cache *watchcache.Cache
	verbs *rest.Verbs
}

func newServer(t testing.TB, configure ...func(*rest.Config)) *server {
	t.Helper()
	s := &server{TB: t, reg: resource.NewRegistry(builtin.Kinds(), crd.Compile)}
	store, err := bolt.Open(t.Context(), bolt.Options{Dir: t.TempDir(), Publishing: s.publishing})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.Config{Store: store, Registry: s.reg}
	for _, c := range configure {
		c(&cfg)
	}
	s.store = cfg.Store
	s.cache = watchcache.New(cfg.Store, s.reg, watchcache.Options{})
	cfg.Cache = s.cache
	s.verbs = rest.New(cfg)
	t.Cleanup(func() {
		s.cache.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	s.must(s.create("v1/namespaces", "", `{"metadata":{"name":"default"}}`))
	return s
}

// publishing tells the registry about CRDs, as the daemon does.
func (s *server) publishing(events []storage.Event) {
	for _, e := range events {
		name, ok := strings.CutPrefix(e.Key(), "/apiextensions.k8s.io/customresourcedefinitions/")
		if !ok {
			continue
		}
		if e.New == nil {
			s.reg.RemoveCRD(name)
			continue
		}
		v, err := resource.ParseValue(e.New.Value)
		if err == nil {
			err = s.reg.SetCRD(v.AppendJSON(nil, uint64(e.New.Rev)))
		}
		if err != nil {
			s.Error(err)
		}
	}
}

const crdPath = "apiextensions.k8s.io/v1/customresourcedefinitions"

// widgets is where the test CRD's objects are.
const widgets = "test.io/v1/widgets"

// declare makes the test CRD and establishes it, as operator/crd would. more is laid over its version.
func (s *server) declare(more string) {
	s.Helper()
	if more == "" {
		more = `"subresources":{"status":{}}`
	}
	s.must(s.create(crdPath, "", `{"metadata":{"name":"widgets.test.io"},"spec":{
		"group":"test.io","scope":"Namespaced",
		"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,`+more+`,
			"schema":{"openAPIV3Schema":{"type":"object","properties":{
				"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
				"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`))
	s.must(s.patch(crdPath, "", "widgets.test.io", types.MergePatchType, `{"status":{
		"acceptedNames":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"storedVersions":["v1"],
		"conditions":[{"type":"NamesAccepted","status":"True","reason":"x","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"},
			{"type":"Established","status":"True","reason":"x","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`, "status"))
}

// on makes attributes for [group/]version/plural.
func (s *server) on(path, ns, name string, subresource ...string) rest.Attributes {
	s.Helper()
	parts := strings.Split(path, "/")
	group := ""
	if len(parts) == 3 {
		group, parts = parts[0], parts[1:]
	}
	kind, version, ok := s.reg.Lookup(group, parts[0], parts[1])
	if !ok {
		s.Fatalf("%s isn't served", path)
	}
	a := rest.Attributes{User: admin, Kind: kind, Version: version, Namespace: ns, Name: name, UserAgent: "test/1"}
	if len(subresource) > 0 {
		a.Subresource = subresource[0]
	}
	return a
}

// body completes an object's JSON with its kind.
func (s *server) body(path, object string) rest.Body {
	s.Helper()
	a := s.on(path, "", "")
	var u map[string]any
	if err := json.Unmarshal([]byte(object), &u); err != nil {
		s.Fatalf("%v in %s", err, object)
	}
	if u["kind"] == nil {
		u["apiVersion"], u["kind"] = a.Version.GVK.GroupVersion().String(), a.Version.GVK.Kind
	}
	data, err := json.Marshal(u)
	if err != nil {
		s.Fatal(err)
	}
	return rest.Body{Data: data, MediaType: runtime.ContentTypeJSON}
}

func (s *server) create(path, ns, object string) (*rest.Result, error) {
	s.Helper()
	return s.verbs.Create(s.Context(), s.on(path, ns, ""), s.body(path, object), metav1.CreateOptions{})
}

func (s *server) update(path, ns, name, object string, subresource ...string) (*rest.Result, error) {
	s.Helper()
	return s.verbs.Update(s.Context(), s.on(path, ns, name, subresource...), s.body(path, object), metav1.UpdateOptions{})
}

func (s *server) patch(path, ns, name string, pt types.PatchType, patch string, subresource ...string) (*rest.Result, error) {
	s.Helper()
	opts := metav1.PatchOptions{}
	if pt == types.ApplyPatchType {
		opts.FieldManager = "applier"
	}
	return s.verbs.Patch(s.Context(), s.on(path, ns, name, subresource...), pt, []byte(patch), opts)
}

func (s *server) delete(path, ns, name string, opts ...metav1.DeleteOptions) (*rest.Result, error) {
	s.Helper()
	o := &metav1.DeleteOptions{}
	if len(opts) > 0 {
		o = &opts[0]
	}
	return s.verbs.Delete(s.Context(), s.on(path, ns, name), o)
}

func (s *server) get(path, ns, name string) (*rest.Result, error) {
	s.Helper()
	return s.verbs.Get(s.Context(), s.on(path, ns, name), metav1.GetOptions{})
}

// must is the object of an answer that is no error.
func (s *server) must(res *rest.Result, err error) *unstructured.Unstructured {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if res.Object == nil {
		return u
	}
	data, err := res.Object.JSON(res.Object.Kind().Versions[0])
	if err != nil {
		s.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		s.Fatal(err)
	}
	return u
}

// refused checks an error's status, reason and message, where they aren't zero.
func (s *server) refused(res *rest.Result, err error, code int32, reason metav1.StatusReason, message string) metav1.Status {
	s.Helper()
	if err == nil {
		s.Fatalf("got no error, want %d %s", code, reason)
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		s.Fatalf("%v (%T) is no API error", err, err)
	}
	got := status.Status()
	if got.Code != code || reason != "" && got.Reason != reason || !strings.Contains(got.Message, message) {
		s.Fatalf("got %d %s %q, want %d %s %q", got.Code, got.Reason, got.Message, code, reason, message)
	}
	return got
}

// events opens a watch of a kind from now on.
func (s *server) events(path string) *events {
	s.Helper()
	w, err := s.verbs.Watch(s.Context(), s.on(path, "", ""), watchcache.ListOptions{ResourceVersion: fmt.Sprint(s.store.Status().Rev)})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(w.Close)
	return &events{TB: s.TB, watch: w}
}

type events struct {
	testing.TB
	watch *watchcache.Watch
	got   []watchcache.Event
}

// next is the next event; nil at the stream's end.
func (e *events) next() *watchcache.Event {
	e.Helper()
	if len(e.got) == 0 {
		ctx, cancel := context.WithTimeout(e.Context(), 10*time.Second)
		defer cancel()
		got, err := e.watch.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			e.Fatalf("no event: %v", err)
		}
		e.got = append(e.got, got...)
	}
	ev := e.got[0]
	e.got = e.got[1:]
	return &ev
}

func (e *events) expect(want ...string) {
	e.Helper()
	for _, w := range want {
		ev := e.next()
		if ev == nil {
			e.Fatalf("the stream ended, want %s", w)
		}
		if got := fmt.Sprint(ev.Type, " ", ev.Object.Name()); got != w {
			e.Fatalf("got %s, want %s", got, w)
		}
	}
}

// set lays values over an object and writes it as JSON.
func set(u *unstructured.Unstructured, values map[string]any) string {
	c := u.DeepCopy()
	for path, v := range values {
		fields := strings.Split(path, ".")
		if v == nil {
			unstructured.RemoveNestedField(c.Object, fields...)
		} else if err := unstructured.SetNestedField(c.Object, v, fields...); err != nil {
			panic(err)
		}
	}
	data, err := c.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return string(data)
}
