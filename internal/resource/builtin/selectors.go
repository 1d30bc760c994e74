package builtin

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/fields"

	"operatord.io/operatord/internal/resource"
)

// selectable reads just the fields that a kind's selectors may name. T mirrors a part of its JSON.
func selectable[T any](values func(*T) fields.Set) func([]byte) (fields.Set, error) {
	return func(data []byte) (fields.Set, error) {
		part := new(T)
		if err := json.Unmarshal(data, part); err != nil {
			return nil, err
		}
		return values(part), nil
	}
}

// selectors puts a kind's selectable fields together; which a request may name is the scheme's to say.
func (b *builder) selectors(d definition) resource.FieldSelectors {
	values := d.values
	if values == nil {
		values = func([]byte) (fields.Set, error) { return nil, nil }
	}
	return resource.FieldSelectors{
		Names:  d.fields,
		Values: values,
		Convert: func(label, value string) (string, string, error) {
			return b.scheme.ConvertFieldLabel(d.gvk, label, value)
		},
	}
}
