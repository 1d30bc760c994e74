package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagsFromTheEnvironment(t *testing.T) {
	t.Setenv("OPERATORD_DATA_DIR", "/from/environment")
	t.Setenv("OPERATORD_WORKERS", "7")
	t.Setenv("OPERATORD_LISTEN", "127.0.0.1:1")
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	dir := flags.String("data-dir", "/default", "")
	workers := flags.Int("workers", 4, "")
	listen := flags.String("listen", "", "")
	if err := flags.Parse([]string{"--listen", "127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnvironment(flags); err != nil {
		t.Fatal(err)
	}
	if *dir != "/from/environment" || *workers != 7 || *listen != "127.0.0.1:2" {
		t.Errorf("%s %d %s: the environment fills in what was not given, and no more", *dir, *workers, *listen)
	}
	t.Setenv("OPERATORD_WORKERS", "many")
	other := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	other.Int("workers", 4, "")
	if err := fromEnvironment(other); err == nil || !strings.Contains(err.Error(), "OPERATORD_WORKERS") {
		t.Errorf("a value that is no number: %v, want an error that names the variable", err)
	}
}

// What was meant for kubectl is answered with the command that does it, and isn't listed as ours.
func TestCommandsOfKubectl(t *testing.T) {
	t.Setenv("OPERATORD_DATA_DIR", "/srv/data")
	for args, want := range map[string]string{
		"get pods -A -o wide": "kubectl --kubeconfig /srv/data/admin.kubeconfig get pods -A -o wide",
		"apply -f x.yaml":     "kubectl --kubeconfig /srv/data/admin.kubeconfig apply -f x.yaml",
		"gett pods":           `unknown command "gett"`,
	} {
		root := rootCommand(nil)
		root.SetArgs(strings.Fields(args))
		root.SetOut(io.Discard)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("operatord %s: %v, want %q", args, err, want)
		}
	}
	var help strings.Builder
	root := rootCommand(nil)
	root.SetArgs([]string{"--help"})
	root.SetOut(&help)
	if err := root.Execute(); err != nil || strings.Contains(help.String(), "describe") {
		t.Errorf("%v\n%s", err, &help)
	}
}

// server answers discovery and one plan, to whoever has the token.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, body any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				json.NewEncoder(w).Encode(map[string]any{"message": "Unauthorized"})
				return
			}
			json.NewEncoder(w).Encode(body)
		})
	}
	answer("GET /apis", map[string]any{"groups": []any{map[string]any{
		"name": "operatord.io", "preferredVersion": map[string]any{"groupVersion": "operatord.io/v1alpha1"},
	}}})
	answer("GET /api/v1", map[string]any{"resources": []any{map[string]any{"name": "nodes", "singularName": "node", "kind": "Node"}}})
	answer("GET /apis/operatord.io/v1alpha1", map[string]any{"resources": []any{
		map[string]any{"name": "clusters/status", "kind": "Cluster", "namespaced": true},
		map[string]any{"name": "clusters", "singularName": "cluster", "kind": "Cluster", "namespaced": true, "shortNames": []string{"cl"}},
	}})
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

// write makes a kubeconfig for a server: its authority in a file beside it, or inline.
func write(t *testing.T, s *httptest.Server, token string, inline bool) string {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	authority := "certificate-authority: ca.crt"
	if inline {
		authority = "certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca)
	} else if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	config := "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters:\n- name: c\n  cluster:\n    server: " + s.URL + "/\n    " + authority + "\n" +
		"users: [{name: u, user: {token: " + token + "}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCollectionByAnyName(t *testing.T) {
	s := server(t)
	for _, inline := range []bool{true, false} {
		c, err := readKubeconfig(write(t, s, "secret", inline))
		if err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]string{
			"cluster":               "/apis/operatord.io/v1alpha1/namespaces/ns/clusters",
			"clusters":              "/apis/operatord.io/v1alpha1/namespaces/ns/clusters",
			"Cluster":               "/apis/operatord.io/v1alpha1/namespaces/ns/clusters",
			"cl":                    "/apis/operatord.io/v1alpha1/namespaces/ns/clusters",
			"clusters.operatord.io": "/apis/operatord.io/v1alpha1/namespaces/ns/clusters",
			"node":                  "/api/v1/nodes",
		} {
			if got, err := c.collection(context.Background(), kind, "ns"); err != nil || got != want {
				t.Errorf("%s: %s %v, want %s", kind, got, err, want)
			}
		}
		if _, err := c.collection(context.Background(), "status", "ns"); err == nil || !strings.Contains(err.Error(), `no kind "status"`) {
			t.Errorf("a subresource taken for a kind: %v", err)
		}
	}
}

func TestErrorsAreTheServersWords(t *testing.T) {
	s := server(t)
	c, err := readKubeconfig(write(t, s, "wrong", true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.collection(context.Background(), "cluster", "ns"); err == nil || err.Error() != "Unauthorized" {
		t.Errorf("%v, want the server's message", err)
	}
}

func TestKubeconfigThatIsIncomplete(t *testing.T) {
	for config, want := range map[string]string{
		"current-context: x": `context "x" is not in it`,
		"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]": `cluster "c" or user "u"`,
		"][": "kubeconfig",
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", config, err, want)
		}
	}
}

func TestPlanReadsLikeASentence(t *testing.T) {
	for want, p := range map[string]plan{
		"create demo-0: no member is there, 3 are declared": {Kind: "create", Target: "demo-0", Why: "no member is there, 3 are declared"},
		"create demo-0: one is missing (held: step)":        {Kind: "create", Target: "demo-0", Why: "one is missing", Held: "step"},
		"noop: waiting for demo-2 (again in 10s)":           {Kind: "noop", Why: "waiting for demo-2", After: "10s"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOneObject(t *testing.T) {
	for args, want := range map[string]string{
		"cluster demo":                 "cluster demo",
		"cluster/demo":                 "cluster demo",
		"clusters.operatord.io/demo.x": "clusters.operatord.io demo.x",
		"":                             "plan takes one object, TYPE NAME or TYPE/NAME",
		"cluster":                      "plan takes one object",
		"cluster/":                     "plan takes one object",
		"/demo":                        "plan takes one object",
		"cluster demo other":           "plan takes one object",
		"cluster/demo other/demo":      "plan takes one object",
		"a/cluster demo":               "plan takes one object",
		"cluster a/demo":               `"a/demo" is no name of an object`,
		"cluster/demo/0":               `"demo/0" is no name of an object`,
		"cluster Demo":                 `"Demo" is no name of an object`,
		"cluster ../demo":              `"../demo" is no name of an object`,
		"cluster demo?x":               `"demo?x" is no name of an object`,
		"step=x":                       "kubectl annotate TYPE NAME operatord.io/step=x",
		"cluster demo step=x":          "kubectl annotate TYPE NAME operatord.io/step=x",
		"cluster step=x":               "kubectl annotate TYPE NAME operatord.io/step=x",
		"cluster/step=x":               "kubectl annotate TYPE NAME operatord.io/step=x",
	} {
		kind, name, err := oneObject("plan", strings.Fields(args))
		got := kind + " " + name
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
