package apiserver_test

import (
	"testing"
)

func TestRoundTrip(t *testing.T) {
	s := newServer(t, nil).withWidgets("")
	a := s.must(201, "POST", widgets, widget("a")).json(t)
	if at(a, "metadata", "name") != "a" || at(a, "metadata", "resourceVersion") == nil {
		t.Errorf("created %v", a)
	}
	got := s.must(200, "GET", widgets+"/a", "").json(t)
	if at(got, "metadata", "uid") != at(a, "metadata", "uid") {
		t.Errorf("got %v", got)
	}
	list := s.must(200, "GET", widgets, "").json(t)
	if at(list, "items", 0, "metadata", "name") != "a" {
		t.Errorf("listed %v", list)
	}
	s.must(200, "DELETE", widgets+"/a", "")
	s.must(404, "GET", widgets+"/a", "")
}
