package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPaths(t *testing.T) {
	var v any
	if err := json.Unmarshal([]byte(`{"a":{"b.c/d":1},"l":[{"n":"x","v":1,"m":{"k":"z"}},{"n":"y","v":2}]}`), &v); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		`a["b.c/d"]`:  `1`,
		`l[1].v`:      `2`,
		`l[*].v`:      `[1,2]`,
		`l[n=y].v`:    `2`,
		`l[m.k=z].n`:  `"x"`,
		`l[n=none].v`: `null`,
		`a.none.deep`: `null`,
		`l[7]`:        `null`,
	} {
		got, err := lookup(v, path)
		if err != nil || text(got) != want {
			t.Errorf("lookup %s = %s, %v; want %s", path, text(got), err, want)
		}
	}
	if _, err := lookup(v, "l[x"); err == nil {
		t.Error("a path with an open bracket was taken")
	}
	if err := set(v, "new.deep", "v"); err != nil {
		t.Error(err)
	}
	if err := remove(v, "l[*].v"); err != nil {
		t.Error(err)
	}
	if got, want := text(v), `{"a":{"b.c/d":1},"l":[{"m":{"k":"z"},"n":"x"},{"n":"y"}],"new":{"deep":"v"}}`; got != want {
		t.Errorf("after set and remove: %s, want %s", got, want)
	}
}

func TestDiffNamesEachPlace(t *testing.T) {
	want := Expect{Status: 200, Body: map[string]any{"a": 1, "gone": true, "l": []any{1, 2}, "same": 2.0}}
	got := Expect{Status: 409, Body: map[string]any{"a": 2, "more": "x", "l": []any{1}, "same": 2}}
	var paths []string
	for _, d := range want.compare(got) {
		paths = append(paths, d.path)
	}
	if got, want := strings.Join(paths, " "), "status body.a body.gone body.l[1] body.more"; got != want {
		t.Errorf("differences at %s, want %s", got, want)
	}
}

func TestNormalizerKeepsRelations(t *testing.T) {
	n := newNormalizer("conf-abc", "tabc")
	object := func(name, rv, uid string) any {
		return map[string]any{"metadata": map[string]any{
			"name": name, "namespace": "conf-abc", "resourceVersion": rv, "uid": uid,
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339),
		}}
	}
	const u1, u2 = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	get := request{method: "GET", path: "/api/v1/namespaces/conf-abc/configmaps/a"}
	answers := []Expect{
		{Body: n.body(get, object("a", "20", u1))},
		{Body: n.body(get, object("b", "7", u2))},
		{Body: n.body(get, object("a", "20", u1))},
	}
	answers, err := rank(answers)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"<rv2> <uid1> <ns> <time>", "<rv1> <uid2> <ns> <time>", "<rv2> <uid1> <ns> <time>"} {
		m := answers[i].Body.(map[string]any)["metadata"].(map[string]any)
		if got := fmt.Sprint(m["resourceVersion"], " ", m["uid"], " ", m["namespace"], " ", m["creationTimestamp"]); got != want {
			t.Errorf("answer %d: %s, want %s", i, got, want)
		}
	}
	list := request{method: "GET", path: "/api/v1/namespaces/conf-abc/configmaps"}
	for rv, want := range map[string]string{"25": "<list rv>", "19": "<list rv, older than an object seen before>"} {
		body := n.body(list, map[string]any{"items": []any{}, "metadata": map[string]any{"resourceVersion": rv}})
		if got := find(body, []segment{{key: "metadata"}, {key: "resourceVersion"}}); got != want {
			t.Errorf("list at %s: %v, want %s", rv, got, want)
		}
	}
	if got := n.text("since 2001-01-01T00:00:00Z"); got != "since 2001-01-01T00:00:00Z" {
		t.Errorf("a moment of the case's own became %q", got)
	}
}

func TestSortCausesRewritesOnlyItsOwnList(t *testing.T) {
	status := map[string]any{
		"kind":    "Status",
		"message": `Widget "a" is invalid: [spec.b: Required value, spec.a: Required value]`,
		"details": map[string]any{"causes": []any{
			map[string]any{"field": "spec.b", "message": "Required value"},
			map[string]any{"field": "spec.a", "message": "Required value"},
		}},
	}
	sortCauses(status)
	if got, want := status["message"], `Widget "a" is invalid: [<the causes>]`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	status["message"] = "another message [x, y]"
	sortCauses(status)
	if got := status["message"]; got != "another message [x, y]" {
		t.Errorf("message became %q", got)
	}
}

// fakeServer answers enough of the API for a case without a CRD; answer serves the rest.
func fakeServer(t *testing.T, answer http.HandlerFunc) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	mux.HandleFunc("POST /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		var b bytes.Buffer
		b.ReadFrom(r.Body)
		w.Write(b.Bytes())
	})
	mux.HandleFunc("DELETE /api/v1/namespaces/{ns}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	mux.HandleFunc("/", answer)
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

func writeCase(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, "area", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRecordThenRun(t *testing.T) {
	value := "1"
	url := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q,"value":%s}`, r.URL.Path, value)
	})
	dir := t.TempDir()
	writeCase(t, dir, "one.yaml", "doc: d\nsteps: [{request: 'GET /x/${ns}'}]\n")
	play := func(mode string) (string, error) {
		var out bytes.Buffer
		err := run(context.Background(), []string{mode, "--server", url, dir}, &out)
		return out.String(), err
	}
	if out, err := play("record"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := play("run"); err != nil || !strings.HasSuffix(out, "1 passed, 0 failed\n") {
		t.Fatal(err, out)
	}
	value = "2"
	out, err := play("run")
	if err == nil || !strings.Contains(out, "body.value\n        got  2\n        want 1\n") {
		t.Fatal(err, out)
	}
	writeCase(t, dir, "one.yaml", "doc: d\nsteps: [{request: 'GET /changed/${ns}'}]\n")
	if out, err := play("run"); err == nil || !strings.Contains(out, "record it again") {
		t.Fatal("a stale recording was used:", err, out)
	}
}

func TestHangingServerFailsTheCaseInTime(t *testing.T) {
	for request, more := range map[string]string{
		"GET /hang":         "",
		"GET /hang?watch=1": ", watch: {events: 1}",
		"GET /hang?poll=1":  ", poll: {status: 200}",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			url := fakeServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			dir := t.TempDir()
			writeCase(t, dir, "hang.yaml", fmt.Sprintf("doc: d\nsteps: [{request: '%s'%s}]\n", request, more))
			writeCase(t, dir, "hang.expect.yaml", fmt.Sprintf("- {step: '%s', status: 200}\n", request))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := run(ctx, []string{"run", "--server", url, "--timeout", "200ms", dir}, &out)
			if err == nil || ctx.Err() != nil || !strings.Contains(out.String(), "the case's limit is 200ms") {
				t.Errorf("%v, %v: %s", err, ctx.Err(), out.String())
			}
		})
	}
}

// TestCasesLoad keeps the corpus well formed: each case parses and has a recording that fits.
func TestCasesLoad(t *testing.T) {
	cases, err := loadCases([]string{"cases"})
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		if _, err := c.loadExpect(); err != nil {
			t.Errorf("%s/%s: %v", c.Area, c.Name, err)
		}
	}
}

func TestBaselineFailsOnlyOnWhatWasPassedBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "baseline.txt")
	b, err := loadBaseline(file)
	if err != nil {
		t.Fatal("a missing baseline is an empty one:", err)
	}
	b.add(map[string]bool{"a/kept": true, "a/lost": true, "a/never": false})
	if err := b.save(file); err != nil {
		t.Fatal(err)
	}
	if b, err = loadBaseline(file); err != nil || len(b) != 2 || !b["a/kept"] || !b["a/lost"] {
		t.Fatal("the baseline did not survive its file:", b, err)
	}
	var out bytes.Buffer
	if err := b.verdict(&out, map[string]bool{"a/kept": true, "a/never": false, "a/new": true}); err != nil {
		t.Error("a case that never passed failed the run:", err)
	}
	if !strings.Contains(out.String(), "a/new") {
		t.Errorf("a newly passing case is not named: %s", out.String())
	}
	out.Reset()
	if err := b.verdict(&out, map[string]bool{"a/kept": true, "a/lost": false}); err == nil || !strings.Contains(out.String(), "a/lost") {
		t.Errorf("a lost case passed: %v, %s", err, out.String())
	}
}

func TestRunWithBaseline(t *testing.T) {
	url := fakeServer(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	dir := t.TempDir()
	for _, name := range []string{"good", "bad"} {
		writeCase(t, dir, name+".yaml", "doc: d\nsteps: [{request: 'GET /x'}]\n")
		status := map[string]int{"good": 200, "bad": 500}[name]
		writeCase(t, dir, name+".expect.yaml", fmt.Sprintf("- {step: 'GET /x', status: %d, body: '{}', contentType: 'text/plain; charset=utf-8'}\n", status))
	}
	file := filepath.Join(t.TempDir(), "baseline.txt")
	args := []string{"run", "--server", url, "--baseline", file}
	var out bytes.Buffer
	if err := run(context.Background(), append(args, "--save-baseline", dir), &out); err != nil {
		t.Fatal(err, out.String())
	}
	if err := run(context.Background(), append(args, dir), &out); err != nil {
		t.Fatal("a known failure failed the run:", err, out.String())
	}
	if err := os.WriteFile(file, []byte("area/bad\narea/good\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), append(args, dir), &out); err == nil {
		t.Fatal("a lost case passed:", out.String())
	}
}
