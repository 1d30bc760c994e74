package builtin

import (
	"slices"
	"strings"
	"testing"

	"operatord.io/operatord/internal/resource/resourcetest"
)

func TestRoles(t *testing.T) {
	const group = "rbac.authorization.k8s.io"
	role := kind(t, group, "Role")
	if !role.Strategy.AllowCreateOnUpdate(t.Context()) {
		t.Error("a PUT doesn't create a Role")
	}
	_, err := resourcetest.Create(role, `{metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods]}]}`)
	wantCauses(t, err, `rules[0].verbs: Required value`)
	_, err = resourcetest.Create(role, `{metadata: {name: a}, rules: [{nonResourceURLs: [/x], verbs: [get]}]}`)
	wantCauses(t, err, `rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs`)

	binding := kind(t, group, "RoleBinding")
	o := create(t, binding, minimal["RoleBinding."+group])
	if subjects := fieldOf(o, "subjects"); !strings.Contains(subjects, `{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"}`) {
		t.Errorf("subjects are %s", subjects)
	}
	err = o.Change("", func(content map[string]any) { content["roleRef"].(map[string]any)["name"] = "other" })
	wantCauses(t, err, `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: field is immutable`)
	cells, err := binding.Versions[0].Columns.Cells(o.JSON())
	if err != nil {
		t.Fatal(err)
	}
	cells[2] = "age"
	if want := []any{"a", "Role/r", "age", "u", "g", "s/a"}; !slices.Equal(cells, want) {
		t.Errorf("cells are %v", cells)
	}
}
