package builtin

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"operatord.io/operatord/internal/resource"
)

// codec reads and writes one version of a kind. The hub is the internal type.
type codec struct {
	scheme *runtime.Scheme
	typed  *resource.Typed
	gvk    schema.GroupVersionKind
	stored schema.GroupVersionKind // what lies in the store
}

var _ resource.Codec = (*codec)(nil)

func (c *codec) hub() schema.GroupVersion {
	return schema.GroupVersion{Group: c.gvk.Group, Version: runtime.APIVersionInternal}
}

func (c *codec) New() resource.Object { return c.empty(c.gvk.GroupVersion()) }

func (c *codec) empty(gv schema.GroupVersion) resource.Object {
	obj, err := c.scheme.New(gv.WithKind(c.gvk.Kind))
	if err != nil {
		panic(fmt.Sprintf("builtin: the scheme lacks %s: %v", c.gvk, err))
	}
	return obj.(resource.Object)
}

func (c *codec) Decode(data []byte, opts resource.DecodeOptions) (resource.Object, []string, error) {
	return c.typed.Decode(data, opts, c.gvk, c.hub(), c.empty(c.hub()))
}

func (c *codec) DecodeStored(data []byte) (resource.Object, error) {
	obj, err := c.scheme.New(c.stored)
	if err != nil {
		return nil, fmt.Errorf("builtin: decode stored %s: %w", c.gvk.Kind, err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, obj); err != nil {
		return nil, fmt.Errorf("builtin: decode stored %s: %w", c.gvk.Kind, err)
	}
	c.scheme.Default(obj)
	hub := c.empty(c.hub())
	if err := c.scheme.Convert(obj, hub, nil); err != nil {
		return nil, fmt.Errorf("builtin: decode stored %s: %w", c.gvk.Kind, err)
	}
	return hub, nil
}

func (c *codec) Default(obj resource.Object) error {
	v, err := c.scheme.ConvertToVersion(obj, c.gvk.GroupVersion())
	if err != nil {
		return fmt.Errorf("builtin: default %s: %w", c.gvk.Kind, err)
	}
	c.scheme.Default(v)
	if err := c.scheme.Convert(v, obj, nil); err != nil {
		return fmt.Errorf("builtin: default %s: %w", c.gvk.Kind, err)
	}
	return nil
}

func (c *codec) Encode(obj resource.Object) ([]byte, error) {
	v, err := c.versioned(obj)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (c *codec) Convert(stored []byte) ([]byte, error) {
	if c.gvk == c.stored {
		return stored, nil
	}
	obj, err := c.DecodeStored(stored)
	if err != nil {
		return nil, err
	}
	return c.Encode(obj)
}

func (c *codec) Protobuf(obj resource.Object) ([]byte, error) {
	v, err := c.versioned(obj)
	if err != nil {
		return nil, err
	}
	return c.typed.Protobuf(v)
}

// versioned is obj in this version's type. It may share parts with obj: don't change it.
func (c *codec) versioned(obj resource.Object) (runtime.Object, error) {
	v, err := c.scheme.UnsafeConvertToVersion(obj, c.gvk.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("builtin: encode %s: %w", c.gvk.Kind, err)
	}
	v.GetObjectKind().SetGroupVersionKind(c.gvk)
	return v, nil
}
