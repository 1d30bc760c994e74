package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// part is what a group version puts into the v2 document, as JSON by path and by name.
type part struct{ paths, definitions map[string]json.RawMessage }

// V2 is the OpenAPI v2 document of everything that is served, for clients from before v3.
func (o *OpenAPI) V2(ctx context.Context) (*Document, error) {
	leave, err := o.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return o.makeV2(ctx)
}

func (o *OpenAPI) makeV2(ctx context.Context) (*Document, error) {
	if o.v2 != nil {
		return o.v2, nil
	}
	all := part{map[string]json.RawMessage{}, map[string]json.RawMessage{}}
	for gv, g := range o.groups {
		if err := ctx.Err(); err != nil {
			return nil, err // what is made so far is kept
		}
		p, err := o.partV2(gv, g)
		if err != nil {
			return nil, err
		}
		maps.Copy(all.paths, p.paths)
		for name, s := range p.definitions {
			if all.definitions[name] == nil {
				all.definitions[name] = s
			}
		}
	}
	b := appendObject([]byte(`{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1.37.2"},"paths":`), all.paths)
	b = appendObject(append(b, `,"definitions":`...), all.definitions)
	o.v2 = newDocument(append(b, '}'))
	return o.v2, nil
}

// appendObject appends a JSON object. Its fields are valid JSON and aren't looked at again.
func appendObject(dst []byte, fields map[string]json.RawMessage) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendQuote(dst, name) // names of paths and types: JSON quotes them as Go does
		dst = append(append(dst, ':'), fields[name]...)
	}
	return append(dst, '}')
}

// V2Protobuf is V2 as clients before 1.27 ask for it.
func (o *OpenAPI) V2Protobuf(ctx context.Context) (body []byte, etag string, err error) {
	leave, err := o.enter(ctx)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	doc, err := o.makeV2(ctx)
	if err != nil {
		return nil, "", err
	}
	if o.v2Protobuf != nil && o.v2Protobuf.ETag == doc.ETag {
		return o.v2Protobuf.JSON, doc.ETag, nil
	}
	parsed, err := openapiv2.ParseDocument(doc.JSON)
	if err != nil {
		return nil, "", fmt.Errorf("openapi: v2 in protobuf: %w", err)
	}
	b, err := proto.Marshal(parsed)
	if err != nil {
		return nil, "", fmt.Errorf("openapi: v2 in protobuf: %w", err)
	}
	o.v2Protobuf = &Document{JSON: b, ETag: doc.ETag}
	return b, doc.ETag, nil
}

// partV2 takes the v3 document of a group version over into v2, once. The schemas that declared kinds' documents
// share are converted once for all of them.
func (o *OpenAPI) partV2(gv schema.GroupVersion, g *group) (*part, error) {
	if g.v2 != nil {
		return g.v2, nil
	}
	doc, err := o.document(gv)
	if err != nil {
		return nil, err
	}
	p := &part{map[string]json.RawMessage{}, map[string]json.RawMessage{}}
	if doc == nil {
		return p, nil
	}
	var v3 struct {
		Paths      map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(doc.JSON, &v3); err != nil {
		return nil, fmt.Errorf("openapi: document of %s: %w", gv, err)
	}
	for name, raw := range v3.Components.Schemas {
		if len(g.custom) > 0 && o.shared[name] != nil {
			p.definitions[name] = o.shared[name]
			continue
		}
		var s any
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("openapi: %s of %s: %w", name, gv, err)
		}
		b, err := json.Marshal(schemaV2(s))
		if err != nil {
			return nil, fmt.Errorf("openapi: %s of %s: %w", name, gv, err)
		}
		p.definitions[name] = b
		if len(g.custom) > 0 && o.model != nil && o.model.schemas[name] != nil {
			if o.shared == nil {
				o.shared = map[string]json.RawMessage{}
			}
			o.shared[name] = b
		}
	}
	for path, item := range v3.Paths {
		out := map[string]any{}
		for method, op := range item {
			if method == "parameters" {
				out[method] = parametersV2(op)
			} else if op, ok := op.(map[string]any); ok {
				out[method] = operationV2(op)
			}
		}
		b, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("openapi: %s of %s: %w", path, gv, err)
		}
		p.paths[path] = b
	}
	g.v2 = p
	return p, nil
}

func operationV2(op map[string]any) map[string]any {
	out := map[string]any{"schemes": []any{"https"}}
	for name, f := range op {
		switch name {
		case "parameters", "requestBody", "responses":
		default:
			out[name] = f
		}
	}
	parameters := parametersV2(op["parameters"])
	consumes := []any{"*/*"}
	if body, ok := op["requestBody"].(map[string]any); ok {
		content, _ := body["content"].(map[string]any)
		types, s := contentV2(content)
		consumes = types
		p := map[string]any{"name": "body", "in": "body", "schema": s}
		if body["required"] == true {
			p["required"] = true
		}
		parameters = append(parameters, p)
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	responses := map[string]any{}
	var produces []any
	v3, _ := op["responses"].(map[string]any)
	for code, r := range v3 {
		r, _ := r.(map[string]any)
		answer := map[string]any{"description": r["description"]}
		if content, ok := r["content"].(map[string]any); ok {
			types, s := contentV2(content)
			answer["schema"] = s
			if len(types) > len(produces) {
				produces = types
			}
		}
		responses[code] = answer
	}
	if produces == nil {
		produces = []any{"application/json"}
	}
	out["consumes"], out["produces"], out["responses"] = consumes, produces, responses
	return out
}

// contentV2 is the media types of a v3 content, and its schema, which is the same for all of them.
func contentV2(content map[string]any) (types []any, s any) {
	for _, media := range slices.Sorted(maps.Keys(content)) {
		types = append(types, media)
		if c, ok := content[media].(map[string]any); ok && s == nil {
			s = schemaV2(c["schema"])
		}
	}
	return types, s
}

func parametersV2(v any) []any {
	list, _ := v.([]any)
	out := make([]any, 0, len(list))
	for _, p := range list {
		p, ok := p.(map[string]any)
		if !ok {
			continue
		}
		q := map[string]any{}
		for name, f := range p {
			if name != "schema" {
				q[name] = f
			}
		}
		if s, ok := p["schema"].(map[string]any); ok {
			for name, f := range s {
				q[name] = f
			}
		}
		out = append(out, q)
	}
	return out
}

// schemaV2 copies a schema without what v2 can't say, and without what makes old clients refuse objects: the
// parts of a value that may be null or hold unknown fields.
func schemaV2(v any) any {
	in, ok := v.(map[string]any)
	if !ok {
		return v // additionalProperties: true
	}
	nullable := in["nullable"] == true
	loose := nullable || in["x-kubernetes-preserve-unknown-fields"] == true
	out := make(map[string]any, len(in))
	for name, f := range in {
		switch name {
		case "oneOf", "anyOf", "not", "nullable":
		case "allOf":
			if ref := onlyRef(f); ref != "" {
				out["$ref"] = refV2(ref)
			}
		case "$ref":
			if ref, ok := f.(string); ok {
				out[name] = refV2(ref)
			}
		case "default":
			if in["allOf"] == nil {
				out[name] = f
			}
		case "properties":
			if !loose {
				out[name] = propertiesV2(f)
			}
		case "items", "additionalProperties":
			if !loose {
				out[name] = schemaV2(f)
			}
		case "type":
			if !nullable && !(loose && (f == "array" || f == "object")) {
				out[name] = f
			}
		default:
			out[name] = f
		}
	}
	return out
}

func propertiesV2(v any) any {
	in, _ := v.(map[string]any)
	out := make(map[string]any, len(in))
	for name, p := range in {
		out[name] = schemaV2(p)
	}
	return out
}

func onlyRef(v any) string {
	list, _ := v.([]any)
	if len(list) != 1 {
		return ""
	}
	s, _ := list[0].(map[string]any)
	ref, _ := s["$ref"].(string)
	return ref
}

func refV2(ref string) string { return strings.Replace(ref, schemaRef, "#/definitions/", 1) }
