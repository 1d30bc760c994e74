package rest_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/apiserver/rest"
)

// What makes an object of a kind on which nobody acts is answered with a Warning, however it is made; what changes
// one, or makes another, isn't.
func TestCreatesThatNobodyActsOnWarn(t *testing.T) {
	const text = "nobody acts on it"
	s := newServer(t, func(c *rest.Config) {
		c.Unattended = func(gk schema.GroupKind) string {
			if gk.Kind == "Deployment" || gk.Kind == "Lease" {
				return text
			}
			return ""
		}
	})
	const deployments, leases = "apps/v1/deployments", "coordination.k8s.io/v1/leases"
	deployment := func(name string) string {
		return strings.Replace(fixtures["Deployment.apps"].object, `{"spec"`, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+name+`"},"spec"`, 1)
	}
	for _, c := range []struct {
		name  string
		warns bool
		do    func() (*rest.Result, error)
	}{
		{"create", true, func() (*rest.Result, error) { return s.create(deployments, "default", deployment("a")) }},
		{"apply that creates", true, func() (*rest.Result, error) {
			return s.patch(deployments, "default", "b", types.ApplyPatchType, deployment("b"))
		}},
		{"apply again", false, func() (*rest.Result, error) {
			return s.patch(deployments, "default", "b", types.ApplyPatchType, deployment("b"))
		}},
		{"patch", false, func() (*rest.Result, error) {
			return s.patch(deployments, "default", "a", types.MergePatchType, `{"spec":{"replicas":2}}`)
		}},
		{"scale", false, func() (*rest.Result, error) {
			return s.patch(deployments, "default", "a", types.MergePatchType, `{"spec":{"replicas":3}}`, "scale")
		}},
		{"put that creates", true, func() (*rest.Result, error) { return s.update(leases, "default", "l", `{"metadata":{"name":"l"}}`) }},
		{"put", false, func() (*rest.Result, error) {
			l := s.must(s.get(leases, "default", "l"))
			return s.update(leases, "default", "l", set(l, map[string]any{"spec.holderIdentity": "me"}))
		}},
		{"dry run", true, func() (*rest.Result, error) {
			return s.verbs.Create(s.Context(), s.on(deployments, "default", ""), s.body(deployments, deployment("c")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}},
		{"another kind", false, func() (*rest.Result, error) {
			return s.create("v1/configmaps", "default", `{"metadata":{"name":"a"}}`)
		}},
	} {
		res, err := c.do()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if slices.Contains(res.Warnings, text) != c.warns {
			t.Errorf("%s: warnings %q", c.name, res.Warnings)
		}
	}
}
