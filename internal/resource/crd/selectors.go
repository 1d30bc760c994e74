package crd

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"operatord.io/operatord/internal/resource"
)

// selectors are a version's selectableFields.
func selectors(d *definition, v *apiextensionsv1.CustomResourceDefinitionVersion) resource.FieldSelectors {
	paths := make(map[string]*jsonpath.JSONPath, len(v.SelectableFields))
	var names []string
	for _, f := range v.SelectableFields {
		name := strings.TrimPrefix(f.JSONPath, ".")
		p := jsonpath.New(name)
		p.AllowMissingKeys(true)
		if err := p.Parse("{" + f.JSONPath + "}"); err != nil {
			continue // validation of CRDs keeps these out
		}
		paths[name] = p
		names = append(names, name)
	}
	slices.Sort(names)
	return resource.FieldSelectors{
		Names: names,
		Values: func(json []byte) (fields.Set, error) {
			if len(paths) == 0 {
				return nil, nil
			}
			var content map[string]any
			if err := utiljson.Unmarshal(json, &content); err != nil {
				return nil, err
			}
			set := make(fields.Set, len(paths))
			for name, p := range paths {
				value, err := find(p, content)
				if err != nil {
					return nil, fmt.Errorf("crd: selectable field %s: %w", name, err)
				}
				set[name] = value
			}
			return set, nil
		},
		Convert: func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" && d.namespaced || paths[label] != nil {
				return label, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		},
	}
}

// find is the one value at a path as text, "" if there is none.
func find(p *jsonpath.JSONPath, content map[string]any) (string, error) {
	results, err := p.FindResults(content)
	if err != nil {
		return "", err
	}
	if len(results) == 0 || len(results[0]) == 0 {
		return "", nil
	}
	if len(results) > 1 || len(results[0]) > 1 {
		return "", fmt.Errorf("more than one value")
	}
	value := results[0][0].Interface()
	if value == nil {
		return "", nil
	}
	return fmt.Sprint(value), nil
}
