package rest

import (
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// maxComparisons is how many pairs of list items a strategic merge patch may compare. The library looks for each
// item of a patch in the whole list, one by one: this many take some ten seconds at worst.
const maxComparisons = 50_000_000

// checkLists refuses a strategic merge patch whose lists take too long to merge with those of the object.
func checkLists(patch, original map[string]any) error {
	longest := longestList(original)
	if comparisons(patch, longest) > maxComparisons {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the lists of the patch are too long to be merged with lists of up to %d items; send several patches, or a merge patch or an update in its place", longest))
	}
	return nil
}

// comparisons is how many pairs of items the lists in v may have to be compared by, with each other and with a list
// of n items.
func comparisons(v any, n int) int {
	sum := 0
	switch v := v.(type) {
	case map[string]any:
		for _, f := range v {
			sum += comparisons(f, n)
		}
	case []any:
		sum = len(v) * (len(v) + n)
		for _, e := range v {
			sum += comparisons(e, n)
		}
	}
	return sum
}

func longestList(v any) int {
	longest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, f := range v {
			longest = max(longest, longestList(f))
		}
	case []any:
		longest = len(v)
		for _, e := range v {
			longest = max(longest, longestList(e))
		}
	}
	return longest
}

// maxSetCost bounds the lists whose items have owners of their own (sets and maps): the library that keeps the
// owners inserts each item into a sorted list, so one list costs the square of its length. It is one list of 31,000
// items, or a second or two.
const maxSetCost = 1_000_000_000

// checkSets refuses an object whose sets and maps take too long to find owners for.
func (r *request) checkSets(obj any) error {
	cost := 0
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		if r.Kind.Custom && r.Version.Schema != nil {
			meta, _ := o.Object["metadata"].(map[string]any)
			cost = listCost(meta) + setCost(o.Object, r.Version.Schema())
		} else {
			cost = listCost(o.Object)
		}
	default:
		cost = sliceCost(reflect.ValueOf(obj))
	}
	if cost > maxSetCost {
		return apierrors.NewRequestEntityTooLargeError("the object has lists of more items than owners of fields can be kept of: at most 31000 items in all sets and maps")
	}
	return nil
}

// listCost is the cost of every list in a value.
func listCost(v any) int {
	cost := 0
	switch v := v.(type) {
	case map[string]any:
		for _, f := range v {
			cost += listCost(f)
		}
	case []any:
		cost = len(v) * len(v)
		for _, e := range v {
			cost += listCost(e)
		}
	}
	return cost
}

// setCost is the cost of the lists in a value that a schema says are sets or maps.
func setCost(v any, s *spec.Schema) int {
	if s == nil {
		return 0
	}
	cost := 0
	switch v := v.(type) {
	case map[string]any:
		for name, f := range v {
			if p, ok := s.Properties[name]; ok {
				cost += setCost(f, &p)
			} else if s.AdditionalProperties != nil {
				cost += setCost(f, s.AdditionalProperties.Schema)
			}
		}
	case []any:
		if t, _ := s.Extensions.GetString("x-kubernetes-list-type"); t == "set" || t == "map" {
			cost = len(v) * len(v)
		}
		if s.Items != nil {
			for _, e := range v {
				cost += setCost(e, s.Items.Schema)
			}
		}
	}
	return cost
}

// sliceCost is the cost of every list in an object of a Go type.
func sliceCost(v reflect.Value) int {
	cost := 0
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			cost = sliceCost(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0
		}
		for i := range v.NumField() {
			cost += sliceCost(v.Field(i))
		}
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Uint8:
			return 0
		case reflect.Struct, reflect.Pointer, reflect.Slice:
			for i := range v.Len() {
				cost += sliceCost(v.Index(i))
			}
		}
		cost += v.Len() * v.Len()
	case reflect.Map:
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Slice || k == reflect.Pointer {
			for it := v.MapRange(); it.Next(); {
				cost += sliceCost(it.Value())
			}
		}
	}
	return cost
}
