package crd

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxDefaults is what a schema's defaults may add to one object, in bytes of JSON: what the store takes.
const maxDefaults = 8 << 20

// checkDefaults refuses an object that its defaults would make too large, before any is put in.
func checkDefaults(obj map[string]any, s *structuralschema.Structural) error {
	room := int64(maxDefaults)
	if addDefaults(obj, s, &room); room < 0 {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the defaults of its schema would add more than %d bytes to the object", maxDefaults))
	}
	return nil
}

// addDefaults takes from room what the library's defaulting would add to x. It ends soon once there is none.
func addDefaults(x any, s *structuralschema.Structural, room *int64) {
	if s == nil || *room < 0 {
		return
	}
	put := func(s *structuralschema.Structural) {
		takeSize(s.Default.Object, room)
		addDefaults(s.Default.Object, s, room)
	}
	switch x := x.(type) {
	case map[string]any:
		for k, prop := range s.Properties {
			if _, found := x[k]; !found && prop.Default.Object != nil {
				*room -= int64(len(k)) + 4
				put(&prop)
			}
		}
		for k, v := range x {
			prop, found := s.Properties[k]
			switch {
			case found && v == nil:
				put(&prop)
			case found:
				addDefaults(v, &prop, room)
			case s.AdditionalProperties != nil && v == nil && s.AdditionalProperties.Structural != nil:
				put(s.AdditionalProperties.Structural)
			case s.AdditionalProperties != nil:
				addDefaults(v, s.AdditionalProperties.Structural, room)
			}
			if *room < 0 {
				return
			}
		}
	case []any:
		for _, v := range x {
			if v == nil && s.Items != nil {
				put(s.Items)
			} else {
				addDefaults(v, s.Items, room)
			}
			if *room < 0 {
				return
			}
		}
	}
}

// takeSize takes from room about what a value has as JSON.
func takeSize(v any, room *int64) {
	if *room < 0 {
		return
	}
	*room -= 4
	switch v := v.(type) {
	case string:
		*room -= int64(len(v))
	case map[string]any:
		for k, f := range v {
			*room -= int64(len(k)) + 4
			takeSize(f, room)
		}
	case []any:
		for _, e := range v {
			takeSize(e, room)
		}
	}
}
