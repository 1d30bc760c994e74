package crd

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// maxEffort is how many schemas and values of enums may be looked at to say what is wrong with an object: some ten
// seconds at worst. Each wrong value quotes its enum whole.
const maxEffort = 2_000_000

// effort is what it takes to validate a value, in schemas and values of enums looked at. Above maxEffort it isn't
// counted further.
func effort(value any, s *spec.Schema, sum int) int {
	if s == nil || sum > maxEffort {
		return sum
	}
	sum += 1 + len(s.Enum)
	for _, alternatives := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range alternatives {
			sum = effort(value, &alternatives[i], sum)
		}
	}
	sum = effort(value, s.Not, sum)
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			if p, ok := s.Properties[name]; ok {
				sum = effort(v, &p, sum)
			} else if s.AdditionalProperties != nil {
				sum = effort(v, s.AdditionalProperties.Schema, sum)
			}
		}
	case []any:
		if s.Items != nil {
			for _, v := range value {
				sum = effort(v, s.Items.Schema, sum)
			}
		}
	}
	return sum
}

// checkEffort refuses a value that takes too long to validate.
func checkEffort(value any, s *spec.Schema) error {
	if effort(value, s, 0) > maxEffort {
		return fmt.Errorf("the object is invalid, and has too many values for a schema of so many alternatives to say where: more than %d would have to be compared", maxEffort)
	}
	return nil
}

// onlyMetadata tells whether an object differs from what it was in its metadata alone.
func onlyMetadata(value, old any) bool {
	is, ok := value.(map[string]any)
	was, wasOK := old.(map[string]any)
	return ok && wasOK && equality.Semantic.DeepEqual(content(&unstructured.Unstructured{Object: is}), content(&unstructured.Unstructured{Object: was}))
}
