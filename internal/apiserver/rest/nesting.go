package rest

import (
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxLevels is how deep JSON may be nested for the JSON decoders.
	maxLevels = 10_000
	// maxNesting bounds what a JSON or merge patch costs, in bytes: the library copies and reads what is inside a
	// level once for that level, so one byte costs as much as it has levels around it. 3 MiB inside 40 levels are
	// within it.
	maxNesting = 128 << 20
	// maxOwned bounds what an apply costs: the library that keeps the owners of fields makes room in each level for
	// all that is inside it, several times. 100,000 values inside 40 levels are within it.
	maxOwned = 4_000_000
)

// nesting is how JSON is nested.
type nesting struct {
	levels int   // of its deepest value
	bytes  int64 // each counted once for each level around it
	values int64 // in the same way, those of maps and lists
}

// nestingOf measures JSON without decoding it. Of what isn't JSON it says anything.
func nestingOf(text []byte) nesting {
	var n nesting
	level, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			n.bytes += int64(level)
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			n.levels = max(n.levels, level)
			n.values += int64(level)
		case c == ',':
			n.values += int64(level)
		case c == '}' || c == ']':
			level--
		}
		n.bytes += int64(level)
	}
	return n
}

// check refuses a patch that is nested too deep, or reaches too deep into an object of size bytes.
func (n nesting) check(size int) error {
	if n.levels > maxLevels || n.bytes+int64(n.levels)*int64(size) > maxNesting {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the patch has too much in too many levels (%d): what is in each level, added up, must be below %d bytes; send an update in its place", n.levels, maxNesting))
	}
	return nil
}

// reach adds how deep the paths of a JSON patch lead into an object.
func (n nesting) reach(patch jsonpatch.Patch) nesting {
	deepest := 0
	for _, op := range patch {
		path, _ := op.Path()
		from, _ := op.From()
		deepest = max(deepest, strings.Count(path, "/"), strings.Count(from, "/"))
	}
	n.levels += deepest
	return n
}

// checkOwned refuses an apply for which the owners of fields take too much room. live is the object's JSON.
func checkOwned(applied map[string]any, live []byte) error {
	if valuesOf(applied, 1)+nestingOf(live).values > maxOwned {
		return apierrors.NewRequestEntityTooLargeError(
			"the object has too much in too many levels for owners of fields to be kept of; send an update or a merge patch in place of an apply")
	}
	return nil
}

// valuesOf counts what is in a value at a level, each once for each level around it.
func valuesOf(v any, level int64) int64 {
	sum := int64(0)
	switch v := v.(type) {
	case map[string]any:
		sum = level * int64(len(v))
		for _, f := range v {
			sum += valuesOf(f, level+1)
		}
	case []any:
		sum = level * int64(len(v))
		for _, e := range v {
			sum += valuesOf(e, level+1)
		}
	}
	return sum
}
