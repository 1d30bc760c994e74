package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"operatord.io/operatord/test/daemon"
)

const demo = `apiVersion: operatord.io/v1alpha1
kind: Cluster
metadata: {name: demo, namespace: default}
spec: {members: 3, restoreFrom: ""}
`

// Point 1: a declaration becomes true, one step at a time, and kubectl shows it.
func TestDeclarationBecomesTrue(t *testing.T) {
	e := start(t)
	watch := e.background(e.kubectlCommand("get", "clusters", "-w"))

	var seen []*Cluster
	history := make(chan struct{})
	go func() {
		defer close(history)
		e.Watch(e.ctx, clusters+"?watch=1", func(ev daemon.Event) bool {
			c := new(Cluster)
			if err := json.Unmarshal(ev.Object, c); err != nil {
				t.Error(err)
				return false
			}
			seen = append(seen, c)
			return c.Status.Phase != "Ready"
		})
	}()
	if out, err := e.tryKubectl(demo, "apply", "-f", "-"); err != nil || !strings.Contains(out, "cluster.operatord.io/demo created") {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	e.kubectl("wait", "--for=condition=Ready", "cluster/demo", "--timeout=90s")
	<-history

	checkSteps(t, seen)
	table := e.kubectl("get", "clusters")
	header, row, _ := strings.Cut(strings.TrimSpace(table), "\n")
	if got := strings.Fields(header); !slices.Equal(got, []string{"NAME", "PHASE", "MEMBERS", "LEADER", "AGE"}) {
		t.Errorf("columns: %q", header)
	}
	if got := strings.Fields(row); len(got) != 5 || !slices.Equal(got[:4], []string{"demo", "Ready", "3", "demo-0"}) {
		t.Errorf("row: %q", row)
	}
	if pods := e.pods("demo"); !sameKeys(pods, "demo-0", "demo-1", "demo-2") {
		t.Errorf("pods: %v", pods)
	}
	distinct := map[int]bool{}
	for _, pid := range e.pids("demo") {
		distinct[pid] = true
	}
	if len(distinct) != 3 {
		t.Errorf("%d living processes, want 3", len(distinct))
	}
	e.eventually("kubectl get -w shows Creating, then Ready", func() error {
		out := watch.String()
		if c, r := strings.Index(out, "Creating"), strings.LastIndex(out, "Ready"); c < 0 || r < c {
			return fmt.Errorf("printed:\n%s", out)
		}
		return nil
	})
	watch.stop()
	if out, err := e.tryKubectl(demo, "apply", "-f", "-"); err != nil || !strings.Contains(out, "unchanged") {
		t.Errorf("applying it again: %v\n%s", err, out)
	}
	checkCurl(e)
}

// checkSteps goes through every state that a watcher saw: nothing is claimed before it is so.
func checkSteps(t *testing.T, seen []*Cluster) {
	t.Helper()
	members := 0
	phases := []string{}
	for _, c := range seen {
		s := c.Status
		if !slices.Contains(phases, s.Phase) {
			phases = append(phases, s.Phase)
		}
		if s.Members < members || s.Members > 3 {
			t.Errorf("members went from %d to %d while it was formed", members, s.Members)
		}
		members = s.Members
		if s.Leader != "" && s.Members < 3 {
			t.Errorf("a leader (%s) with %d members: the first election waits for all", s.Leader, s.Members)
		}
		if ready, _, _ := c.condition("Ready"); (ready == "True") != (s.Phase == "Ready") {
			t.Errorf("phase %s with condition Ready=%s", s.Phase, ready)
		}
	}
	if got := strings.Join(phases, " "); got != "Pending Creating Ready" && got != "Creating Ready" {
		t.Errorf("phases: %s, want Pending, Creating, Ready", got)
	}
}

// checkCurl reads the Cluster with curl: over TLS with the token, and over the unix socket.
func checkCurl(e *env) {
	e.t.Helper()
	for name, args := range map[string][]string{
		"TLS and token": {"--cacert", e.File("ca.crt"), "-H", "Authorization: Bearer " + e.Token, e.Endpoints.API + clusters + "/demo"},
		"unix socket":   {"--unix-socket", e.File("operatord.sock"), "http://operatord" + clusters + "/demo"},
	} {
		out, err := exec.CommandContext(e.ctx, "curl", append([]string{"-sSf"}, args...)...).CombinedOutput()
		var c Cluster
		if err != nil || json.Unmarshal(out, &c) != nil || c.Status.Phase != "Ready" {
			e.t.Errorf("curl over %s: %v\n%s", name, err, out)
		}
	}
}

// The contract of the data directory: what is there before readiness, and with which modes.
func TestDataDirectory(t *testing.T) {
	e := start(t)
	for name, mode := range map[string]os.FileMode{
		".": 0o700, "ca.crt": 0o644, "ca.key": 0o600, "admin.token": 0o600, "admin.kubeconfig": 0o600, "operatord.sock": 0o600, "endpoints.json": 0o644,
	} {
		info, err := os.Stat(e.File(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("%s: mode %o, want %o", name, info.Mode().Perm(), mode)
		}
	}
	config, err := os.ReadFile(e.File("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"certificate-authority-data:", "client-certificate-data:", "client-key-data:", e.Endpoints.API} {
		if !strings.Contains(string(config), want) {
			t.Errorf("admin.kubeconfig has no %s", want)
		}
	}
	if out := e.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}"); !strings.Contains(out, "system:masters") {
		t.Errorf("the administrator's groups: %s", out)
	}
	if out := e.kubectl("auth", "whoami", "--as=alice", "-o", "jsonpath={.status.userInfo.username}"); out != "alice" {
		t.Errorf("as alice: %s", out)
	}
	for _, base := range []string{e.Endpoints.HTTP + "/readyz", e.Endpoints.HTTP + "/healthz"} {
		resp, err := e.HTTP.Get(base)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || string(body) != "ok" {
			t.Errorf("%s: %d %q %v", base, resp.StatusCode, body, err)
		}
	}
	if err := e.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	for _, name := range []string{"endpoints.json", "operatord.sock"} {
		if _, err := os.Stat(e.File(name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there after an orderly stop: %v", name, err)
		}
	}
}

// The subcommands that find a daemon by its data directory.
func TestSubcommands(t *testing.T) {
	e := start(t)
	if out, err := e.operatord("token", "--data-dir", e.Dir()); err != nil || strings.TrimSpace(out) != e.Token {
		t.Errorf("token: %v %q", err, out)
	}
	if out, err := e.operatord("kubeconfig", "--data-dir", e.Dir()); err != nil || !strings.Contains(out, e.Endpoints.API) {
		t.Errorf("kubeconfig: %v %q", err, out)
	}
	out, err := e.operatord("kubeconfig", "--data-dir", e.Dir(), "--user", "alice", "--group", "developers")
	if err != nil {
		t.Fatalf("kubeconfig --user: %v %s", err, out)
	}
	file := filepath.Join(t.TempDir(), "alice")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := e.kubectl("--kubeconfig", file, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); out != "alice" {
		t.Errorf("alice is %q", out)
	}
	if out, err := e.tryKubectl("", "--kubeconfig", file, "get", "secrets"); err == nil || !strings.Contains(out, "Forbidden") {
		t.Errorf("alice reads secrets: %v %s", err, out)
	}
	if out, err := e.operatord("kubeconfig", "--data-dir", e.Dir(), "--user", ""); err == nil {
		t.Errorf("a kubeconfig for nobody: %q", out)
	}
	if out, err := e.operatord("version"); err != nil || !strings.HasPrefix(out, "operatord ") {
		t.Errorf("version: %v %q", err, out)
	}
	if out, err := e.operatord("completion", "bash"); err != nil || !strings.Contains(out, "operatord") {
		t.Errorf("completion: %v", err)
	}
	if out, err := e.operatord("plan", "cluster", "nope", "--data-dir", e.Dir()); err == nil || !strings.Contains(out, `"nope" not found`) {
		t.Errorf("plan of what isn't there: %v %q", err, out)
	}
	if out, err := e.operatord("token", "--data-dir", t.TempDir()); err == nil || !strings.Contains(out, "operatord serve") {
		t.Errorf("token without a daemon: %v %q, want advice", err, out)
	}
}

// plan shows, step does: a Cluster is stepped to Ready from the shell.
func TestPlanAndStep(t *testing.T) {
	e := start(t)
	document := strings.Replace(clusterYAML("demo", 2), "name: demo,", `name: demo, annotations: {operatord.io/step: "0"},`, 1)
	if err := e.Create(e.ctx, clusters, document, nil); err != nil {
		t.Fatal(err)
	}
	e.until("demo", "its operator has seen it", func(c *Cluster) bool { return len(c.Status.Conditions) > 0 })
	plan := func() string {
		out, err := e.operatord("plan", "cluster", "demo", "--data-dir", e.Dir())
		if err != nil {
			t.Fatalf("plan: %v %s", err, out)
		}
		return out
	}
	if out := plan(); !strings.HasPrefix(out, "create demo-0") || !strings.Contains(out, "held: step") {
		t.Errorf("plan: %q, want create demo-0, held", out)
	}
	if pods := e.pods("demo"); len(pods) != 0 {
		t.Errorf("plan did something: %v", pods)
	}
	step := func(want string) {
		t.Helper()
		e.eventually("plan: "+want, func() error {
			if out := plan(); !strings.HasPrefix(out, want) {
				return fmt.Errorf("plan: %s", out)
			}
			return nil
		})
		if out, err := e.operatord("step", "cluster", "demo", "--data-dir", e.Dir()); err != nil || !strings.HasPrefix(out, want) {
			t.Fatalf("step: %v %q, want %s", err, out, want)
		}
	}
	step("create demo-0")
	if pods := e.pods("demo"); !sameKeys(pods, "demo-0") {
		t.Errorf("after one step: %v, want demo-0", pods)
	}
	step("create demo-1")
	step("elect demo-0")
	e.ready("demo", 2)
	if out := plan(); !strings.HasPrefix(out, "noop") {
		t.Errorf("plan of what is complete: %q", out)
	}
}

// The CRD of the second seed text, as it stands: no status subresource, no version of its own kind's spec.
func TestSeedCRD(t *testing.T) {
	const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: postgresclusters.db.example.com
spec:
  group: db.example.com
  scope: Namespaced
  names:
    kind: PostgresCluster
    plural: postgresclusters
  versions:
    - name: v1
      served: true
      storage: true          # etcd に保存する版（複数版なら1つだけ true）
      schema:
        openAPIV3Schema:       # ここで型・必須・範囲を定義（apiserver が検証）
          type: object
          properties:
            spec:
              type: object
              properties:
                replicas: { type: integer, minimum: 1 }
                version:  { type: string }
              required: ["replicas", "version"]
`
	e := start(t)
	if out, err := e.tryKubectl(crd, "apply", "-f", "-"); err != nil {
		t.Fatalf("apply the CRD: %v\n%s", err, out)
	}
	e.kubectl("wait", "--for=condition=Established", "crd/postgresclusters.db.example.com", "--timeout=30s")
	object := func(spec string) string {
		return "apiVersion: db.example.com/v1\nkind: PostgresCluster\nmetadata: {name: pg}\nspec: " + spec + "\n"
	}
	for spec, want := range map[string]string{
		`{replicas: 0, version: "16"}`: "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
		`{replicas: 3}`:                "spec.version: Required value",
		`{replicas: 3, version: 16}`:   `spec.version: Invalid value: "integer": spec.version in body must be of type string: "integer"`,
	} {
		if out, err := e.tryKubectl(object(spec), "create", "--validate=false", "-f", "-"); err == nil || !strings.Contains(out, want) {
			t.Errorf("spec %s: %v\n%s\nwant: %s", spec, err, out, want)
		}
	}
	out, err := e.tryKubectl(object(`{replicas: 3, version: "16"}`)+"status: {phase: Running}\n", "create", "--validate=warn", "-f", "-")
	if err != nil || !strings.Contains(out, `unknown field "status"`) {
		t.Errorf("a status without a schema: %v\n%s\nwant a warning", err, out)
	}
	if out := e.kubectl("get", "postgrescluster", "pg", "-o", "jsonpath={.spec.replicas}/{.status}"); out != "3/" {
		t.Errorf("stored: %q, want 3/ (the status pruned)", out)
	}
	if code, _, err := e.Do(e.ctx, "GET", "/apis/db.example.com/v1/namespaces/default/postgresclusters/pg/status", "", nil); err != nil || code != 404 {
		t.Errorf("its status subresource: %d %v, want 404", code, err)
	}
}
