package crd

import (
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// accept says yes to a JSON value that a schema allows for sure. A no means that kube-openapi's validator must
// be asked: it makes a tree of validators for every value, which takes some hundred times longer, but knows the
// messages.
//
// It never says yes where the validator finds an error; a property test holds the two side by side. Where a
// schema uses something rare or odd, that part of it is the validator's own.
type accept func(value any) bool

// compileAccept compiles a schema.
func compileAccept(s *spec.Schema) accept {
	if s == nil {
		return func(any) bool { return true }
	}
	parts, ok := acceptParts(s)
	if !ok {
		return func(value any) bool {
			return validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(value).IsValid()
		}
	}
	return parts.accept
}

// parts are what a schema asks of values of each JSON type; nil: the type isn't allowed.
type parts struct {
	null    bool
	boolean bool
	integer func(int64) bool
	number  func(float64) bool
	text    func(string) bool
	list    func([]any) bool
	object  func(map[string]any) bool

	enum  []any
	allOf []accept
	anyOf []accept
}

func (p *parts) accept(value any) bool {
	if value == nil {
		return p.null
	}
	if len(p.enum) > 0 && !slices.Contains(p.enum, scalar(value)) {
		return false
	}
	for _, each := range p.allOf {
		if !each(value) {
			return false
		}
	}
	if len(p.anyOf) > 0 && !slices.ContainsFunc(p.anyOf, func(one accept) bool { return one(value) }) {
		return false
	}
	switch v := value.(type) {
	case string:
		return p.text != nil && p.text(v)
	case int64:
		return p.integer != nil && p.integer(v)
	case float64:
		return p.number != nil && p.number(v)
	case bool:
		return p.boolean
	case []any:
		return p.list != nil && p.list(v)
	case map[string]any:
		return p.object != nil && p.object(v)
	}
	return false
}

// scalar is a value that can be compared, or nil.
func scalar(value any) any {
	switch value.(type) {
	case string, int64, bool:
		return value
	}
	return nil
}

// acceptParts is false where the validator must decide itself.
func acceptParts(s *spec.Schema) (*parts, bool) {
	if len(s.OneOf) > 0 || s.Not != nil || len(s.Dependencies) > 0 || len(s.PatternProperties) > 0 ||
		s.AdditionalItems != nil || s.UniqueItems || s.MultipleOf != nil ||
		s.AdditionalProperties != nil && !s.AdditionalProperties.Allows ||
		s.Items != nil && len(s.Items.Schemas) > 0 ||
		len(s.Type) == 0 && s.Format != "" || len(s.Type) > 1 && s.Format != "" {
		return nil, false
	}
	p := &parts{null: (len(s.Type) == 0 || s.Nullable) && len(s.Enum) == 0}
	for _, v := range s.Enum {
		if v = scalar(v); v == nil {
			return nil, false
		}
		p.enum = append(p.enum, v)
	}
	for i := range s.AllOf {
		p.allOf = append(p.allOf, compileAccept(&s.AllOf[i]))
	}
	for i := range s.AnyOf {
		p.anyOf = append(p.anyOf, compileAccept(&s.AnyOf[i]))
	}
	types := s.Type
	if len(types) == 0 {
		types = spec.StringOrArray{"boolean", "integer", "number", "string", "array", "object"}
	}
	for _, name := range types {
		if !p.add(s, name) {
			return nil, false
		}
	}
	return p, true
}

// add allows a type.
func (p *parts) add(s *spec.Schema, name string) (ok bool) {
	switch name {
	case "boolean":
		p.boolean, ok = true, s.Format == ""
	case "integer":
		p.integer, ok = acceptInteger(s)
	case "number":
		if p.integer == nil {
			p.integer, _ = acceptInteger(s) // an integer is a number too
		}
		p.number, ok = acceptNumber(s)
	case "string":
		p.text, ok = acceptText(s)
	case "array":
		p.list, ok = acceptList(s), s.Format == ""
	case "object":
		p.object, ok = acceptObject(s), s.Format == ""
	}
	return ok
}

// exact bounds the limits for which the validator's conversions between int64 and float64 lose nothing.
const exact = 1 << 53

func limit(f *float64) (n int64, set, ok bool) {
	if f == nil {
		return 0, false, true
	}
	return int64(*f), true, *f == math.Trunc(*f) && math.Abs(*f) < exact
}

func acceptInteger(s *spec.Schema) (func(int64) bool, bool) {
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	switch s.Format {
	case "", "int64", "double":
	case "int32":
		least, most = math.MinInt32, math.MaxInt32
	default:
		return nil, false
	}
	if n, set, ok := limit(s.Minimum); !ok {
		return nil, false
	} else if set {
		if s.ExclusiveMinimum {
			n++
		}
		least = max(least, n)
	}
	if n, set, ok := limit(s.Maximum); !ok {
		return nil, false
	} else if set {
		if s.ExclusiveMaximum {
			n--
		}
		most = min(most, n)
	}
	return func(v int64) bool { return least <= v && v <= most }, true
}

func acceptNumber(s *spec.Schema) (func(float64) bool, bool) {
	if _, _, ok := limit(s.Minimum); !ok {
		return nil, false
	}
	if _, _, ok := limit(s.Maximum); !ok {
		return nil, false
	}
	if s.Format != "" && s.Format != "double" {
		return nil, false
	}
	least, most := math.Inf(-1), math.Inf(1)
	if s.Minimum != nil {
		least = *s.Minimum
	}
	if s.Maximum != nil {
		most = *s.Maximum
	}
	above, below := s.ExclusiveMinimum && s.Minimum != nil, s.ExclusiveMaximum && s.Maximum != nil
	return func(v float64) bool {
		return least <= v && v <= most && !(above && v == least) && !(below && v == most)
	}, true
}

func acceptText(s *spec.Schema) (func(string) bool, bool) {
	var pattern *regexp.Regexp
	if s.Pattern != "" {
		var err error
		if pattern, err = regexp.Compile(s.Pattern); err != nil {
			return nil, false
		}
	}
	format := ""
	if s.Format != "" && strfmt.Default.ContainsName(s.Format) {
		format = s.Format
	}
	least, most := s.MinLength, s.MaxLength
	return func(v string) bool {
		if least != nil || most != nil {
			n := int64(utf8.RuneCountInString(v))
			if least != nil && n < *least || most != nil && n > *most {
				return false
			}
		}
		return (pattern == nil || pattern.MatchString(v)) && (format == "" || strfmt.Default.Validates(format, v))
	}, true
}

func acceptList(s *spec.Schema) func([]any) bool {
	var item accept
	if s.Items != nil && s.Items.Schema != nil {
		item = compileAccept(s.Items.Schema)
	}
	least, most := s.MinItems, s.MaxItems
	return func(v []any) bool {
		n := int64(len(v))
		if least != nil && n < *least || most != nil && n > *most {
			return false
		}
		if item == nil {
			return true
		}
		for _, value := range v {
			if !item(value) {
				return false
			}
		}
		return true
	}
}

func acceptObject(s *spec.Schema) func(map[string]any) bool {
	properties := make(map[string]accept, len(s.Properties))
	for name, p := range s.Properties {
		properties[name] = compileAccept(&p)
	}
	var others accept
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		others = compileAccept(s.AdditionalProperties.Schema)
	}
	required := s.Required
	least, most := s.MinProperties, s.MaxProperties
	return func(v map[string]any) bool {
		n := int64(len(v))
		if least != nil && n < *least || most != nil && n > *most {
			return false
		}
		for _, name := range required {
			if _, ok := v[name]; !ok {
				return false
			}
		}
		for name, value := range v {
			p, ok := properties[name]
			if !ok {
				p = others
			}
			if p != nil && !p(value) {
				return false
			}
		}
		return true
	}
}

// validator is a schema's validator with the quick yes before it.
type validator struct {
	yes    accept
	no     validation.SchemaValidator
	schema *spec.Schema
}

var _ validation.SchemaValidator = (*validator)(nil)

func newValidator(props *apiextensions.JSONSchemaProps) (validation.SchemaValidator, error) {
	no, schema, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &validator{yes: compileAccept(schema), no: no, schema: schema}, nil
}

func (v *validator) Validate(value any, options ...validation.ValidationOption) *validate.Result {
	if v.yes(value) {
		return &validate.Result{}
	}
	if err := checkEffort(value, v.schema); err != nil {
		return &validate.Result{Errors: []error{err}}
	}
	return v.no.Validate(value, options...)
}

// ValidateUpdate finds no error in what is allowed whatever was there before: ratcheting only forgives.
func (v *validator) ValidateUpdate(value, old any, options ...validation.ValidationOption) *validate.Result {
	if v.yes(value) {
		return &validate.Result{}
	}
	if err := checkEffort(value, v.schema); err != nil {
		if onlyMetadata(value, old) {
			return &validate.Result{} // what was stored before may lose its finalizers
		}
		return &validate.Result{Errors: []error{err}}
	}
	return v.no.ValidateUpdate(value, old, options...)
}
