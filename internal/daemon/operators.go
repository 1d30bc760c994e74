package daemon

import (
	"fmt"
	"slices"
	"strings"
)

// alwaysOn runs whatever --operators says: without it no custom kind is ever served.
const alwaysOn = "crd"

// selectOperators reads --operators: a list of names, "*" for all, "-name" for all but it (a list of
// nothing but those starts from all), "" for none. The first entry that names an operator decides, as with
// kube-controller-manager's --controllers. known is in the order in which operators start.
func selectOperators(list string, known []string) (map[string]bool, error) {
	var entries []string
	for e := range strings.SplitSeq(list, ",") {
		if e = strings.TrimSpace(e); e != "" {
			entries = append(entries, e)
		}
	}
	onlyMinus := len(entries) > 0
	for _, e := range entries {
		name, minus := strings.CutPrefix(e, "-")
		onlyMinus = onlyMinus && minus
		switch {
		case e == "*":
		case !slices.Contains(known, name) && name != alwaysOn:
			return nil, fmt.Errorf("daemon: --operators names %q, which is none of %s", name, strings.Join(known, ", "))
		case name == alwaysOn && minus:
			return nil, fmt.Errorf("daemon: --operators: %s can't be turned off, since no custom kind is served without it", alwaysOn)
		}
	}
	all := onlyMinus || slices.Contains(entries, "*")
	on := map[string]bool{}
	for _, name := range known {
		at := slices.IndexFunc(entries, func(e string) bool { return strings.TrimPrefix(e, "-") == name })
		switch {
		case at >= 0:
			on[name] = entries[at] == name
		case all:
			on[name] = true
		}
	}
	return on, nil
}
