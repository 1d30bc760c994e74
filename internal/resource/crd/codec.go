package crd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"operatord.io/operatord/internal/resource"
)

// codec reads and writes one version's objects.
type codec struct{ *rules }

var _ resource.Codec = (*codec)(nil)

func (c *codec) New() resource.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(c.gvk)
	return u
}

func (c *codec) Decode(data []byte, opts resource.DecodeOptions) (resource.Object, []string, error) {
	yaml := false
	switch opts.MediaType {
	case "", runtime.ContentTypeJSON:
	case runtime.ContentTypeYAML:
		yaml = true
	default:
		return nil, nil, resource.UnsupportedMediaType()
	}
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, creater{}, typer{},
		jsonserializer.SerializerOptions{Yaml: yaml, Strict: opts.Strict()})
	u := &unstructured.Unstructured{}
	var defaults *schema.GroupVersionKind
	if !opts.Patched {
		gvk := c.gvk
		defaults = &gvk
	}
	_, gvk, err := serializer.Decode(data, defaults, u)
	strict, isStrict := runtime.AsStrictDecodingError(err)
	if err != nil && !isStrict {
		return nil, nil, opts.Failed(c.gvk.Kind, gvk, data, err)
	}
	unknown, err := c.def.coerce(u, coercion{unknown: opts.Strict()})
	if err != nil {
		if apierrors.ReasonForError(err) != "" {
			return nil, nil, err
		}
		return nil, nil, opts.Failed(c.gvk.Kind, gvk, data, err)
	}
	if err := c.def.fill(u); err != nil {
		return nil, nil, err
	}
	var problems []error
	if isStrict {
		problems = strict.Errors()
	}
	if opts.Strict() {
		for _, field := range unknown {
			problems = append(problems, fmt.Errorf("unknown field %q", field))
		}
	}
	warnings, err := opts.Problems(c.gvk.Kind, gvk, data, problems)
	if err != nil {
		return nil, nil, err
	}
	if err := opts.CheckVersion(u.GroupVersionKind().GroupVersion(), c.gvk.GroupVersion()); err != nil {
		return nil, nil, err
	}
	return u, warnings, nil
}

func (c *codec) DecodeStored(data []byte) (resource.Object, error) {
	u, err := c.read(data)
	if err != nil {
		return nil, err
	}
	return u, nil
}

// read decodes JSON as stored and does what reading does: prune and default by the stored version's
// schema, convert, prune by this version's.
func (c *codec) read(data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("crd: decode stored %s: %w", c.gvk.Kind, err)
	}
	if _, err := c.def.coerce(u, coercion{stored: true}); err != nil {
		return nil, fmt.Errorf("crd: decode stored %s %s/%s: %w", c.gvk.Kind, u.GetNamespace(), u.GetName(), err)
	}
	if err := c.def.fill(u); err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
		// What was stored before the schema had such defaults can be read, without them.
		return nil, err
	}
	if u.GetAPIVersion() != c.gvk.GroupVersion().String() {
		if err := c.convert(u); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// convert changes u from another version into this one.
func (c *codec) convert(u *unstructured.Unstructured) error {
	u.SetGroupVersionKind(c.gvk)
	if _, err := c.def.coerce(u, coercion{}); err != nil {
		return fmt.Errorf("crd: convert %s %s/%s to %s: %w", c.gvk.Kind, u.GetNamespace(), u.GetName(), c.gvk.Version, err)
	}
	return nil
}

func (c *codec) Default(obj resource.Object) error {
	u := obj.(*unstructured.Unstructured)
	if _, err := c.def.coerce(u, coercion{}); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return c.def.fill(u)
}

// Encode writes obj in this version. Conversion None names the other version and drops what that lacks.
func (c *codec) Encode(obj resource.Object) ([]byte, error) {
	u := obj.(*unstructured.Unstructured)
	if u.GetAPIVersion() == c.gvk.GroupVersion().String() {
		return json.Marshal(u.Object)
	}
	u = u.DeepCopy()
	if err := c.convert(u); err != nil {
		return nil, err
	}
	return json.Marshal(u.Object)
}

func (c *codec) Convert(stored []byte) ([]byte, error) {
	u, err := c.read(stored)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(out, stored) {
		return stored, nil
	}
	return out, nil
}

func (c *codec) Protobuf(resource.Object) ([]byte, error) {
	return nil, errors.New("crd: custom resources have no protobuf form")
}

// typer and creater serve unstructured objects to upstream's libraries.
type typer struct{}

func (typer) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	switch {
	case gvk.Kind == "":
		return nil, false, runtime.NewMissingKindErr("object has no kind field ")
	case gvk.Version == "":
		return nil, false, runtime.NewMissingVersionErr("object has no apiVersion field")
	}
	return []schema.GroupVersionKind{gvk}, false, nil
}

func (typer) Recognizes(schema.GroupVersionKind) bool { return false }

type creater struct{}

func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk == autoscalingv1.SchemeGroupVersion.WithKind("Scale") {
		scale := &autoscalingv1.Scale{}
		scale.SetGroupVersionKind(gvk)
		return scale, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
