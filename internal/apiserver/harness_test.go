package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/apiserver"
	"operatord.io/operatord/internal/apiserver/auth"
	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	"operatord.io/operatord/internal/resource/crd"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

const adminToken = "admin-token"

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}

// server is an API server over a store of its own, without operators: CRDs are established by the test.
type server struct {
	*httptest.Server
	t        testing.TB
	registry *resource.Registry
	verbs    *rest.Verbs
	client   *http.Client
}

// newServer starts one; configure may change what the server is made of.
func newServer(t testing.TB, configure func(*apiserver.Config)) *server {
	t.Helper()
	s := &server{t: t, registry: resource.NewRegistry(builtin.Kinds(), crd.Compile)}
	crds, ok := s.registry.ByKind(schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"})
	if !ok {
		t.Fatal("CustomResourceDefinition is not served")
	}
	prefix := resource.Prefix(crds, "")
	store, err := bolt.Open(t.Context(), bolt.Options{Dir: t.TempDir(), Publishing: func(events []storage.Event) {
		for _, e := range events {
			name, ok := strings.CutPrefix(e.Key(), prefix)
			switch {
			case !ok:
			case e.New == nil:
				s.registry.RemoveCRD(name)
			default:
				v, err := resource.ParseValue(e.New.Value)
				if err == nil {
					err = s.registry.SetCRD(v.AppendJSON(nil, uint64(e.New.Rev)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	cache := watchcache.New(store, s.registry, watchcache.Options{})
	s.verbs = rest.New(rest.Config{Store: store, Registry: s.registry, Cache: cache})
	cfg := apiserver.Config{
		Verbs:         s.verbs,
		Registry:      s.registry,
		Authenticator: auth.Chain{auth.NewTokens(map[string]user.Info{adminToken: admin}), auth.Anonymous{}},
		Authorizer:    auth.Builtin{},
		Published:     builtin.OpenAPI,
		Version:       version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2+operatord", GitCommit: "unknown", GitTreeState: "clean", BuildDate: "2026-01-01T00:00:00Z", GoVersion: "go", Compiler: "gc", Platform: "linux/amd64"},
		Log:           slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	if configure != nil {
		configure(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { s.establish(ctx, cache, crds) })
	s.Server = httptest.NewServer(apiserver.New(cfg))
	s.client = s.Server.Client()
	t.Cleanup(func() {
		s.Server.CloseClientConnections()
		s.Server.Close()
		stop()
		background.Wait()
		cache.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	s.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// establish accepts the names of every CRD, as operator/crd does.
func (s *server) establish(ctx context.Context, cache *watchcache.Cache, crds *resource.Kind) {
	w, err := cache.Watch(ctx, crds, watchcache.ListOptions{})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer w.Close()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return
		}
		for _, e := range events {
			if e.Type != watchcache.Added {
				continue
			}
			b, err := e.Object.JSON(crds.Versions[0])
			if err != nil {
				s.t.Error(err)
				return
			}
			var c apiextensionsv1.CustomResourceDefinition
			if err := json.Unmarshal(b, &c); err != nil {
				s.t.Error(err)
				return
			}
			now := metav1.Now()
			c.Status.AcceptedNames = c.Spec.Names
			c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: now, Reason: "NoConflicts"},
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: now, Reason: "InitialNamesAccepted"},
			}
			status, err := json.Marshal(map[string]any{"status": c.Status})
			if err != nil {
				s.t.Error(err)
				return
			}
			_, err = s.verbs.Patch(ctx, rest.Attributes{
				User: admin, Kind: crds, Version: crds.Versions[0], Name: c.Name, Subresource: "status",
			}, types.MergePatchType, status, metav1.PatchOptions{FieldManager: "test"})
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("establishing %s: %v", c.Name, err)
			}
		}
	}
}

// answer is a response with its body read.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a *answer) json(t testing.TB) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return m
}

// at finds a value by keys and indices; nil if there is none.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (s *server) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("User-Agent", "test/1")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do sends a request; headers are name, value, …
func (s *server) do(method, path, body string, headers ...string) *answer {
	s.t.Helper()
	resp, err := s.client.Do(s.request(s.t.Context(), method, path, body, headers...))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &answer{code: resp.StatusCode, header: resp.Header, body: b}
}

// must is do with a status that the answer has to have.
func (s *server) must(code int, method, path, body string, headers ...string) *answer {
	s.t.Helper()
	a := s.do(method, path, body, headers...)
	if a.code != code {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.code, code, bytes.TrimSpace(a.body))
	}
	return a
}

// open starts a watch and returns its events as they come, until the stream or the test ends.
func (s *server) open(path string, headers ...string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	resp, err := s.client.Do(s.request(ctx, "GET", path, "", headers...))
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		cancel()
		s.t.Fatalf("GET %s: %d: %s", path, resp.StatusCode, b)
	}
	w := &stream{t: s.t, header: resp.Header, events: make(chan map[string]any, 100)}
	go func() {
		defer close(w.events)
		d := json.NewDecoder(resp.Body)
		for {
			var e map[string]any
			if d.Decode(&e) != nil {
				return
			}
			w.events <- e
		}
	}()
	w.close = func() { cancel(); resp.Body.Close() }
	s.t.Cleanup(w.close)
	return w
}

type stream struct {
	t      testing.TB
	header http.Header
	events chan map[string]any
	close  func()
}

const eventTimeout = 5 * time.Second

// next is the next event.
func (w *stream) next() map[string]any {
	w.t.Helper()
	select {
	case e, ok := <-w.events:
		if !ok {
			w.t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(eventTimeout):
		w.t.Fatal("no event came")
		return nil
	}
}

// ended waits for the end of the stream and returns what came before it.
func (w *stream) ended() []map[string]any {
	w.t.Helper()
	var got []map[string]any
	timeout := time.After(eventTimeout)
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				return got
			}
			got = append(got, e)
		case <-timeout:
			w.t.Fatal("the watch did not end")
		}
	}
}

// widgetCRD declares widgets.example.com; version is laid over its only version, as JSON fields.
func widgetCRD(version string) string {
	if version != "" {
		version = "," + version
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"widgets.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
				"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
				"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}%s}]}}`, version)
}

const widgets = "/apis/example.com/v1/namespaces/default/widgets"

// withWidgets has widgets served.
func (s *server) withWidgets(version string) *server {
	s.t.Helper()
	s.must(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetCRD(version))
	w := s.open("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1&fieldSelector=metadata.name%3Dwidgets.example.com")
	defer w.close()
	for {
		conditions, _ := at(w.next(), "object", "status", "conditions").([]any)
		for _, c := range conditions {
			if at(c, "type") == "Established" && at(c, "status") == "True" {
				return s
			}
		}
	}
}

func widget(name string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"},"spec":{"size":1}}`
}
