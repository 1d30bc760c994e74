package rest

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// applyOnto carries out a server-side apply on an object that is there.
func (p *patcher) applyOnto(old resource.Object, stored *watchcache.Object) (resource.Object, error) {
	before, err := stored.JSON(p.Version)
	if err != nil {
		return nil, err
	}
	return p.apply(old.DeepCopyObject().(resource.Object), before)
}

// apply carries out a server-side apply on live, which may be empty; before is its JSON, if that may be large.
// Conflicts are 409s with causes.
func (p *patcher) apply(live resource.Object, before []byte) (resource.Object, error) {
	applied, problems, err := p.applied()
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	manager, err := p.Version.FieldManager(p.Subresource)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("no ownership of fields for %s: %w", p.resource(), err))
	}
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.checkSets(&unstructured.Unstructured{Object: applied}); err != nil {
		return nil, err
	}
	if err := checkOwned(applied, before); err != nil {
		return nil, err
	}
	obj, err := manager.Apply(live, &unstructured.Unstructured{Object: applied}, p.manager, p.force)
	if err != nil {
		if _, ok := err.(apierrors.APIStatus); ok {
			return nil, err
		}
		return nil, plain(err.Error())
	}
	if problems != nil {
		if p.validation == "Strict" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", problems))
		}
		p.warnings.add(yamlProblems(problems))
	}
	return object(obj)
}

// applied reads the patch. JSON is YAML, but reading it as YAML takes many times as long, so that is left to
// what isn't plain JSON: there the YAML reader's own errors, and its idea of numbers, are right.
func (p *patcher) applied() (applied map[string]any, problems error, err error) {
	if text := strings.TrimLeft(string(p.patch[:min(len(p.patch), 64)]), " \t\r\n"); strings.HasPrefix(text, "{") {
		strict, err := kjson.UnmarshalStrict(p.patch, &applied)
		if err == nil && len(strict) == 0 && !hasFloats(applied) {
			return applied, nil, nil
		}
		applied = nil
	}
	applied = map[string]any{}
	if err := yaml.Unmarshal(p.patch, &applied); err != nil {
		return nil, nil, err
	}
	if p.decoding("").Strict() {
		problems = yaml.UnmarshalStrict(p.patch, &map[string]any{})
	}
	return applied, problems, nil
}

func hasFloats(v any) bool {
	switch v := v.(type) {
	case float64:
		return true
	case map[string]any:
		for _, x := range v {
			if hasFloats(x) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if hasFloats(x) {
				return true
			}
		}
	}
	return false
}

// yamlProblems takes the YAML reader's list of problems apart.
func yamlProblems(err error) []string {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: yaml: unmarshal errors:\n", "yaml: unmarshal errors:\n"} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			lines := strings.Split(rest, "\n")
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			return lines
		}
	}
	return []string{text}
}
