package watchcache

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// matcher is the selection of a list or watch, checked and taken apart.
type matcher struct {
	kind      *resource.Kind
	version   *resource.Version
	born      storage.Rev // of the kind
	namespace string      // "" is any
	name      string      // "" is any
	label     labels.Selector
	field     fields.Selector
	values    bool // field names more than name and namespace
	selects   bool // there is a label or field selector
	never     bool // nothing can match
}

// newMatcher checks the selectors of opts. Errors are 400s.
func newMatcher(k *resource.Kind, opts *ListOptions) (*matcher, error) {
	m := &matcher{kind: k, version: opts.Version, label: opts.Label, field: opts.Field}
	if m.version == nil {
		m.version = k.Versions[0]
	}
	if k.Namespaced {
		m.namespace = opts.Namespace
	}
	if m.label != nil && m.label.Empty() {
		m.label = nil
	}
	if m.field != nil && m.field.Empty() {
		m.field = nil
	}
	m.selects = m.label != nil || m.field != nil
	if m.field == nil {
		return m, nil
	}
	field, err := m.field.Transform(m.convert)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m.field = field
	for _, r := range field.Requirements() {
		if r.Field != fieldName && r.Field != fieldNamespace {
			m.values = true
		}
	}
	if name, ok := field.RequiresExactMatch(fieldName); ok {
		m.name = name
		m.never = m.never || strings.Contains(name, "/") || name == ""
	}
	if ns, ok := field.RequiresExactMatch(fieldNamespace); ok {
		switch {
		case !k.Namespaced:
			m.never = m.never || ns != ""
		case m.namespace == "":
			m.namespace = ns
			m.never = m.never || strings.Contains(ns, "/") || ns == ""
		default:
			m.never = m.never || ns != m.namespace
		}
	}
	return m, nil
}

// convert checks one requirement of a field selector.
func (m *matcher) convert(label, value string) (string, string, error) {
	if label == fieldName || label == fieldNamespace {
		return label, value, nil
	}
	if m.version.Fields.Convert != nil {
		return m.version.Fields.Convert(label, value)
	}
	for _, n := range m.version.Fields.Names {
		if n == label {
			return label, value, nil
		}
	}
	if m.kind.Custom {
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, fieldName, fieldNamespace)
}

// prefix is the range of keys in which everything that matches lies.
func (m *matcher) prefix() string { return resource.Prefix(m.kind, m.namespace) }

// key is the only key that can match, if there is only one.
func (m *matcher) key() (string, bool) {
	if m.name == "" || (m.kind.Namespaced && m.namespace == "") {
		return "", false
	}
	return resource.Key(m.kind, m.namespace, m.name), true
}

// matches tells whether an object is selected.
func (m *matcher) matches(o *Object) (bool, error) {
	if m.never {
		return false, nil
	}
	if m.namespace != "" && o.Namespace() != m.namespace {
		return false, nil
	}
	if m.name != "" && o.Name() != m.name {
		return false, nil
	}
	if m.label != nil && !m.label.Matches(labels.Set(o.Meta().Labels)) {
		return false, nil
	}
	if m.field == nil {
		return true, nil
	}
	set := objectFields{object: o}
	if m.values {
		values, err := o.Fields(m.version)
		if err != nil {
			return false, err
		}
		set.values = values
	}
	return m.field.Matches(set), nil
}

// objectFields are an object's fields for a selector.
type objectFields struct {
	object *Object
	values fields.Set
}

func (f objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace || f.values.Has(field)
}

func (f objectFields) Get(field string) string {
	switch field {
	case fieldName:
		return f.object.Name()
	case fieldNamespace:
		return f.object.Namespace()
	}
	return f.values.Get(field)
}
