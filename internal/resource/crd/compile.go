// Package crd makes a served Kind of a CustomResourceDefinition.
//
// Compile only reads names and versions, so that a registry can call it on the way of a write. What is
// expensive is made once, when it is first asked for: a version's structural schema, its validators and
// CEL programs (rules), the type converter of all versions and the field managers on it. Everything is
// immutable afterwards and shared.
//
// A request's body is decoded strictly, metadata is coerced, unknown fields are pruned, nulls dropped and
// defaults filled in; the strategy keeps status and spec apart, counts generations and validates with
// ratcheting; all of it as apiextensions-apiserver does, on the same libraries.
package crd

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

// definition is one CRD, shared by all that is made of it.
type definition struct {
	crd        *apiextensionsv1.CustomResourceDefinition
	gk         schema.GroupKind
	namespaced bool
	versions   map[string]*rules // by name; also those that aren't served: objects may lie in them
	stored     string

	types func() (managedfields.TypeConverter, error)
}

// Compile makes the Kind that an established CRD declares, or of the spec that was kept when that became one that
// can't be served (Keep). It uses the names in its status. Errors mean that the CRD can't be served as it is; a
// schema that can't be compiled shows only when it is used, or by Check.
func Compile(crd *apiextensionsv1.CustomResourceDefinition) (*resource.Kind, error) {
	crd, err := served(crd)
	if err != nil {
		return nil, err
	}
	_, k, err := define(crd)
	return k, err
}

func define(crd *apiextensionsv1.CustomResourceDefinition) (*definition, *resource.Kind, error) {
	names := crd.Status.AcceptedNames
	for field, name := range map[string]string{
		"plural": names.Plural, "singular": names.Singular, "kind": names.Kind, "listKind": names.ListKind,
	} {
		if name == "" {
			return nil, nil, fmt.Errorf("status.acceptedNames.%s is empty", field)
		}
	}
	if err := convertible(&crd.Spec); err != nil {
		return nil, nil, err
	}
	d := &definition{
		crd:        crd,
		gk:         schema.GroupKind{Group: crd.Spec.Group, Kind: names.Kind},
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		versions:   map[string]*rules{},
	}
	d.types = sync.OnceValues(d.typeConverter)
	k := &resource.Kind{
		GroupKind:    d.gk,
		Plural:       names.Plural,
		Singular:     names.Singular,
		ListKind:     names.ListKind,
		ShortNames:   names.ShortNames,
		Categories:   names.Categories,
		Namespaced:   d.namespaced,
		Custom:       true,
		Verbs:        []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		Strategy:     &strategy{d},
		Subresources: map[string]*resource.Subresource{},
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		r := newRules(d, v)
		d.versions[v.Name] = r
		rv := d.version(r)
		if v.Storage {
			d.stored = v.Name
			k.Stored = rv
		}
		if !v.Served {
			k.Unserved = append(k.Unserved, v.Name)
			continue
		}
		k.Versions = append(k.Versions, rv)
		d.subresources(k, v)
	}
	if k.Stored == nil {
		return nil, nil, errors.New("no version is the storage version")
	}
	sort.SliceStable(k.Versions, func(i, j int) bool {
		return version.CompareKubeAwareVersionStrings(k.Versions[i].Name, k.Versions[j].Name) > 0
	})
	return d, k, nil
}

// version puts together what is served for one version.
func (d *definition) version(r *rules) *resource.Version {
	v := r.spec
	rv := &resource.Version{
		Name:         v.Name,
		GVK:          r.gvk,
		Served:       v.Served,
		Deprecated:   v.Deprecated,
		Codec:        &codec{r},
		Fields:       selectors(d, v),
		Columns:      newColumns(v),
		Schema:       sync.OnceValue(r.published),
		FieldManager: r.fieldManagers(),
		ResetFields: func(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
			return fieldpath.NewExcludeFilterSetMap(r.resetFields(subresource))
		},
	}
	if v.Deprecated {
		rv.DeprecationNotice = deprecation(d.crd, v)
	}
	return rv
}

// subresources adds what a served version has to the kind.
func (d *definition) subresources(k *resource.Kind, v *apiextensionsv1.CustomResourceDefinitionVersion) {
	if v.Subresources == nil {
		return
	}
	add := func(name string, s resource.Subresource) {
		if k.Subresources[name] == nil {
			s.Verbs = []string{"get", "patch", "update"}
			k.Subresources[name] = &s
		}
		k.Subresources[name].Versions = append(k.Subresources[name].Versions, v.Name)
	}
	if v.Subresources.Status != nil {
		add("status", resource.Subresource{Strategy: &statusStrategy{strategy{d}}})
	}
	if v.Subresources.Scale != nil {
		add("scale", resource.Subresource{
			Body:    autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
			Project: &scale{def: d, scales: resource.NewScales()},
		})
	}
}

// deprecation is the text of the Warning header.
func deprecation(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	msg := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	best := ""
	for _, other := range crd.Spec.Versions {
		if other.Served && !other.Deprecated &&
			version.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 &&
			(best == "" || version.CompareKubeAwareVersionStrings(other.Name, best) > 0) {
			best = other.Name
		}
	}
	if best == "" {
		return msg
	}
	return msg + fmt.Sprintf("; use %s/%s %s", crd.Spec.Group, best, crd.Spec.Names.Kind)
}

// path takes a simple JSON path such as .spec.replicas apart.
func path(p string) []string { return strings.Split(strings.TrimPrefix(p, "."), ".") }
