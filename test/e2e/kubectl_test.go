package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// The kubectl commands that README and docs use, and those that people reach for first.
func TestKubectl(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 1)
	e.ready("demo", 1)
	for _, c := range []struct{ args, want string }{
		{"api-resources --api-group=operatord.io", "clusters"},
		{"api-resources --api-group=operatord.io", "cl "},
		{"api-versions", "operatord.io/v1alpha1"},
		{"explain cluster.spec.members", "How many members there shall be"},
		{"explain pod.spec.containers", "List of containers belonging to the pod"},
		{"get cl", "demo"},
		{"get all", "cluster.operatord.io/demo"},
		{"get clusters -A -o wide", "default"},
		{"get cluster demo -o yaml", "phase: Ready"},
		{"get clusters -o name", "cluster.operatord.io/demo"},
		{"get cluster demo -o jsonpath={.status.leader}", "demo-0"},
		{"get pods -l operatord.io/role=leader -o name", "pod/demo-0"},
		{"get pods --field-selector=status.phase=Running -o name", "pod/demo-0"},
		{"get pods --sort-by=.metadata.name", "demo-0"},
		{"describe cluster demo", "LeaderElected"},
		{"describe pod demo-0", "Controlled By:  Cluster/demo"},
		{"describe node", "Ready"},
		{"events --for=cluster/demo", "MemberCreated"},
		{"label cluster demo team=a", "labeled"},
		{"annotate cluster demo note=b", "annotated"},
		{"scale cluster demo --replicas=2", "scaled"},
		{"wait --for=jsonpath={.status.members}=2 cluster/demo --timeout=60s", "condition met"},
		{"create configmap c --from-literal=a=b", "created"},
		{"get configmap c -o jsonpath={.data.a}", "b"},
		{"create secret generic s --from-literal=a=b", "created"},
		{"create namespace n", "created"},
		{"delete namespace n --timeout=60s", "deleted"},
		{"delete configmap,secret --all", "deleted"},
		{"auth can-i create clusters", "yes"},
		{"auth can-i create clusters --as=alice", "no"},
		{"version", "Server Version: v1.37.2"},
		{"get --raw /readyz", "ok"},
	} {
		out, err := e.tryKubectl("", strings.Fields(c.args)...)
		if err != nil && c.want != "no" || !strings.Contains(out, c.want) {
			t.Errorf("kubectl %s: %v\n%s\nwant: %s", c.args, err, out, c.want)
		}
	}
	kubectlApply(e)
	e.kubectl("delete", "cluster", "demo", "--timeout=60s")
}

// kubectlApply goes through the ways of applying: client side, diff, server side (kubectl moves its
// ownership over by itself), a conflict with somebody else.
func kubectlApply(e *env) {
	e.t.Helper()
	object := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied, namespace: default}\ndata: {a: %q}\n", value)
	}
	for _, c := range []struct {
		value, args, want string
		fails             bool
	}{
		{"1", "apply -f -", "configmap/applied created", false},
		{"1", "apply -f -", "configmap/applied unchanged", false},
		{"1", "diff -f -", "", false},
		{"2", "diff -f -", "+  a: \"2\"", true},
		{"2", "apply -f -", "configmap/applied configured", false},
		{"3", "apply --server-side -f -", "serverside-applied", false},
		{"4", "apply --server-side --field-manager=other -f -", "conflict", true},
		{"3", "apply --server-side --dry-run=server -f -", "serverside-applied (server dry run)", false},
		{"x", "replace -f -", "replaced", false},
		{"", "delete configmap applied", "deleted", false},
	} {
		out, err := e.tryKubectl(object(c.value), strings.Fields(c.args)...)
		if (err != nil) != c.fails || !strings.Contains(out, c.want) {
			e.t.Errorf("kubectl %s with %s: %v\n%s\nwant: %s", c.args, c.value, err, out, c.want)
		}
	}
}
