package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/crd"
)

const (
	schemaRef = "#/components/schemas/"

	// The kind whose published paths are the model of a declared kind's: it has status and scale.
	modelGroup, modelVersion, modelKind, modelPlural = "apps", "v1", "Deployment", "deployments"
	modelSchema                                      = "io.k8s.api.apps.v1.Deployment"

	listMetaDescription = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// model is the published document that lends its paths and shared schemas.
type model struct {
	paths   map[string]any
	schemas map[string]any
}

func (o *OpenAPI) loadModel() (*model, error) {
	if o.model != nil {
		return o.model, nil
	}
	b, ok := o.published(modelGroup, modelVersion)
	if !ok {
		return nil, fmt.Errorf("no document of %s/%s is published", modelGroup, modelVersion)
	}
	var doc struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("published document of %s/%s: %w", modelGroup, modelVersion, err)
	}
	o.model = &model{paths: doc.Paths, schemas: doc.Components.Schemas}
	return o.model, nil
}

// build makes the document of a group version of declared kinds.
func (o *OpenAPI) build(gv schema.GroupVersion, kinds []*resource.Kind) ([]byte, error) {
	m, err := o.loadModel()
	if err != nil {
		return nil, err
	}
	paths, schemas := map[string]any{}, map[string]any{}
	for _, k := range kinds {
		v := k.Version(gv.Version)
		if v == nil || v.Schema == nil {
			continue
		}
		s, err := tree(v.Schema())
		if err != nil {
			return nil, err
		}
		name := crd.SchemaName(gv.Group, gv.Version, k.Kind)
		schemas[name] = s
		schemas[crd.SchemaName(gv.Group, gv.Version, k.ListKind)] = m.listSchema(k, gv, name)
		if err := m.addPaths(paths, k, v, gv); err != nil {
			return nil, err
		}
	}
	m.addReferred(schemas, paths)
	m.addReferred(schemas, schemas)
	return json.Marshal(map[string]any{
		"openapi":    "3.0.0",
		"info":       map[string]any{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	})
}

// tree is a value as JSON has it, with every described reference in the form that OpenAPI 3.0 allows.
func tree(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	err = json.Unmarshal(b, &out)
	return wrapRefs(out), err
}

func wrapRefs(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = wrapRefs(v[i])
		}
	case map[string]any:
		for name, f := range v {
			v[name] = wrapRefs(f)
		}
		if ref, ok := v["$ref"].(string); ok && len(v) > 1 {
			delete(v, "$ref")
			v["allOf"] = []any{map[string]any{"$ref": ref}}
		}
	}
	return v
}

func (m *model) listSchema(k *resource.Kind, gv schema.GroupVersion, item string) any {
	properties := map[string]any{
		"items": map[string]any{
			"type":        "array",
			"items":       map[string]any{"$ref": schemaRef + item},
			"description": fmt.Sprintf("List of %s. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", k.Plural),
		},
		"metadata": map[string]any{
			"allOf":       []any{map[string]any{"$ref": schemaRef + "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}},
			"description": listMetaDescription,
		},
	}
	if of, ok := m.schemas[modelSchema].(map[string]any); ok {
		if p, ok := of["properties"].(map[string]any); ok {
			properties["apiVersion"], properties["kind"] = p["apiVersion"], p["kind"]
		}
	}
	return map[string]any{
		"type":        "object",
		"description": fmt.Sprintf("%s is a list of %s", k.ListKind, k.Kind),
		"required":    []any{"items"},
		"properties":  properties,
		"x-kubernetes-group-version-kind": []any{
			map[string]any{"group": gv.Group, "version": gv.Version, "kind": k.ListKind},
		},
	}
}

// addPaths adds the paths of a kind: the model's, with other names.
func (m *model) addPaths(paths map[string]any, k *resource.Kind, v *resource.Version, gv schema.GroupVersion) error {
	const all = "/apis/" + modelGroup + "/" + modelVersion + "/"
	const one = all + "namespaces/{namespace}/" + modelPlural
	from := "/apis/" + gv.String() + "/"
	root := from + k.Plural
	if k.Namespaced {
		root = from + "namespaces/{namespace}/" + k.Plural
	}
	wanted := map[string]string{one: root, one + "/{name}": root + "/{name}"}
	if k.Namespaced {
		wanted[all+modelPlural] = from + k.Plural
	}
	for _, sub := range [...]string{"status", "scale"} {
		if k.Subresource(v, sub) != nil {
			wanted[one+"/{name}/"+sub] = root + "/{name}/" + sub
		}
	}
	r := renamer{kind: k, gv: gv, names: strings.NewReplacer(
		schemaRef+modelSchema+"List", schemaRef+crd.SchemaName(gv.Group, gv.Version, k.ListKind),
		schemaRef+modelSchema, schemaRef+crd.SchemaName(gv.Group, gv.Version, k.Kind),
	)}
	for path, to := range wanted {
		p, ok := m.paths[path]
		if !ok {
			return errors.New("the published document has no " + path)
		}
		paths[to] = r.rename(p)
	}
	return nil
}

// renamer copies a part of the model's document for another kind.
type renamer struct {
	kind  *resource.Kind
	gv    schema.GroupVersion
	names *strings.Replacer
}

func (r *renamer) rename(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			if p, ok := e.(map[string]any); ok && p["name"] == "namespace" && p["in"] == "path" && !r.kind.Namespaced {
				continue
			}
			out = append(out, r.rename(e))
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, f := range v {
			switch name {
			case "application/json", "application/yaml", "*/*":
			default:
				if strings.HasPrefix(name, "application/") && !slices.Contains(customPatches, name) {
					continue
				}
			}
			out[name] = r.rename(f)
		}
		if v["group"] == modelGroup && v["kind"] == modelKind {
			out["group"], out["version"], out["kind"] = r.gv.Group, r.gv.Version, r.kind.Kind
		}
		for _, text := range [...]string{"operationId", "description"} {
			if s, ok := v[text].(string); ok {
				out[text] = r.text(text, s)
			}
		}
		if _, ok := v["tags"]; ok {
			out["tags"] = []any{lowerFirst(camel(r.gv.Group)) + "_" + r.gv.Version}
		}
		return out
	case string:
		return r.names.Replace(v)
	}
	return v
}

var customPatches = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}

func (r *renamer) text(field, s string) string {
	if field == "description" {
		return strings.ReplaceAll(s, modelKind, r.kind.Kind)
	}
	s = strings.Replace(s, "AppsV1", camel(r.gv.Group)+camel(r.gv.Version), 1)
	if !r.kind.Namespaced {
		s = strings.Replace(s, "Namespaced", "", 1)
	}
	return strings.Replace(s, modelKind, r.kind.Kind, 1)
}

// camel is the form that a group has in operation ids: conf.example.com is ConfExampleCom.
func camel(s string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// addReferred adds the shared schemas that something in v refers to, and those they refer to.
func (m *model) addReferred(schemas map[string]any, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			m.addReferred(schemas, e)
		}
	case map[string]any:
		for name, f := range v {
			if ref, ok := f.(string); ok && name == "$ref" {
				name := strings.TrimPrefix(ref, schemaRef)
				if s, known := m.schemas[name]; known && schemas[name] == nil {
					schemas[name] = s
					m.addReferred(schemas, s)
				}
				continue
			}
			m.addReferred(schemas, f)
		}
	}
}
