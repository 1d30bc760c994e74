package rest

import (
	"strings"
	"testing"
)

func TestNesting(t *testing.T) {
	for _, c := range []struct {
		text string
		want nesting
	}{
		{``, nesting{}},
		{`1`, nesting{}},
		{`{}`, nesting{levels: 1, bytes: 1, values: 1}},
		{`[[1]]`, nesting{levels: 2, bytes: 1 + 2 + 2 + 1, values: 1 + 2}},
		{`["[{\"[\\"]`, nesting{levels: 1, bytes: 10, values: 1}},
		{`{"a":[1,2,3],"b":",["}`, nesting{levels: 2, bytes: 27, values: 2*1 + 3*2}},
		{strings.Repeat("[", 5) + strings.Repeat("]", 5), nesting{levels: 5, bytes: 25, values: 15}},
	} {
		if got := nestingOf([]byte(c.text)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.text, got, c.want)
		}
	}
}
