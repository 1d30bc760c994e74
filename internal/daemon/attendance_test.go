package daemon

import (
	"slices"
	"testing"

	"operatord.io/operatord/internal/resource/builtin"
)

// Every kind that is compiled in has an operator, or is data on purpose, or a create of it says that nobody acts.
func TestEveryKindIsAttendedOrSaysSo(t *testing.T) {
	table := attendances()
	known := append(OperatorNames(), alwaysOn)
	for _, k := range builtin.Kinds() {
		a, ok := table[k.GroupKind]
		if !ok {
			t.Errorf("%s is served, and attendances doesn't say who acts on it", k.GroupKind)
			continue
		}
		delete(table, k.GroupKind)
		set := 0
		for _, is := range []bool{a.operator != "", a.data, a.nobody != ""} {
			if is {
				set++
			}
		}
		if set != 1 {
			t.Errorf("%s: %+v, want exactly one of the fields", k.GroupKind, a)
		}
		if a.operator != "" && !slices.Contains(known, a.operator) {
			t.Errorf("%s: there is no operator %s", k.GroupKind, a.operator)
		}
	}
	for gk := range table {
		t.Errorf("attendances has %s, which isn't compiled in", gk)
	}
}

func TestAnAPIServerAloneWarnsOfNobody(t *testing.T) {
	deployment := builtin.Kinds()[0].GroupKind
	deployment.Group, deployment.Kind = "apps", "Deployment"
	for _, c := range []struct {
		operators string
		warns     bool
	}{{"", false}, {"crd", false}, {"*", true}, {"namespace", true}, {"-pod", true}} {
		on, err := selectOperators(c.operators, OperatorNames())
		if err != nil {
			t.Fatal(err)
		}
		warning := unattended(on)
		if (warning != nil && warning(deployment) != "") != c.warns {
			t.Errorf("--operators=%s: want a warning: %t", c.operators, c.warns)
		}
		if warning != nil && warning(builtin.Kinds()[0].GroupKind) != "" {
			t.Errorf("--operators=%s warns of ConfigMaps", c.operators)
		}
	}
}
