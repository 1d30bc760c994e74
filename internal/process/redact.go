package process

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"operatord.io/operatord/internal/process/shim"
)

// secretLength is the shortest value that Redact takes for a secret: shorter ones stand in any text.
const secretLength = 4

// Redact takes what must not be told out of a text that something about an attempt has produced: the values of
// its secret variables, by whose names they are replaced. The whole text has to be given, since half a value isn't
// recognised.
func (r *Runtime) Redact(id ID, text string) string {
	data, err := os.ReadFile(r.attempt(id).path(shim.SpecFile))
	if err != nil {
		return text // nothing runs without it
	}
	spec := shim.ParseSpec(data)
	var pairs [][2]string
	for _, v := range spec.Env {
		name, value, _ := strings.Cut(v, "=")
		if value = strings.TrimSpace(value); len(value) >= secretLength && slices.Contains(spec.Secrets, name) {
			pairs = append(pairs, [2]string{value, "[" + name + "]"})
		}
	}
	// The longest first: one may be part of another.
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	for _, p := range pairs {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	return text
}
