package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"operatord.io/operatord/internal/apiserver"
)

// Bounds of what a request may cost, whatever is in it.
const (
	heapBound   = 512 << 20 // bytes that the heap may grow by; a bomb that gets to four times that ends the test
	answerBound = 256 << 10 // bytes of an error and its headers
)

// heapPeak runs f and returns by how much the heap grew meanwhile at most, garbage included.
func heapPeak(t *testing.T, f func()) int64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	runtime.GC()
	before, peak := read(), int64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			peak = max(peak, read()-before)
			if peak > 4*heapBound {
				panic(fmt.Sprintf("%s: the heap has grown by %d MiB", t.Name(), peak>>20))
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	f()
	close(done)
	<-ended
	return peak
}

// yamlBomb is YAML of about size bytes with one long string and as many aliases for it as fit.
func yamlBomb(head string, size int) string {
	return head + "  a: &a " + strings.Repeat("x", size/2) + "\n  b: [" + strings.Repeat("*a,", size/6) + "*a]\n"
}

// laughs is YAML that grows tenfold with each of its few lines.
func laughs(head string, item func(name string) string) string {
	var b strings.Builder
	b.WriteString(head + "  a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(item(fmt.Sprintf("*a%d", i-1))+",", 10), ","))
	}
	return b.String()
}

// repeated is a JSON list of n items.
func repeated(n int, item func(i int) string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	b.WriteByte(']')
	return b.String()
}

const (
	yamlType = "application/yaml"
)

func TestSmallRequestsStaySmall(t *testing.T) {
	s := newServer(t, func(c *apiserver.Config) { c.Timeout = 30 * time.Second })
	s.must(201, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("v", 200<<10)+`"}}`)
	s.must(201, "POST", configMaps, `{"metadata":{"name":"small"},"data":{"k":"v"}}`)
	s.must(201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	s.declare(t, "fats", `{"type":"object","properties":{"spec":{"type":"object","properties":{"items":{"type":"array","items":{
		"type":"object","properties":{"n":{"type":"integer"},"fat":{"type":"string","default":"`+strings.Repeat("f", 100_000)+`"}}}}}}}}`)
	s.declare(t, "sets", `{"type":"object","properties":{"spec":{"type":"object","properties":{
		"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"map":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}}}}}`)
	s.declare(t, "rules", `{"type":"object","properties":{"spec":{"type":"object","properties":{"items":{"type":"array","maxItems":100000,"items":{
		"type":"string","maxLength":20,"x-kubernetes-validations":[{"rule":"self.size() > 100","messageExpression":"'no good: ' + self"}]}}}}}}`)

	s.declare(t, "frees", `{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`)
	s.must(201, "POST", "/apis/grow.example.com/v1/namespaces/default/frees", `{"apiVersion":"grow.example.com/v1","kind":"Free","metadata":{"name":"deep","finalizers":["a.io/b"]},"spec":`+nested(9900, "1")+`}`)
	s.declare(t, "picks", `{"type":"object","properties":{"spec":{"type":"object","properties":{
		"enum":{"type":"array","items":{"type":"string","enum":`+repeated(20_000, func(i int) string { return fmt.Sprintf(`"e%d"`, i) })+`}},
		"any":{"type":"array","items":{"type":"integer","anyOf":`+repeated(500, func(i int) string { return fmt.Sprintf(`{"minimum":%d}`, i+2) })+`}}}}}}`)

	const conf = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bomb\ndata:\n"
	const review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec:\n"
	const deletes = "apiVersion: v1\nkind: DeleteOptions\npreconditions:\n"
	plain := func(name string) string { return name }
	reversed := func(n int, format string) string {
		return repeated(n, func(i int) string { return fmt.Sprintf(format, n-i) })
	}
	for _, c := range []struct {
		name         string
		method, path string
		contentType  string
		body         string
		codes        []int
		large        bool // the answer is an object, as large as the request
	}{
		{"YAML aliases", "POST", configMaps, yamlType, yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in an update", "PUT", configMaps + "/a", yamlType, yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in a patch", "PATCH", configMaps + "/bomb?fieldManager=m", "application/apply-patch+yaml", yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in a status", "PUT", "/api/v1/namespaces/default/pods/p/status", yamlType, yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in a scale", "PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale", yamlType, yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in a binding", "POST", "/api/v1/namespaces/default/pods/p/binding", yamlType, yamlBomb(conf, 460<<10), []int{413}, false},
		{"YAML aliases in an eviction", "POST", "/api/v1/namespaces/default/pods/p/eviction", yamlType, yamlBomb(conf, 460<<10), []int{404, 413}, false},
		{"YAML aliases in DeleteOptions", "DELETE", configMaps + "/a", yamlType, yamlBomb(deletes, 460<<10), []int{413}, false},
		{"YAML aliases in a collection's DeleteOptions", "DELETE", configMaps, yamlType, yamlBomb(deletes, 460<<10), []int{413}, false},
		{"YAML aliases in a review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", yamlType, yamlBomb(review, 460<<10), []int{413}, false},
		{"YAML aliases of a custom kind", "POST", "/apis/grow.example.com/v1/namespaces/default/fats", yamlType, yamlBomb("apiVersion: grow.example.com/v1\nkind: Fat\nmetadata:\n  name: a\nspec:\n", 460<<10), []int{413}, false},
		{"nested YAML aliases", "POST", configMaps, yamlType, laughs(conf, plain), []int{413}, false},
		{"YAML merge keys", "POST", configMaps, yamlType, laughs(conf, func(n string) string { return "{<<: " + n + "}" }), []int{400, 413}, false},
		{"YAML nested deep by aliases", "POST", configMaps, yamlType, deepYAML(conf), []int{400, 413}, false},
		{"YAML with a long number", "POST", configMaps, yamlType, conf + "  a: " + strings.Repeat("9", 1<<20), []int{201, 400}, true},
		{"YAML nested deep", "POST", configMaps, yamlType, conf + "  a: " + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000), []int{400}, false},
		{"YAML of many nodes, read twice", "POST", configMaps + "?fieldValidation=Strict", yamlType, conf + "  a: {" + strings.Repeat("a,", 1<<19) + "a}", []int{400}, false},
		{"JSON nested deep", "POST", configMaps, "application/json", `{"a":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + "}", []int{400}, false},

		{"copies in a JSON patch", "PATCH", configMaps + "/a", "application/json-patch+json", copies(20), []int{422}, false},
		{"copies that make a bad object", "PATCH", configMaps + "/a", "application/json-patch+json", copies(3), []int{422}, false},
		{"operations of a JSON patch", "PATCH", configMaps + "/a", "application/json-patch+json", "[" + strings.Repeat("{},", 1<<20-1) + "{}]", []int{413}, false},
		{"a strategic patch of scalars", "PATCH", configMaps + "/a", "application/strategic-merge-patch+json", `{"metadata":{"finalizers":` + reversed(150_000, `"x.io/%d"`) + `}}`, []int{413}, false},
		{"a strategic patch of a list", "PATCH", "/api/v1/namespaces/default/pods/p", "application/strategic-merge-patch+json", `{"spec":{"containers":` + reversed(80_000, `{"name":"c%d"}`) + `}}`, []int{413}, false},
		{"a strategic patch's order of a list", "PATCH", "/api/v1/namespaces/default/pods/p", "application/strategic-merge-patch+json", `{"spec":{"$setElementOrder/containers":` + reversed(80_000, `{"name":"c%d"}`) + `}}`, []int{413}, false},
		{"a merge patch that quotes", "PATCH", configMaps + "/a", "application/merge-patch+json", `{"data":` + repeated(500_000, func(int) string { return "1" }) + `}`, []int{400, 422}, false},
		{"a merge patch nested deep", "PATCH", configMaps + "/a", "application/merge-patch+json", `{"data":` + nested(9900, `"`+strings.Repeat("x", 500<<10)+`"`) + `}`, []int{413}, false},
		{"a merge patch of deep lists", "PATCH", configMaps + "/a", "application/merge-patch+json", `{"data":` + strings.Repeat("[", 9900) + `"` + strings.Repeat("x", 500<<10) + `"` + strings.Repeat("]", 9900) + `}`, []int{413}, false},
		{"a JSON patch with deep values", "PATCH", configMaps + "/a", "application/json-patch+json", repeated(40, func(int) string { return `{"op":"test","path":"/data","value":` + nested(9900, "1") + `}` }), []int{413}, false},
		{"a JSON patch with deep paths", "PATCH", configMaps + "/a", "application/json-patch+json", repeated(60, func(int) string {
			return `{"op":"add","path":"/data","value":` + nested(2000, "1") + `},{"op":"remove","path":"/data` + strings.Repeat("/a", 19_000) + `"}`
		}), []int{413}, false},
		{"an apply nested deep", "PATCH", "/apis/grow.example.com/v1/namespaces/default/frees/a?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"grow.example.com/v1","kind":"Free","metadata":{"name":"a"},"spec":` + nested(9900, "1") + `}`, []int{413}, false},
		{"an apply onto an object nested deep", "PATCH", "/apis/grow.example.com/v1/namespaces/default/frees/deep?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"grow.example.com/v1","kind":"Free","metadata":{"name":"deep","labels":{"a":"b"}}}`, []int{413}, false},
		{"a merge patch of an object nested deep", "PATCH", "/apis/grow.example.com/v1/namespaces/default/frees/deep", "application/merge-patch+json", `{"metadata":{"finalizers":null}}`, []int{200}, true},
		{"values against a long enum", "POST", "/apis/grow.example.com/v1/namespaces/default/picks", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Pick","metadata":{"name":"a"},"spec":{"enum":` + repeated(20_000, func(int) string { return `"z"` }) + `}}`, []int{422}, false},
		{"values against many alternatives", "POST", "/apis/grow.example.com/v1/namespaces/default/picks", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Pick","metadata":{"name":"b"},"spec":{"any":` + repeated(20_000, func(int) string { return "1" }) + `}}`, []int{422}, false},

		{"finalizers", "POST", configMaps, "application/json", `{"metadata":{"name":"f","finalizers":` + reversed(150_000, `"x.io/%d"`) + `}}`, []int{201, 413, 422}, true},
		{"bad finalizers", "POST", configMaps, "application/json", `{"metadata":{"name":"f2","finalizers":` + reversed(200_000, `"%d"`) + `}}`, []int{413, 422}, false},
		{"owners", "POST", configMaps, "application/json", `{"metadata":{"name":"o","ownerReferences":` + reversed(30_000, `{"apiVersion":"v1","kind":"Pod","name":"a","uid":"%d"}`) + `}}`, []int{201, 413, 422}, true},
		{"managed fields", "POST", configMaps, "application/json", `{"metadata":{"name":"m","managedFields":` + reversed(20_000, `{"manager":"m%d","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}`) + `}}`, []int{201, 400, 413, 422}, true},
		{"a set", "POST", "/apis/grow.example.com/v1/namespaces/default/sets", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Set","metadata":{"name":"a"},"spec":{"set":` + reversed(150_000, `"x%d"`) + `}}`, []int{201, 413, 422}, true},
		{"a map", "POST", "/apis/grow.example.com/v1/namespaces/default/sets", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Set","metadata":{"name":"b"},"spec":{"map":` + reversed(100_000, `{"k":"x%d"}`) + `}}`, []int{201, 413, 422}, true},
		{"defaults", "POST", "/apis/grow.example.com/v1/namespaces/default/fats", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Fat","metadata":{"name":"a"},"spec":{"items":` + repeated(3000, func(i int) string { return "{}" }) + `}}`, []int{413}, false},
		{"rules", "POST", "/apis/grow.example.com/v1/namespaces/default/rules", "application/json", `{"apiVersion":"grow.example.com/v1","kind":"Rule","metadata":{"name":"a"},"spec":{"items":` + repeated(100_000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `}}`, []int{422}, false},
		{"environment", "POST", "/api/v1/namespaces/default/pods", "application/json", `{"metadata":{"name":"e"},"spec":{"containers":[{"name":"c","image":"i","env":` + repeated(30_000, func(i int) string { return fmt.Sprintf(`{"name":"=%d"}`, i) }) + `}]}}`, []int{422}, false},
		{"unknown fields", "POST", configMaps, "application/json", `{"metadata":{"name":"u"},` + strings.Trim(repeated(90, func(i int) string { return fmt.Sprintf(`"f%d%s":1`, i, strings.Repeat("u", 20_000)) }), "[]") + `}`, []int{201}, false},
		{"repeated fields in YAML", "POST", configMaps + "?dryRun=All", yamlType, "metadata: {name: twice}\ndata: {" + strings.Repeat("a: b,", 200_000) + "a: b}", []int{201}, false},
		{"repeated fields in YAML, refused", "POST", configMaps + "?fieldValidation=Strict", yamlType, "metadata: {name: twice}\ndata: {" + strings.Repeat("a: b,", 200_000) + "a: b}", []int{400}, false},
		{"a long name to generate", "POST", configMaps, "application/json", `{"metadata":{"generateName":"` + strings.Repeat("g", 1<<20) + `"}}`, []int{201, 422}, false},
		{"a long name", "POST", configMaps, "application/json", `{"metadata":{"name":"` + strings.Repeat("G", 1<<20) + `"}}`, []int{422}, false},
		{"a long name in the path", "GET", configMaps + "/" + strings.Repeat("n", 500<<10), "", "", []int{404}, false},
		{"a label selector", "GET", configMaps + "?labelSelector=a+in+(" + strings.Repeat("b,", 200<<10) + "b)", "", "", []int{200}, true},
		{"many label selectors", "GET", configMaps + "?labelSelector=" + strings.Repeat("a,", 200<<10) + "a", "", "", []int{200}, true},
		{"a bad label selector", "GET", configMaps + "?labelSelector=" + strings.Repeat("a+", 200<<10), "", "", []int{400}, false},
		{"many field selectors", "GET", configMaps + "?fieldSelector=" + strings.Repeat("metadata.name=a,", 40<<10) + "metadata.name=a", "", "", []int{200}, true},
		{"a bad field selector", "GET", configMaps + "?fieldSelector=" + strings.Repeat("x", 500<<10) + "=1", "", "", []int{400}, false},
		{"a long page token", "GET", configMaps + "?continue=" + strings.Repeat("A", 500<<10), "", "", []int{400}, false},
		{"a long resourceVersion", "GET", configMaps + "?resourceVersion=" + strings.Repeat("1", 500<<10), "", "", []int{400, 422, 500}, false},
		{"a long option", "POST", configMaps + "?dryRun=" + strings.Repeat("A", 500<<10), "application/json", `{"metadata":{"name":"d"}}`, []int{400, 422}, false},
		{"a long field manager", "POST", configMaps + "?fieldManager=" + strings.Repeat("A", 500<<10), "application/json", `{"metadata":{"name":"d"}}`, []int{400, 422}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a *answer
			start := time.Now()
			headers := []string{"Content-Type", c.contentType}
			if c.contentType == "" {
				headers = nil
			}
			peak := heapPeak(t, func() { a = s.do(c.method, c.path, c.body, headers...) })
			ok := false
			for _, code := range c.codes {
				ok = ok || a.code == code
			}
			t.Logf("%d in %v: %d bytes sent, heap %d MiB, answer %d bytes", a.code, time.Since(start).Round(time.Millisecond), len(c.body), peak>>20, len(a.body))
			if !ok {
				t.Errorf("answered %d, want one of %v: %.500s", a.code, c.codes, a.body)
			}
			if peak > heapBound {
				t.Errorf("the heap grew by %d MiB", peak>>20)
			}
			size := len(a.body)
			if c.large {
				size = max(0, size-4*len(c.body)-1<<20)
			}
			for name, values := range a.header {
				for _, v := range values {
					size += len(name) + len(v)
				}
			}
			if size > answerBound {
				t.Errorf("the answer and its header have %d bytes: %.500s", size, a.body)
			}
		})
	}
}

// deepYAML nests lists by aliases deeper than by brackets.
func deepYAML(head string) string {
	const depth = 5000
	s := head + "  a0: &a0 " + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "\n"
	for i := 1; i < 20; i++ {
		s += fmt.Sprintf("  a%d: &a%d %s*a%d%s\n", i, i, strings.Repeat("[", depth), i-1, strings.Repeat("]", depth))
	}
	return s
}

// nested is a JSON value inside n levels.
func nested(n int, value string) string {
	return strings.Repeat(`{"a":`, n) + value + strings.Repeat("}", n)
}

// copies is a JSON patch that doubles an object n times.
func copies(n int) string {
	return repeated(n, func(i int) string { return fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/c%d"}`, i) })
}

// declare has a CRD of group grow.example.com served.
func (s *server) declare(t *testing.T, plural, schema string) {
	t.Helper()
	singular := strings.TrimSuffix(plural, "s")
	kind := strings.ToUpper(singular[:1]) + singular[1:]
	s.must(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"metadata":{"name":"%[1]s.grow.example.com"},
		"spec":{"group":"grow.example.com","scope":"Namespaced","names":{"plural":"%[1]s","singular":"%[2]s","kind":"%[3]s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%[4]s}}]}}`, plural, singular, kind, schema))
	w := s.open("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1&fieldSelector=metadata.name=" + plural + ".grow.example.com")
	defer w.close()
	for at(w.next(), "object", "status", "conditions", 1, "status") != "True" {
	}
}

// Watches that don't read hold what they share, not a copy each.
func TestWatchesShareFrames(t *testing.T) {
	const watches, size = 400, 900 << 10
	for _, form := range []struct{ name, accept string }{
		{"as stored", "application/json"},
		{"as a table", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"in protobuf", "application/vnd.kubernetes.protobuf"},
	} {
		t.Run(form.name, func(t *testing.T) {
			s := newServer(t, nil)
			s.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
			for range watches {
				// The request alone is read by nobody: the body stays in the connection.
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				resp, err := s.client.Do(s.request(ctx, "GET", configMaps+"?watch=1&includeObject=Object&resourceVersion=0", "", "Accept", form.accept))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { resp.Body.Close() })
			}
			peak := heapPeak(t, func() {
				for i := range 3 {
					s.must(200, "PUT", configMaps+"/a", fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"n":"%d","k":"%s"}}`, i, strings.Repeat("v", size)))
				}
				// Events are with the watches once one that is opened now has seen the last of them.
				w := s.open(configMaps + "?watch=1&resourceVersion=0")
				w.next()
				w.close()
			})
			t.Logf("%d watches of objects of %d KiB: heap %d MiB", watches, size>>10, peak>>20)
			if most := int64(maxHeldHeap); peak > most {
				t.Errorf("the heap grew by %d MiB, want %d at most", peak>>20, most>>20)
			}
		})
	}
}

// maxHeldHeap is what 400 watches may hold of 900 KiB objects: 350 MiB were each to have one copy.
const maxHeldHeap = 256 << 20

// An answer that needs nothing of the body doesn't wait for it.
func TestRefusedBodyIsNotWaitedFor(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			s := newServer(t, nil)
			if proto == "HTTP/2.0" {
				old := s.Server
				next := httptest.NewUnstartedServer(old.Config.Handler)
				next.EnableHTTP2 = true
				next.StartTLS()
				t.Cleanup(next.Close)
				s.URL, s.client = next.URL, next.Client()
			}
			for _, c := range []struct {
				code                             int
				path, token, contentType, length string
			}{
				{401, configMaps, "wrong", "application/json", ""},
				{403, configMaps, "", "application/json", ""},
				{404, "/apis/no.example.com/v1/things", adminToken, "application/json", ""},
				{413, configMaps, adminToken, "application/json", "9000000"},
				{415, configMaps, adminToken, "text/html", ""},
			} {
				body, hold := io.Pipe() // nothing ever comes
				r := s.request(t.Context(), "POST", c.path, "", "Content-Type", c.contentType)
				r.Body, r.ContentLength = body, 100_000
				if c.length != "" {
					r.ContentLength = 9_000_000
				}
				if r.Header.Set("Authorization", "Bearer "+c.token); c.token == "" {
					r.Header.Del("Authorization")
				}
				start := time.Now()
				resp, err := s.client.Do(r)
				if err != nil {
					t.Errorf("%d: %v", c.code, err)
				} else {
					if resp.Body.Close(); resp.StatusCode != c.code || resp.Proto != proto {
						t.Errorf("%s answered %d, want %d", resp.Proto, resp.StatusCode, c.code)
					}
				}
				hold.Close()
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("%d: it took %v", c.code, d)
				}
			}
		})
	}
}
