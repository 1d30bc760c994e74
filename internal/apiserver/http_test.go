package apiserver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"operatord.io/operatord/internal/apiserver"
	"operatord.io/operatord/internal/apiserver/auth"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestNegotiation(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	s.must(201, "POST", widgets, widget("a"))
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	const (
		proto = "application/vnd.kubernetes.protobuf"
		table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	)
	for _, c := range []struct {
		path, accept string
		code         int
		contentType  string
	}{
		{configMaps + "/a", "", 200, "application/json"},
		{configMaps + "/a", "*/*", 200, "application/json"},
		{configMaps + "/a", "application/*", 200, "application/json"},
		{configMaps + "/a", "text/html, */*;q=0.1", 200, "application/json"},
		{configMaps + "/a", "application/yaml", 200, "application/yaml"},
		{configMaps + "/a", proto, 200, proto},
		{configMaps + "/a", proto + ", */*", 200, "application/json"},
		{configMaps + "/a", proto + ",application/json", 200, "application/json"},
		{configMaps + "/a", "text/plain", 406, "application/json"},
		{configMaps + "/a", "application/json;as=Nothing;v=v1;g=meta.k8s.io", 406, "application/json"},
		{configMaps + "/a", "application/json;as=Table;v=v9;g=meta.k8s.io", 406, "application/json"},
		{configMaps + "/a", "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200, "application/json"},
		{configMaps, proto, 200, proto},
		{configMaps, "application/yaml", 200, "application/yaml"},
		{widgets + "/a", proto, 406, proto},
		{widgets + "/a", proto + ",application/json", 200, "application/json"},
		{widgets + "/a", proto + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 200, proto},
		{widgets, proto + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 200, proto},
		{widgets, table, 200, "application/json"},
		{widgets, strings.Replace(table, "json", "yaml", 1), 200, "application/yaml"},
		{widgets, strings.Replace(table, "application/json", proto, 1), 406, "application/json"},
		{widgets + "?watch=1&timeoutSeconds=1", "application/yaml", 406, "application/yaml"},
		{configMaps + "/none", proto, 404, proto},
		{configMaps + "/none", "text/plain", 406, "application/json"},
	} {
		a := s.do("GET", c.path, "", "Accept", c.accept)
		if a.code != c.code || a.header.Get("Content-Type") != c.contentType {
			t.Errorf("GET %s as %q: %d %s, want %d %s: %.200s", c.path, c.accept, a.code, a.header.Get("Content-Type"), c.code, c.contentType, a.body)
		}
	}
}

func TestPretty(t *testing.T) {
	s := newServer(t, nil)
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	for _, c := range []struct {
		query, agent string
		want         bool
	}{
		{"", "kubectl/v1.37", false}, {"", "curl/8", true}, {"", "Mozilla/5.0 (X11)", true},
		{"?pretty=true", "x", true}, {"?pretty=false", "curl/8", false},
	} {
		for _, path := range []string{configMaps, configMaps + "/a"} {
			a := s.must(200, "GET", path+c.query, "", "User-Agent", c.agent)
			if got := bytes.Contains(a.body, []byte("\n  \"")); got != c.want {
				t.Errorf("%s%s from %s: indented %v, want %v", path, c.query, c.agent, got, c.want)
			}
			a.json(t)
		}
	}
}

// encodeProtobuf makes a body as typed clients send it.
func encodeProtobuf(t *testing.T, apiVersion, kind string, obj runtime.Object) string {
	t.Helper()
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	b, err := runtime.Encode(protobuf.NewSerializer(nil, nil), obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decodeProtobuf(t *testing.T, b []byte, into interface{ Unmarshal([]byte) error }) runtime.TypeMeta {
	t.Helper()
	raw, ok := bytes.CutPrefix(b, []byte("k8s\x00"))
	if !ok {
		t.Fatalf("no protobuf envelope: %q", b)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	if err := into.Unmarshal(u.Raw); err != nil {
		t.Fatal(err)
	}
	return u.TypeMeta
}

func TestProtobuf(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	const proto = "application/vnd.kubernetes.protobuf"
	body := encodeProtobuf(t, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}})

	var cm corev1.ConfigMap
	a := s.must(201, "POST", configMaps, body, "Content-Type", proto, "Accept", proto)
	if m := decodeProtobuf(t, a.body, &cm); m.Kind != "ConfigMap" || m.APIVersion != "v1" || cm.Data["k"] != "v" || cm.ResourceVersion == "" {
		t.Errorf("created %v %v", m, cm)
	}
	s.must(201, "POST", configMaps, `{"metadata":{"name":"b"}}`)

	var list corev1.ConfigMapList
	a = s.must(200, "GET", configMaps+"?limit=1", "", "Accept", proto)
	if m := decodeProtobuf(t, a.body, &list); m.Kind != "ConfigMapList" || len(list.Items) != 1 || list.Items[0].Data["k"] != "v" ||
		list.Continue == "" || list.ResourceVersion == "" || list.RemainingItemCount == nil || *list.RemainingItemCount != 1 {
		t.Errorf("listed %v %+v", m, list)
	}

	var status metav1.Status
	a = s.must(404, "GET", configMaps+"/none", "", "Accept", proto)
	if decodeProtobuf(t, a.body, &status); status.Reason != metav1.StatusReasonNotFound || status.Details.Name != "none" {
		t.Errorf("status %+v", status)
	}

	del := encodeProtobuf(t, "v1", "DeleteOptions", &metav1.DeleteOptions{DryRun: []string{"All"}})
	s.must(200, "DELETE", configMaps+"/a", del, "Content-Type", proto)
	s.must(200, "GET", configMaps+"/a", "")

	s.must(415, "POST", widgets, body, "Content-Type", proto)
	s.must(400, "POST", configMaps, "k8s\x00garbage", "Content-Type", proto)

	resp, err := s.client.Do(s.request(t.Context(), "GET", configMaps+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", "Accept", proto))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != proto+";stream=watch" {
		t.Errorf("content type of the watch: %s", ct)
	}
	for i, want := range []string{"ADDED a", "ADDED b", "BOOKMARK "} {
		var head [4]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(resp.Body, frame); err != nil {
			t.Fatal(err)
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(frame); err != nil {
			t.Fatal(err)
		}
		var cm corev1.ConfigMap
		m := decodeProtobuf(t, e.Object.Raw, &cm)
		if got := e.Type + " " + cm.Name; got != want || m.Kind != "ConfigMap" {
			t.Errorf("event %d: %s of %v, want %s", i, got, m, want)
		}
		if e.Type == "BOOKMARK" && cm.Annotations["k8s.io/initial-events-end"] != "true" {
			t.Errorf("bookmark %+v", cm.ObjectMeta)
		}
	}
}

func TestLargeListIsCompressed(t *testing.T) {
	s := newServer(t, nil)
	for i := range 4 {
		s.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"big%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 60<<10)))
	}
	plain := s.must(200, "GET", configMaps, "", "Accept-Encoding", "identity")
	a := s.must(200, "GET", configMaps, "", "Accept-Encoding", "gzip")
	if a.header.Get("Content-Encoding") != "gzip" || len(a.body) > 20<<10 {
		t.Fatalf("%d bytes, encoding %q", len(a.body), a.header.Get("Content-Encoding"))
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(b, plain.body) {
		t.Errorf("the compressed list differs: %v, %d and %d bytes", err, len(b), len(plain.body))
	}
	if small := s.must(200, "GET", configMaps+"/big0", "", "Accept-Encoding", "gzip"); small.header.Get("Content-Encoding") != "" {
		t.Error("a small answer was compressed")
	}
}

func TestBodies(t *testing.T) {
	s := newServer(t, nil)
	big := `{"metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", 3200000) + `"}}`
	s.must(413, "POST", configMaps, big)
	r := s.request(t.Context(), "POST", configMaps, "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(big)), -1 // chunked
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("a chunked body over the limit: %d", resp.StatusCode)
	}
	r = s.request(t.Context(), "POST", configMaps, "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"metadata":{"name":"chunked"}}`)), -1
	if resp, err = s.client.Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Errorf("a chunked body: %d", resp.StatusCode)
	}
}

// A client that sends half of its body must not hold a place for ever.
func TestSlowBodyIsGivenUp(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) { c.Timeout = time.Second })
	conn := s.dial()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"metadata\":", configMaps, adminToken)
	conn.SetReadDeadline(time.Now().Add(eventTimeout))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode < 400 {
		t.Error("half a body was taken:", resp.Status)
	}
}

func (s *server) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestIdentity(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) {
		c.Authenticator = auth.Chain{auth.NewTokens(map[string]user.Info{adminToken: admin, "jane-token": &user.DefaultInfo{Name: "jane"}}), auth.Anonymous{}}
	})
	const jane = "Bearer jane-token"
	a := s.must(403, "GET", configMaps+"/a", "", "Authorization", jane).json(t)
	if got, want := at(a, "message"), `configmaps "a" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "default"`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if d := at(a, "details"); at(d, "kind") != "configmaps" || at(d, "name") != "a" {
		t.Errorf("details %v", d)
	}
	s.must(403, "POST", configMaps, "this is not even read", "Authorization", jane)
	s.must(403, "GET", configMaps, "", "Authorization", jane, "Impersonate-User", "admin")
	s.must(401, "GET", "/healthz", "", "Authorization", "Bearer guess")
	s.must(200, "GET", "/apis", "", "Authorization", jane)
	s.must(403, "GET", "/metrics", "", "Authorization", jane)
	s.must(200, "GET", configMaps, "", "Impersonate-User", "other", "Impersonate-Group", "system:masters")
	s.must(403, "GET", configMaps, "", "Impersonate-User", "other")

	anonymous := func(path string) int {
		r := s.request(t.Context(), "GET", path, "")
		r.Header.Del("Authorization")
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/version": 200, "/apis": 403, configMaps: 403} {
		if got := anonymous(path); got != want {
			t.Errorf("anonymous GET %s: %d, want %d", path, got, want)
		}
	}
}

func TestReviews(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) { c.Tokens = auth.NewTokens(map[string]user.Info{adminToken: admin}) })
	const authz, authn = "/apis/authorization.k8s.io/v1/", "/apis/authentication.k8s.io/v1/"
	rules := s.must(201, "POST", authz+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`).json(t)
	if at(rules, "status", "resourceRules", 0, "verbs", 0) != "*" || at(rules, "status", "incomplete") != false {
		t.Errorf("rules %v", rules)
	}
	s.must(400, "POST", authz+"selfsubjectrulesreviews", `{}`)
	token := s.must(201, "POST", authn+"tokenreviews", `{"spec":{"token":"`+adminToken+`"}}`).json(t)
	if at(token, "status", "authenticated") != true || at(token, "status", "user", "username") != "admin" {
		t.Errorf("token %v", token)
	}
	const local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
	s.must(201, "POST", local, `{"spec":{"user":"x","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`)
	s.must(422, "POST", local, `{"spec":{"user":"x","resourceAttributes":{"namespace":"other","verb":"get","resource":"pods"}}}`)
	s.must(422, "POST", local, `{"spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}`)
	s.must(404, "POST", authz+"localsubjectaccessreviews", `{}`)
	s.must(405, "GET", authz+"subjectaccessreviews", "")
	s.must(404, "GET", authz+"subjectaccessreviews/a", "")
	s.must(400, "POST", authz+"subjectaccessreviews", `{"kind":"Other","apiVersion":"authorization.k8s.io/v1"}`)
	s.must(415, "POST", authz+"subjectaccessreviews", `{}`, "Content-Type", "text/plain")
}

// planner does in Plan and Step what a test wants.
type planner func(ctx context.Context, step bool, gk schema.GroupKind, namespace, name string) (apiserver.Plan, error)

func (p planner) Plan(ctx context.Context, gk schema.GroupKind, ns, name string) (apiserver.Plan, error) {
	return p(ctx, false, gk, ns, name)
}

func (p planner) Step(ctx context.Context, gk schema.GroupKind, ns, name string) (apiserver.Plan, error) {
	return p(ctx, true, gk, ns, name)
}

func TestPlanAndStep(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) {
		c.Planner = planner(func(_ context.Context, step bool, gk schema.GroupKind, ns, name string) (apiserver.Plan, error) {
			if name == "none" {
				return apiserver.Plan{}, apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: "widgets"}, name)
			}
			return apiserver.Plan{Kind: fmt.Sprint("step=", step), Target: ns + "/" + name, Why: gk.String(), After: "1m0s"}, nil
		})
	}).withWidgets("")
	p := s.must(200, "GET", widgets+"/a/plan", "").json(t)
	if at(p, "kind") != "step=false" || at(p, "target") != "default/a" || at(p, "why") != "Widget.example.com" || at(p, "after") != "1m0s" {
		t.Errorf("plan %v", p)
	}
	if p := s.must(200, "POST", widgets+"/a/step", "").json(t); at(p, "kind") != "step=true" {
		t.Errorf("step %v", p)
	}
	if p := s.must(200, "POST", widgets+"/a/step?dryRun=All", "").json(t); at(p, "kind") != "step=false" {
		t.Errorf("a dry run stepped: %v", p)
	}
	s.must(422, "POST", widgets+"/a/step?dryRun=Some", "")
	s.must(404, "GET", widgets+"/none/plan", "")
	s.must(405, "POST", widgets+"/a/plan", "")
	s.must(405, "GET", widgets+"/a/step", "")

	off := newServer(t, nil).withWidgets("")
	off.must(404, "GET", widgets+"/a/plan", "")
}

func TestPanicIs500(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) {
		c.Planner = planner(func(context.Context, bool, schema.GroupKind, string, string) (apiserver.Plan, error) { panic("boom") })
	}).withWidgets("")
	s.must(500, "GET", widgets+"/a/plan", "")
	s.must(200, "GET", widgets, "")
}

func TestTimeout(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) {
		c.Timeout = 2 * time.Second
		c.Planner = planner(func(ctx context.Context, _ bool, _ schema.GroupKind, _, _ string) (apiserver.Plan, error) {
			<-ctx.Done()
			return apiserver.Plan{}, ctx.Err()
		})
	}).withWidgets("")
	for _, query := range []string{"", "?timeout=20ms", "?timeout=1h"} {
		if a := s.must(504, "GET", widgets+"/a/plan"+query, "").json(t); at(a, "reason") != "Timeout" {
			t.Errorf("%q: %v", query, a)
		}
	}
	s.must(400, "GET", widgets+"?timeout=soon", "")
	w := s.open(widgets + "?watch=1&timeoutSeconds=3") // longer than the timeout of requests
	opened := time.Now()
	if w.ended(); time.Since(opened) < 2500*time.Millisecond {
		t.Errorf("a watch ended after %v", time.Since(opened))
	}
	s.open(widgets + "?watch=1&timeoutSeconds=-1").ended() // at once
}

// A patch or an update that makes an object needs the right to create it.
func TestCreateByPatchIsAuthorized(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) {
		c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "create" && a.GetResource() != "namespaces" {
				return authorizer.DecisionDeny, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})
	})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	a := s.must(403, "PATCH", configMaps+"/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "Content-Type", "application/apply-patch+yaml")
	if want := `configmaps "a" is forbidden: User "admin" cannot create resource "configmaps" in API group "" in the namespace "default"`; at(a.json(t), "message") != want {
		t.Errorf("%s, want %s", a.body, want)
	}
	s.must(403, "PUT", leases, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"x","leaseDurationSeconds":1}}`, "Content-Type", "application/json")
	s.must(404, "PATCH", configMaps+"/a", `{}`, "Content-Type", "application/merge-patch+json")
}

func TestTooManyRequests(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := newServer(t, func(c *apiserver.Config) {
		c.MaxReads = 1
		c.Authenticator = auth.Chain{auth.NewTokens(map[string]user.Info{adminToken: admin, "jane-token": &user.DefaultInfo{Name: "jane"}}), auth.Anonymous{}}
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
		c.Planner = planner(func(ctx context.Context, _ bool, _ schema.GroupKind, _, _ string) (apiserver.Plan, error) {
			close(entered)
			select {
			case <-leave:
				return apiserver.Plan{}, nil
			case <-ctx.Done():
				return apiserver.Plan{}, ctx.Err()
			}
		})
	}).withWidgets("")
	done := make(chan int)
	go func() {
		resp, err := s.client.Do(s.request(t.Context(), "GET", widgets+"/a/plan", "", "Authorization", "Bearer jane-token"))
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	<-entered
	a := s.must(429, "GET", widgets, "", "Authorization", "Bearer jane-token")
	if a.header.Get("Retry-After") != "1" || at(a.json(t), "reason") != "TooManyRequests" {
		t.Errorf("%v %s", a.header, a.body)
	}
	s.must(200, "GET", widgets, "")                                                 // system:masters
	s.must(201, "POST", widgets, widget("a"), "Authorization", "Bearer jane-token") // writes have room of their own
	w := s.open(widgets+"?watch=1", "Authorization", "Bearer jane-token")           // watches don't count
	w.next()
	close(leave)
	if code := <-done; code != 200 {
		t.Error("the request that was let in:", code)
	}
	s.must(200, "GET", widgets, "", "Authorization", "Bearer jane-token")
}

func TestWarnings(t *testing.T) {
	s := newServer(t, nil).withWidgets(`"deprecated":true,"deprecationWarning":"use \"v2\""`)
	a := s.must(201, "POST", widgets, strings.Replace(widget("a"), `"spec"`, `"extra":1,"spec"`, 1))
	got := a.header.Values("Warning")
	if want := []string{`299 - "use \"v2\""`, `299 - "unknown field \"extra\""`}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("warnings %q, want %q", got, want)
	}
	if got := s.must(200, "GET", widgets, "").header.Values("Warning"); len(got) != 1 {
		t.Errorf("warnings of a list: %q", got)
	}
}

func TestDiscoveryIsCached(t *testing.T) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	s := newServer(t, nil)
	for _, path := range []string{"/api", "/apis"} {
		a := s.must(200, "GET", path, "", "Accept", aggregated+",application/json")
		if ct := a.header.Get("Content-Type"); ct != aggregated {
			t.Errorf("%s: content type %q", path, ct)
		}
		etag := a.header.Get("ETag")
		if b := s.must(304, "GET", path, "", "Accept", aggregated, "If-None-Match", etag); len(b.body) != 0 {
			t.Errorf("%s: 304 with a body", path)
		}
		if k := at(s.must(200, "GET", path, "").json(t), "kind"); k == "APIGroupDiscoveryList" {
			t.Errorf("%s: aggregated without being asked for", path)
		}
	}
	before := s.must(200, "GET", "/apis", "", "Accept", aggregated).header.Get("ETag")
	s.withWidgets("")
	a := s.must(200, "GET", "/apis", "", "Accept", aggregated, "If-None-Match", before)
	if !strings.Contains(string(a.body), "example.com") {
		t.Error("a new group is not in discovery")
	}
	s.must(405, "POST", "/apis", "{}")
}

func TestOpenAPIDocuments(t *testing.T) {
	s := newServer(t, nil).withWidgets(`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`)
	index := s.must(200, "GET", "/openapi/v3", "").json(t)
	for _, gv := range []string{"api/v1", "apis/apps/v1", "apis/example.com/v1"} {
		url, _ := at(index, "paths", gv, "serverRelativeURL").(string)
		if !strings.HasPrefix(url, "/openapi/v3/"+gv+"?hash=") {
			t.Errorf("%s is at %q", gv, url)
			continue
		}
		a := s.must(200, "GET", url, "")
		if a.header.Get("Cache-Control") != "public, immutable" {
			t.Errorf("%s: %v", gv, a.header)
		}
		s.must(304, "GET", url, "", "If-None-Match", a.header.Get("ETag"))
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a := s.must(301, "GET", "/openapi/v3/apis/example.com/v1?hash=OLD", "")
	if l := a.header.Get("Location"); l != at(index, "paths", "apis/example.com/v1", "serverRelativeURL") {
		t.Errorf("redirected to %q", l)
	}
	s.must(404, "GET", "/openapi/v3/apis/none.example.com/v1", "")

	doc := s.must(200, "GET", "/openapi/v3/apis/example.com/v1", "").json(t)
	for path, verbs := range map[string]string{
		"/apis/example.com/v1/widgets": "get",
		widgetsPath:                    "get post delete",
		widgetsPath + "/{name}":        "get put patch delete",
		widgetsPath + "/{name}/status": "get put patch",
		widgetsPath + "/{name}/scale":  "get put patch",
	} {
		for _, verb := range strings.Fields(verbs) {
			if at(doc, "paths", path, verb, "x-kubernetes-action") == nil {
				t.Errorf("no %s at %s", verb, path)
			}
		}
	}
	patch := at(doc, "paths", widgetsPath+"/{name}", "patch")
	if id := at(patch, "operationId"); id != "patchExampleComV1NamespacedWidget" {
		t.Errorf("operation %v", id)
	}
	content, _ := at(patch, "requestBody", "content").(map[string]any)
	if len(content) != 3 || content["application/strategic-merge-patch+json"] != nil {
		t.Errorf("patch types %v", content)
	}
	if k := at(doc, "paths", widgetsPath+"/{name}/scale", "get", "x-kubernetes-group-version-kind", "kind"); k != "Scale" {
		t.Errorf("scale is a %v", k)
	}
	var refs func(v any)
	refs = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				refs(e)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if name := strings.TrimPrefix(ref, "#/components/schemas/"); at(doc, "components", "schemas", name) == nil {
					t.Errorf("%s is referred to and missing", ref)
				}
			}
			for _, f := range v {
				refs(f)
			}
		}
	}
	refs(doc)
}

func TestWatchEndsWhenItsKindChanges(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
	w := s.open(widgets + "?watch=1")
	other := s.open(configMaps + "?watch=1")
	s.must(200, "PATCH", crd, `[{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"X","type":"string","jsonPath":".spec.x"}]}]`, "Content-Type", "application/json-patch+json")
	if got := w.ended(); len(got) != 0 {
		t.Errorf("events %v", got)
	}
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	if e := other.next(); at(e, "object", "metadata", "name") != "a" {
		t.Errorf("the watch of another kind: %v", e)
	}
}

func TestStuckWatchIsCutOffAndDelaysNobody(t *testing.T) {
	var cut atomic.Int32
	gone := make(chan struct{})
	s := newServer(t, func(c *apiserver.Config) {
		c.WriteTimeout = 200 * time.Millisecond
		c.Listener.WatchCutOff = func(string) {
			if cut.Add(1) == 1 {
				close(gone)
			}
		}
	})
	stuck := s.dial().(*net.TCPConn)
	if err := stuck.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(stuck, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", configMaps, adminToken)
	good := s.open(configMaps + "?watch=1")
	big := strings.Repeat("x", 500<<10)
	for i := range 30 {
		s.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"big%d"},"data":{"k":%q}}`, i, big))
		if e := good.next(); at(e, "object", "metadata", "name") != fmt.Sprint("big", i) {
			t.Fatalf("the watch that reads got %v", at(e, "object", "metadata"))
		}
	}
	select {
	case <-gone:
	case <-time.After(eventTimeout):
		t.Fatal("the watch that doesn't read is still open")
	}
	// What it would read now is a broken stream, not one that ended in order.
	if _, err := io.Copy(io.Discard, chunked(t, stuck)); err == nil {
		t.Error("the stream that was cut off ended in order")
	}
}

func TestIdleWatchOverHTTP2StaysOpen(t *testing.T) {
	const timeout = 300 * time.Millisecond
	s := newServer(t, func(c *apiserver.Config) { c.WriteTimeout = timeout })
	encrypted := httptest.NewUnstartedServer(s.Config.Handler)
	encrypted.EnableHTTP2 = true
	encrypted.StartTLS()
	t.Cleanup(encrypted.Close)
	w := (&server{Server: encrypted, t: t, client: encrypted.Client()}).open(configMaps + "?watch=1")
	for _, name := range []string{"a", "b"} {
		s.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		if e := w.next(); at(e, "object", "metadata", "name") != name {
			t.Fatalf("got %v, want %s", e, name)
		}
		time.Sleep(2 * timeout) // the time for a write is over, and none is under way
	}
}

// chunked is the body of the answer that is waiting on a connection.
func chunked(t *testing.T, conn net.Conn) io.Reader {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(eventTimeout))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

func TestWatchesEndWithTheServer(t *testing.T) {
	s := newServer(t, nil)
	w := s.open(configMaps + "?watch=1")
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	w.next()
	s.Server.CloseClientConnections()
	if got := w.ended(); len(got) != 0 {
		t.Errorf("events %v", got)
	}
}

func TestMethods(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	s.must(201, "POST", widgets, widget("a"))
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"HEAD", configMaps + "/a", 405}, {"HEAD", widgets + "/a", 200}, {"OPTIONS", configMaps, 405}, {"OPTIONS", widgets, 405},
		{"PUT", configMaps, 405}, {"POST", "/api/v1/configmaps", 405}, {"GET", "/api/v1/configmaps/a", 404}, {"GET", "/api/v1/configmaps", 200},
		{"DELETE", "/api/v1/configmaps", 405}, {"DELETE", "/apis/example.com/v1/widgets", 404}, {"GET", "/apis/example.com/v1/widgets", 200},
		{"GET", configMaps + "/a/status", 404}, {"GET", widgets + "/a/status", 404}, {"GET", configMaps + "/a/b/c", 404},
		{"GET", "/api/v1/watch", 500}, {"POST", "/version", 405}, {"GET", "/", 200}, {"GET", "/nowhere", 404}, {"GET", "/healthz/nothing", 404},
		{"GET", "/api/v2", 404}, {"GET", "/apis/example.com", 200}, {"GET", "/apis/example.com/v1", 200}, {"GET", "/api/v1/", 200},
	} {
		if a := s.do(c.method, c.path, "", "Content-Type", "application/json"); a.code != c.code {
			t.Errorf("%s %s: %d, want %d: %.200s", c.method, c.path, a.code, c.code, a.body)
		}
	}
}

func TestNotReady(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) { c.Ready = func() error { return errors.New("the disk is full") } })
	s.must(500, "GET", "/readyz", "")
	s.must(200, "GET", "/livez", "")
	s.must(200, "GET", "/healthz", "")
	if a := s.must(500, "GET", "/readyz?verbose", ""); !strings.Contains(string(a.body), "the disk is full") {
		t.Errorf("readyz doesn't say why: %s", a.body)
	}
}
