package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Reports about other servers, each kept as a test. The numbers are those of the project's list.

func TestS01StreamingList(t *testing.T) {
	for _, n := range []int{0, 3} {
		t.Run(fmt.Sprint(n, " objects"), func(t *testing.T) {
			s := newServer(t, nil).withWidgets("")
			for i := range n {
				s.must(201, "POST", widgets, widget(fmt.Sprint("w", i)))
			}
			w := s.open(widgets + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
			for i := range n {
				if e := w.next(); at(e, "type") != "ADDED" || at(e, "object", "metadata", "name") != fmt.Sprint("w", i) {
					t.Fatalf("initial event %d: %v", i, e)
				}
			}
			e := w.next()
			metadata, _ := at(e, "object", "metadata").(map[string]any)
			if at(e, "type") != "BOOKMARK" || at(e, "object", "kind") != "Widget" || len(metadata) != 2 ||
				metadata["resourceVersion"] == "" || at(metadata, "annotations", "k8s.io/initial-events-end") != "true" {
				t.Fatalf("instead of the bookmark: %v", e)
			}
			s.must(201, "POST", widgets, widget("live"))
			if e := w.next(); at(e, "type") != "ADDED" || at(e, "object", "metadata", "name") != "live" {
				t.Fatalf("live event: %v", e)
			}
		})
	}
}

func TestS01Informer(t *testing.T) {
	var warnings logged
	klog.LogToStderr(false)
	klog.SetOutput(&warnings)
	t.Cleanup(func() { klog.Flush(); klog.LogToStderr(true) })

	s := newServer(t, nil).withWidgets("")
	for i := range 3 {
		s.must(201, "POST", widgets, widget(fmt.Sprint("w", i)))
	}
	client, err := dynamic.NewForConfig(&clientrest.Config{Host: s.URL, BearerToken: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Informer()
	added := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		added <- o.(*unstructured.Unstructured).GetName()
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	synced, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	if !cache.WaitForCacheSync(synced.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync in 2 s")
	}
	if n := len(informer.GetStore().List()); n != 3 {
		t.Errorf("%d objects in the informer's store", n)
	}
	for range 3 {
		<-added
	}
	s.must(201, "POST", widgets, widget("live"))
	select {
	case name := <-added:
		if name != "live" {
			t.Error("added", name)
		}
	case <-time.After(eventTimeout):
		t.Fatal("the informer did not hear of an object")
	}
	klog.Flush()
	if text := warnings.String(); text != "" { // before the informer is stopped, of which it may warn
		t.Errorf("client-go logged: %s", text)
	}
}

// logged is what was logged, by whichever goroutine.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestS19WatchOneNamespaceByName(t *testing.T) {
	s := newServer(t, nil)
	s.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"x"}}`)
	rv := at(s.must(200, "GET", "/api/v1/namespaces/x", "").json(t), "metadata", "resourceVersion").(string)
	var open []*stream
	for _, path := range []string{"/api/v1/watch/namespaces/x?", "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dx&"} {
		for _, from := range []string{"", "0", rv} {
			open = append(open, s.open(path+"resourceVersion="+from))
		}
	}
	s.must(200, "PATCH", "/api/v1/namespaces/x", `{"metadata":{"labels":{"edited":"yes"}}}`, "Content-Type", "application/merge-patch+json")
	for i, w := range open {
		for {
			e := w.next()
			if at(e, "object", "metadata", "name") != "x" {
				t.Fatalf("watch %d: %v", i, e)
			}
			if at(e, "object", "metadata", "labels", "edited") == "yes" {
				break
			}
		}
	}
}

func TestS28PatchTypes(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	s.must(201, "POST", widgets, widget("a"))
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	s.must(201, "POST", deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)

	a := s.must(415, "PATCH", widgets+"/a", `{}`, "Content-Type", "application/strategic-merge-patch+json")
	for _, accepted := range []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"} {
		if !strings.Contains(string(a.body), accepted) {
			t.Errorf("the refusal doesn't name %s: %s", accepted, a.body)
		}
	}
	restart := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`
	d := s.must(200, "PATCH", deployments+"/d", restart, "Content-Type", "application/strategic-merge-patch+json").json(t)
	if at(d, "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt") == nil || at(d, "spec", "template", "spec", "containers", 0, "name") != "c" {
		t.Errorf("after a rollout restart: %v", d)
	}
	s.must(415, "PATCH", deployments+"/d", `{}`, "Content-Type", "application/unknown")
	s.must(415, "PATCH", widgets+"/a", `{}`, "Content-Type", "application/unknown")
}

// crdNamed declares a kind of its own.
func crdNamed(n int) (name, body, path string) {
	group := fmt.Sprintf("g%d.example.com", n)
	body = strings.ReplaceAll(widgetCRD(""), `"example.com"`, `"`+group+`"`)
	body = strings.ReplaceAll(body, "widgets.example.com", "widgets."+group)
	return "widgets." + group, body, "/apis/" + group + "/v1"
}

func TestS34EstablishedMeansServed(t *testing.T) {
	s := newServer(t, nil)
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for n := range 50 {
		name, body, path := crdNamed(n)
		created := at(s.must(201, "POST", crds, body).json(t), "metadata", "resourceVersion")
		w := s.open(fmt.Sprintf("%s?watch=1&fieldSelector=metadata.name%%3D%s&resourceVersion=%s", crds, name, created))
		for established := false; !established; {
			conditions, _ := at(w.next(), "object", "status", "conditions").([]any)
			for _, c := range conditions {
				established = established || at(c, "type") == "Established" && at(c, "status") == "True"
			}
		}
		w.close()
		group := strings.Split(path, "/")[2]
		s.must(201, "POST", path+"/namespaces/default/widgets", strings.Replace(widget("a"), "example.com", group, 1))
		if r := s.must(200, "GET", path, "").json(t); at(r, "resources", 0, "name") != "widgets" {
			t.Fatalf("discovery of %s: %v", group, r)
		}
		doc := s.must(200, "GET", "/openapi/v3"+path, "").json(t)
		if at(doc, "components", "schemas", fmt.Sprintf("com.example.g%d.v1.Widget", n)) == nil {
			t.Fatalf("the OpenAPI document of %s lacks the kind", group)
		}
	}
}

func TestS37PathsAndSelectors(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	s.must(201, "POST", widgets, widget("a"))
	s.must(400, "GET", widgets+"?fieldSelector=spec.nope%3D1", "")
	s.must(400, "GET", "/api/v1/namespaces/default/configmaps?fieldSelector=spec.nope%3D1", "")

	const events = "/api/v1/namespaces/default/events"
	for _, name := range []string{"one", "two"} {
		s.must(201, "POST", events, fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"kind":"Pod","namespace":"default","name":%q},"reason":"Made"}`, name, name))
	}
	list := s.must(200, "GET", events+"?fieldSelector="+url.QueryEscape("involvedObject.name=two,reason=Made"), "").json(t)
	if items := at(list, "items").([]any); len(items) != 1 || at(items[0], "metadata", "name") != "two" {
		t.Errorf("events of two: %v", items)
	}

	ns := s.must(200, "GET", "/api/v1/namespaces/default", "")
	s.must(200, "PUT", "/api/v1/namespaces/default/status", string(ns.body))
	ns = s.must(200, "GET", "/api/v1/namespaces/default", "")
	s.must(200, "PUT", "/api/v1/namespaces/default/finalize", string(ns.body))
}

func TestS38ErrorsHaveReasonAndDetails(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	s.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"host"}]}}`)
	for _, path := range []string{widgets + "/none", "/api/v1/namespaces/default/configmaps/none"} {
		kind := path[strings.LastIndex(path[:strings.LastIndex(path, "/")], "/")+1 : strings.LastIndex(path, "/")]
		for method, body := range map[string]string{"GET": "", "DELETE": "", "PATCH": "{}"} {
			a := s.must(404, method, path, body, "Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == "PATCH"]).json(t)
			if at(a, "kind") != "Status" || at(a, "reason") != "NotFound" || at(a, "details", "name") != "none" || at(a, "details", "kind") != kind {
				t.Errorf("%s %s: %v", method, path, a)
			}
		}
	}
	const pod = "/api/v1/namespaces/default/pods/p/"
	for _, r := range []struct{ method, path string }{
		{"POST", "exec?command=sh&stdout=1"}, {"GET", "exec?command=sh"}, {"POST", "attach"}, {"POST", "portforward"}, {"GET", "log"}, {"GET", "proxy/x/y"},
	} {
		start := time.Now()
		a := s.do(r.method, pod+r.path, "", "Connection", "Upgrade", "Upgrade", "SPDY/3.1")
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s %s took %v", r.method, r.path, took)
		}
		status := a.json(t)
		if a.code < 400 || at(status, "kind") != "Status" || at(status, "reason") == "" || at(status, "message") == "" {
			t.Errorf("%s %s: %d %s", r.method, r.path, a.code, a.body)
		}
	}
}

func TestS40OpenAPIv2(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	j := s.must(200, "GET", "/openapi/v2", "")
	etag := j.header.Get("ETag")
	if j.header.Get("Content-Type") != "application/json" || etag == "" {
		t.Errorf("headers %v", j.header)
	}
	doc := j.json(t)
	if at(doc, "swagger") != "2.0" || at(doc, "definitions", "com.example.v1.Widget", "type") != "object" || at(doc, "definitions", "io.k8s.api.core.v1.Pod") == nil {
		t.Error("a kind is missing from the document")
	}
	if p := at(doc, "paths", widgetsPath, "post", "x-kubernetes-group-version-kind", "kind"); p != "Widget" {
		t.Errorf("POST of widgets makes %v", p)
	}
	if strings.Contains(string(j.body), "#/components/") {
		t.Error("a reference of v3 is left over")
	}
	s.must(304, "GET", "/openapi/v2", "", "If-None-Match", etag)

	p := s.must(200, "GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	var parsed openapiv2.Document
	if err := proto.Unmarshal(p.body, &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed.Swagger != "2.0" || len(parsed.Definitions.AdditionalProperties) < 50 {
		t.Errorf("protobuf: %s with %d definitions", parsed.Swagger, len(parsed.Definitions.AdditionalProperties))
	}
}

const widgetsPath = "/apis/example.com/v1/namespaces/{namespace}/widgets"

func TestS41DeleteCollectionVersionReadyz(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	for _, name := range []string{"a", "b", "c"} {
		s.must(201, "POST", widgets, strings.Replace(widget(name), `"name"`, `"labels":{"x":"`+name+`"},"name"`, 1))
	}
	names := func(a *answer) (out []string) {
		items, _ := at(a.json(t), "items").([]any)
		for _, it := range items {
			out = append(out, at(it, "metadata", "name").(string))
		}
		return out
	}
	if got := names(s.must(200, "DELETE", widgets+"?dryRun=All", "")); len(got) != 3 {
		t.Errorf("dry run: %v", got)
	}
	if got := names(s.must(200, "DELETE", widgets+"?labelSelector=x%3Da", `{"propagationPolicy":"Background"}`)); strings.Join(got, " ") != "a" {
		t.Errorf("by label: %v", got)
	}
	if got := names(s.must(200, "DELETE", widgets+"?fieldSelector=metadata.name%3Db", "")); strings.Join(got, " ") != "b" {
		t.Errorf("by name: %v", got)
	}
	if got := names(s.must(200, "GET", widgets, "")); strings.Join(got, " ") != "c" {
		t.Errorf("left: %v", got)
	}
	v := at(s.must(200, "GET", "/version", "").json(t), "gitVersion")
	if _, err := version.ParseSemantic(v.(string)); err != nil {
		t.Error(err)
	}
	if a := s.must(200, "GET", "/readyz?verbose", ""); !strings.Contains(string(a.body), "readyz check passed") {
		t.Errorf("readyz: %s", a.body)
	}
}

func TestS43PrinterColumns(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	s := newServer(t, nil).withWidgets(`"additionalPrinterColumns":[
		{"name":"Size","type":"integer","jsonPath":".spec.size"},
		{"name":"Ports","type":"string","jsonPath":".spec.ports[*].name"},
		{"name":"Wide","type":"string","jsonPath":".spec.wide","priority":1},
		{"name":"Made","type":"date","jsonPath":".metadata.creationTimestamp"}]`)
	s.must(201, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":3,"ports":[{"name":"x"},{"name":"y"}]}}`)
	w := s.open(widgets+"?watch=1", "Accept", table)
	first := w.next()
	s.must(200, "PATCH", widgets+"/a", `{"spec":{"size":4}}`, "Content-Type", "application/merge-patch+json")
	second := w.next()
	if n := len(at(first, "object", "columnDefinitions").([]any)); n != 5 {
		t.Errorf("%d columns in the first event", n)
	}
	if d := at(second, "object", "columnDefinitions"); d != nil {
		t.Errorf("columns in the second event: %v", d)
	}
	if size := at(second, "object", "rows", 0, "cells", 1); size != float64(4) {
		t.Errorf("size %v in the second event", size)
	}
	tab := s.must(200, "GET", "/apis/example.com/v1/widgets?includeObject=Object", "", "Accept", table).json(t)
	if age, _ := at(tab, "rows", 0, "cells", 4).(string); !strings.HasSuffix(age, "s") {
		t.Errorf("a date shows as %q", age)
	}
	made, _ := at(tab, "rows", 0, "object", "metadata", "creationTimestamp").(string)
	if _, err := time.Parse(time.RFC3339, made); err != nil || at(tab, "rows", 0, "object", "kind") != "Widget" {
		t.Errorf("the row's object: %v", at(tab, "rows", 0, "object"))
	}
	if wide := at(tab, "columnDefinitions", 3, "priority"); wide != float64(1) {
		t.Errorf("priority %v", wide)
	}
}
