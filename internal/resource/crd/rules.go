package crd

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// rules are what one version of a CRD says about its objects. The compiled parts are made at most once.
type rules struct {
	def  *definition
	spec *apiextensionsv1.CustomResourceDefinitionVersion
	gvk  schema.GroupVersionKind

	// structural is the schema that prunes and fills in defaults.
	structural func() (*structural, error)
	// validation holds what validates; it is needed by writes only.
	validation func() (*validators, error)
}

// structural is a schema, nil for a version without one, and what walks over it can be spared.
type structural struct {
	*structuralschema.Structural
	embeds bool // it has embedded resources
	unique bool // it has list sets or maps
}

type validators struct {
	structural *structural
	object     validation.SchemaValidator
	status     validation.SchemaValidator // nil: the schema doesn't speak of status
	cel        *cel.Validator             // nil: no rules
}

func newRules(d *definition, v *apiextensionsv1.CustomResourceDefinitionVersion) *rules {
	r := &rules{def: d, spec: v, gvk: d.gk.WithVersion(v.Name)}
	r.structural = sync.OnceValues(r.compileStructural)
	r.validation = sync.OnceValues(r.compileValidation)
	return r
}

func (r *rules) hasStatus() bool {
	return r.spec.Subresources != nil && r.spec.Subresources.Status != nil
}

// scale is nil for a version without the scale subresource.
func (r *rules) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if r.spec.Subresources == nil {
		return nil
	}
	return r.spec.Subresources.Scale
}

// internalSchema is the version's schema in the form that apiextensions' libraries take, a copy of its own.
func (r *rules) internalSchema() (*apiextensions.JSONSchemaProps, error) {
	if r.spec.Schema == nil || r.spec.Schema.OpenAPIV3Schema == nil {
		return nil, nil
	}
	var out apiextensions.CustomResourceValidation
	in := r.spec.Schema.DeepCopy()
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in, &out, nil); err != nil {
		return nil, r.unusable(err)
	}
	return out.OpenAPIV3Schema, nil
}

func (r *rules) compileStructural() (*structural, error) {
	props, err := r.internalSchema()
	if err != nil {
		return nil, err
	}
	if props == nil {
		return &structural{}, nil
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, r.unusable(err)
	}
	// NewStructural shares default values with its argument.
	s = s.DeepCopy()
	if err := defaulting.PruneDefaults(s); err != nil {
		return nil, r.unusable(err)
	}
	out := &structural{Structural: s}
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		out.embeds = out.embeds || s.XEmbeddedResource
		out.unique = out.unique || s.XListType != nil && *s.XListType != "atomic"
		return false
	}}
	visitor.Visit(s)
	return out, nil
}

func (r *rules) compileValidation() (*validators, error) {
	s, err := r.structural()
	if err != nil {
		return nil, err
	}
	props, err := r.internalSchema()
	if err != nil {
		return nil, err
	}
	v := &validators{structural: s}
	if v.object, err = newValidator(props); err != nil {
		return nil, r.unusable(err)
	}
	if props != nil && r.hasStatus() {
		if status, ok := props.Properties["status"]; ok {
			if v.status, err = newValidator(&status); err != nil {
				return nil, r.unusable(err)
			}
		}
	}
	v.cel = cel.NewValidator(s.Structural, true, celconfig.PerCallLimit)
	return v, nil
}

// unusable is the answer to every request for a version whose schema can't be compiled. Validation of
// CRDs keeps such schemas out.
func (r *rules) unusable(err error) error {
	return apierrors.NewInternalError(fmt.Errorf("the schema of %s in CustomResourceDefinition %s can't be used: %w",
		r.gvk.Version, r.def.crd.Name, err))
}
