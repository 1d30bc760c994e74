// Package resourcetest drives kinds in memory the way the verbs do, for tests of their rules: decode, field
// manager, strategy, store, read back. It keeps one object and knows nothing of revisions, admission or
// conflicts.
package resourcetest

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/resource"
)

// Object is one object of a kind and its present stored value.
type Object struct {
	Kind     *resource.Kind
	Version  *resource.Version
	Stored   []byte
	Warnings []string

	revision uint64
}

// Namespace is where namespaced test objects live.
const Namespace = "default"

// Create makes an object from YAML or JSON through the kind's preferred version.
func Create(kind *resource.Kind, body string) (*Object, error) {
	return CreateIn(kind, kind.Versions[0], body, resource.DecodeOptions{})
}

// CreateIn makes an object through a version.
func CreateIn(kind *resource.Kind, v *resource.Version, body string, opts resource.DecodeOptions) (*Object, error) {
	o := &Object{Kind: kind, Version: v}
	if opts.MediaType == "" {
		opts.MediaType = "application/json"
		data, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			return nil, err
		}
		body = string(data)
	}
	obj, warnings, err := v.Codec.Decode([]byte(body), opts)
	if err != nil {
		return nil, err
	}
	o.Warnings = warnings
	rest.WipeObjectMetaSystemFields(obj)
	if kind.Namespaced {
		obj.SetNamespace(Namespace)
	}
	manager, err := v.FieldManager("")
	if err != nil {
		return nil, err
	}
	obj = manager.UpdateNoErrors(v.Codec.New(), obj, "test").(resource.Object)
	rest.FillObjectMetaSystemFields(obj)
	if err := rest.BeforeCreate(kind.Strategy, o.context(), obj); err != nil {
		return nil, err
	}
	return o, o.store(obj)
}

// Update replaces the object, or through a status-like subresource a part of it.
func (o *Object) Update(body, subresource string) error {
	data, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		return err
	}
	obj, warnings, err := o.Version.Codec.Decode(data, resource.DecodeOptions{MediaType: "application/json"})
	if err != nil {
		return err
	}
	o.Warnings = warnings
	old, err := o.Hub()
	if err != nil {
		return err
	}
	manager, err := o.Version.FieldManager(subresource)
	if err != nil {
		return err
	}
	obj = manager.UpdateNoErrors(old, obj, "test").(resource.Object)
	return o.put(obj, old, subresource)
}

// Change replaces the object by itself with a change.
func (o *Object) Change(subresource string, change func(map[string]any)) error {
	var content map[string]any
	if err := utiljson.Unmarshal(o.JSON(), &content); err != nil {
		return err
	}
	change(content)
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return o.Update(string(data), subresource)
}

// Apply is server-side apply.
func (o *Object) Apply(body, subresource, owner string, force bool) error {
	old, err := o.Hub()
	if err != nil {
		return err
	}
	patch := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(body), &patch.Object); err != nil {
		return err
	}
	manager, err := o.Version.FieldManager(subresource)
	if err != nil {
		return err
	}
	obj, err := manager.Apply(old, patch, owner, force)
	if err != nil {
		return err
	}
	if err := o.Version.Codec.Default(obj.(resource.Object)); err != nil {
		return err
	}
	return o.put(obj.(resource.Object), old, subresource)
}

// Scale writes the scale subresource.
func (o *Object) Scale(replicas int32) error {
	old, err := o.Hub()
	if err != nil {
		return err
	}
	sub := o.Kind.Subresource(o.Version, "scale")
	if sub == nil {
		return errors.New("no scale subresource")
	}
	before, err := sub.Project.Base(o.Version, old)
	if err != nil {
		return err
	}
	body, _, err := sub.Project.Decode([]byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":`+
		strconv.Itoa(int(replicas))+`}}`), resource.DecodeOptions{})
	if err != nil {
		return err
	}
	manager, err := o.Version.FieldManager("scale")
	if err != nil {
		return err
	}
	body = manager.UpdateNoErrors(before, body, "scaler").(resource.Object)
	obj, err := sub.Project.Put(o.context(), o.Version, old, body)
	if err != nil {
		return err
	}
	return o.put(obj, old, "")
}

func (o *Object) put(obj, old resource.Object, subresource string) error {
	var strategy rest.RESTUpdateStrategy = o.Kind.Strategy
	if subresource != "" {
		strategy = o.Kind.Subresource(o.Version, subresource).Strategy
	}
	obj.SetResourceVersion(old.GetResourceVersion())
	if err := rest.BeforeUpdate(strategy, o.context(), obj, old.DeepCopyObject()); err != nil {
		return err
	}
	return o.store(obj)
}

func (o *Object) store(obj resource.Object) error {
	obj.SetResourceVersion("")
	data, err := o.Kind.Stored.Codec.Encode(obj)
	if err != nil {
		return err
	}
	o.Stored = resource.EncodeValue(data, resource.MetaOf(obj))
	o.revision++
	return nil
}

// JSON is the object as the preferred version answers it.
func (o *Object) JSON() []byte {
	value, err := resource.ParseValue(o.Stored)
	if err != nil {
		panic(err)
	}
	if o.Version == o.Kind.Stored {
		return value.AppendJSON(nil, o.revision)
	}
	data, err := o.Version.Codec.Convert(value.JSON)
	if err != nil {
		panic(err)
	}
	return data
}

// Content is JSON taken apart.
func (o *Object) Content() map[string]any {
	var content map[string]any
	if err := utiljson.Unmarshal(o.JSON(), &content); err != nil {
		panic(err)
	}
	return content
}

// Generation is the object's.
func (o *Object) Generation() int64 {
	return (&unstructured.Unstructured{Object: o.Content()}).GetGeneration()
}

// Hub is the object as strategies see it.
func (o *Object) Hub() (resource.Object, error) {
	value, err := resource.ParseValue(o.Stored)
	if err != nil {
		return nil, err
	}
	obj, err := o.Version.Codec.DecodeStored(value.JSON)
	if err != nil {
		return nil, err
	}
	obj.SetResourceVersion(strconv.FormatUint(o.revision, 10))
	return obj, nil
}

// Managers are the names in managedFields.
func (o *Object) Managers() (names []string) {
	for _, m := range (&unstructured.Unstructured{Object: o.Content()}).GetManagedFields() {
		names = append(names, m.Manager)
	}
	return names
}

func (o *Object) context() context.Context {
	ctx := warning.WithWarningRecorder(context.Background(), recorder{o})
	if o.Kind.Namespaced {
		return request.WithNamespace(ctx, Namespace)
	}
	return request.WithNamespace(ctx, metav1.NamespaceNone)
}

type recorder struct{ o *Object }

func (r recorder) AddWarning(_, text string) { r.o.Warnings = append(r.o.Warnings, text) }

// MustJSON is YAML as JSON.
func MustJSON(t testing.TB, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
