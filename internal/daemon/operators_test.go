package daemon

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestSelectOperators(t *testing.T) {
	known := []string{"cluster", "pod", "namespace"}
	for _, c := range []struct{ list, want string }{
		{"*", "cluster namespace pod"},
		{"", ""},
		{" ", ""},
		{"pod", "pod"},
		{"pod, cluster", "cluster pod"},
		{"*,-pod", "cluster namespace"},
		{"-pod", "cluster namespace"},
		{"-pod,-cluster", "namespace"},
		{"pod,-cluster", "pod"},
		{"-pod,pod,*", "cluster namespace"},
		{"crd", ""},
		{"-crd", "error: can't be turned off"},
		{"*,podd", "error: \"podd\""},
	} {
		on, err := selectOperators(c.list, known)
		if wanted, isError := strings.CutPrefix(c.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), wanted) {
				t.Errorf("%q: error %v, want one with %q", c.list, err, wanted)
			}
			continue
		}
		maps.DeleteFunc(on, func(_ string, v bool) bool { return !v })
		got := strings.Join(slices.Sorted(maps.Keys(on)), " ")
		if err != nil || got != c.want {
			t.Errorf("%q: %q %v, want %q", c.list, got, err, c.want)
		}
	}
}
