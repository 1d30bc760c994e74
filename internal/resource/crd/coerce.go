package crd

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// coercion does to unstructured objects what decoding into Go structs does to built-in ones: metadata gets
// its types, unknown fields go, and so do nulls where the schema doesn't allow them and has no default.
type coercion struct {
	unknown bool // report the paths of unknown fields
	stored  bool // drop malformed metadata and mend the generation, as for objects of old
}

// coerce changes u in place. Objects of another kind only get their metadata checked.
func (d *definition) coerce(u *unstructured.Unstructured, c coercion) (unknown []string, err error) {
	kind, hasKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, hasVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	meta, hasMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields:     c.stored,
		ReturnUnknownFieldPaths: c.unknown,
	})
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	// What lies in a version that the CRD no longer has keeps all its fields: no schema says which to drop.
	known := d.versions[gv.Version] != nil || !c.stored
	if gv.Group == d.gk.Group && kind == d.gk.Kind && known {
		s, err := d.structural(gv.Version)
		if err != nil {
			return nil, err
		}
		if !d.crd.Spec.PreserveUnknownFields {
			unknown = append(unknown, pruning.PruneWithOptions(u.Object, s.Structural, true, structuralschema.UnknownFieldPathOptions{
				TrackUnknownFieldPaths: c.unknown,
			})...)
			defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.Structural)
		}
		if s.embeds {
			invalid, paths := objectmeta.CoerceWithOptions(nil, u.Object, s.Structural, false, objectmeta.CoerceOptions{
				DropInvalidFields:       c.stored,
				ReturnUnknownFieldPaths: c.unknown,
			})
			if invalid != nil {
				return nil, invalid
			}
			unknown = append(unknown, paths...)
		}
		if c.stored && hasMeta && meta.Generation == 0 {
			meta.Generation = 1
		}
	}
	if hasKind {
		u.SetKind(kind)
	}
	if hasVersion {
		u.SetAPIVersion(apiVersion)
	}
	if hasMeta {
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// fill puts defaults in, by the schema of the version that u names. Those that would add too much are a 413, and
// none is put in.
func (d *definition) fill(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	if gvk.GroupKind() != d.gk {
		return nil
	}
	s, err := d.structural(gvk.Version)
	if err != nil || s.Structural == nil {
		return err
	}
	if err := checkDefaults(u.Object, s.Structural); err != nil {
		return err
	}
	defaulting.Default(u.Object, s.Structural)
	return nil
}

// structural is empty for a version that isn't there.
func (d *definition) structural(version string) (*structural, error) {
	r := d.versions[version]
	if r == nil {
		return &structural{}, nil
	}
	return r.structural()
}
