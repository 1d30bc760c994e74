package crd

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

//go:embed definitions.json
var definitionsJSON []byte

// definitions are the published schemas that those of custom resources refer to, by name: ObjectMeta,
// Scale and what they consist of. The map is shared; its schemas must not be changed.
var definitions = sync.OnceValue(func() map[string]*spec.Schema {
	var out map[string]*spec.Schema
	if err := json.Unmarshal(definitionsJSON, &out); err != nil {
		panic(fmt.Sprintf("crd: definitions.json as built in is damaged: %v", err))
	}
	return out
})

const (
	metaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

	metaDescription       = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
	apiVersionDescription = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	kindDescription       = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"

	embeddedAPIVersionDescription = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	embeddedKindDescription       = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// SchemaName is the name under which a kind's schema is published: com.example.v1.Widget.
func SchemaName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + version + "." + kind
}

// published is the version's schema as OpenAPI v3 documents show it, selectable fields included.
func (r *rules) published() *spec.Schema {
	s := r.openAPI()
	if len(r.spec.SelectableFields) > 0 {
		fields := make([]any, len(r.spec.SelectableFields))
		for i, f := range r.spec.SelectableFields {
			fields[i] = map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")}
		}
		s.AddExtension("x-kubernetes-selectable-fields", fields)
	}
	return s
}

// openAPI makes the version's schema with metadata, apiVersion and kind in it. A version without a schema,
// or with one that can't be used, is a bare object.
func (r *rules) openAPI() *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if structural := r.declared(); structural != nil {
		s = structural.ToKubeOpenAPI()
		s.SetProperty("metadata", *metaRef())
		s.SetProperty("apiVersion", *text(apiVersionDescription))
		s.SetProperty("kind", *text(kindDescription))
		embedded(s)
	}
	s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
		"group": r.gvk.Group, "version": r.gvk.Version, "kind": r.gvk.Kind,
	}})
	return s
}

// declared is the schema as the CRD has it: defaults as they were written, int-or-string spelled out.
func (r *rules) declared() *structuralschema.Structural {
	props, err := r.internalSchema()
	if err != nil || props == nil {
		return nil
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil
	}
	return s.Unfold()
}

// embedded gives type and metadata to the embedded resources in a schema.
func embedded(s *spec.Schema) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		embedded(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		embedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		embedded(s.AdditionalProperties.Schema)
	}
	if is, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !ok || !is {
		return
	}
	s.SetProperty("apiVersion", *text(embeddedAPIVersionDescription))
	s.SetProperty("kind", *text(embeddedKindDescription))
	s.SetProperty("metadata", *metaRef())
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

func metaRef() *spec.Schema {
	return spec.RefSchema("#/components/schemas/" + metaName).WithDescription(metaDescription)
}

func text(description string) *spec.Schema {
	return spec.StringProperty().WithDescription(description)
}
