package apiserver_test

import (
	"strings"
	"testing"
)

// Answers that differed from the real server's in small things.
func TestAnswersAsUpstream(t *testing.T) {
	s := newServer(t, nil)
	before := at(s.must(200, "GET", configMaps, "").json(t), "metadata", "resourceVersion").(string)
	s.declare(t, "lates", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`)
	w := s.open("/apis/grow.example.com/v1/namespaces/default/lates?watch=1&resourceVersion=" + before)
	if e := w.next(); e["type"] != "ERROR" || at(e, "object", "code") != 410.0 {
		t.Errorf("a watch from before its kind: %v", e)
	}

	if a := s.must(400, "GET", configMaps+"?resourceVersion=abc", ""); !strings.HasPrefix(at(a.json(t), "message").(string), "invalid resource version: ") {
		t.Errorf("a malformed resourceVersion: %s", a.body)
	}

	s.must(201, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", `{"metadata":{"name":"a"},"eventTime":"2020-01-01T00:00:00.000000Z",
		"reportingController":"x.y/z","reportingInstance":"i","action":"A","reason":"R","type":"Normal","regarding":{"kind":"Pod","name":"p","namespace":"default"}}`)
	for selector, want := range map[string]int{"regarding.name=p": 1, "regarding.name=q": 0, "reportingController=x.y/z": 1} {
		a := s.must(200, "GET", "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector="+selector, "")
		if items := at(a.json(t), "items").([]any); len(items) != want {
			t.Errorf("%s selects %d, want %d", selector, len(items), want)
		}
	}
	s.must(400, "GET", "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=involvedObject.name=p", "")

	s.must(201, "POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"scaled"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"host"}]}}}}`)
	scale := s.do("GET", "/apis/apps/v1/namespaces/default/deployments/scaled/scale", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").json(t)
	var columns []string
	definitions, _ := at(scale, "columnDefinitions").([]any)
	for _, d := range definitions {
		columns = append(columns, d.(map[string]any)["name"].(string))
	}
	rows, _ := at(scale, "rows").([]any)
	if strings.Join(columns, " ") != "Name Desired Available Age" || len(rows) != 1 {
		t.Fatalf("a Scale as Table: %v", scale)
	}
	if cells := rows[0].(map[string]any)["cells"].([]any); cells[0] != "scaled" || cells[1] != 3.0 || cells[2] != 0.0 {
		t.Errorf("cells of a Scale: %v", cells)
	}

	const aggregated = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for accept, want := range map[string]string{
		"application/json,application/json" + aggregated:                                                   "application/json",
		"application/json" + aggregated + ",application/json":                                              "application/json" + aggregated,
		"application/vnd.kubernetes.protobuf,application/json":                                             "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf" + aggregated + ",application/json" + aggregated:              "application/vnd.kubernetes.protobuf" + aggregated,
		"application/yaml" + aggregated + ",application/json" + aggregated + ",application/json;q=0.9,*/*": "application/json" + aggregated,
	} {
		if a := s.must(200, "GET", "/apis", "", "Accept", accept); a.header.Get("Content-Type") != want {
			t.Errorf("Accept %s is answered with %s, want %s", accept, a.header.Get("Content-Type"), want)
		}
	}

	a := s.must(400, "DELETE", configMaps+"/a", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":"x"}`)
	if m := at(a.json(t), "message").(string); !strings.Contains(m, "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64") {
		t.Errorf("bad DeleteOptions: %s", m)
	}
}
