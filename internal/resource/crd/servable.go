package crd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"operatord.io/operatord/internal/resource"
)

// Servable is the type of a CRD's condition that says, as False, why it can't be served as it is. A CRD that can
// be served doesn't have it.
const Servable apiextensionsv1.CustomResourceDefinitionConditionType = "Servable"

// maxServedSpec bounds a kept spec when it is unpacked: more than any CRD that the API takes in.
const maxServedSpec = 16 << 20

// Unservable is why a definition can't be served although it is valid.
type Unservable struct {
	Reason string // of a condition
	err    error
}

func (u *Unservable) Error() string { return u.err.Error() }
func (u *Unservable) Unwrap() error { return u.err }

// Check tells whether a definition can be served as it is, whatever its status and annotations say. It compiles
// what Compile puts off, which takes about as long as validation did. An error is an *Unservable.
func Check(crd *apiextensionsv1.CustomResourceDefinition) (unservable *Unservable) {
	defer func() {
		if cause := recover(); cause != nil {
			unservable = &Unservable{"SchemaNotUsable", fmt.Errorf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	asked := *crd
	asked.Status.AcceptedNames = crd.Spec.Names
	d, _, err := define(&asked)
	if err == nil {
		err = d.compileAll()
	}
	if err == nil || errors.As(err, &unservable) {
		return unservable
	}
	return &Unservable{"SchemaNotUsable", err}
}

// compileAll makes everything that is otherwise made when it is first asked for.
func (d *definition) compileAll() error {
	for i := range d.crd.Spec.Versions {
		if _, err := d.versions[d.crd.Spec.Versions[i].Name].validation(); err != nil {
			return err
		}
	}
	_, err := d.types()
	return err
}

// convertible refuses conversions that can't be done. Objects would have to be served without their conversion.
func convertible(spec *apiextensionsv1.CustomResourceDefinitionSpec) error {
	if c := spec.Conversion; c != nil && c.Strategy != apiextensionsv1.NoneConverter && len(spec.Versions) > 1 {
		return &Unservable{"ConversionNotSupported", fmt.Errorf(
			"spec.conversion.strategy %s between %d versions is not supported yet: set it to None, or declare one version", c.Strategy, len(spec.Versions))}
	}
	return nil
}

// Keep writes down a spec for resource.ServedSpecAnnotation: what goes on being served while the definition is one
// that can't be.
func Keep(spec *apiextensionsv1.CustomResourceDefinitionSpec) (string, error) {
	var out bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &out)
	packed := gzip.NewWriter(text)
	if err := errors.Join(json.NewEncoder(packed).Encode(spec), packed.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("crd: keep a spec: %w", err)
	}
	return out.String(), nil
}

// served is the definition as it is to be served: with the spec that was kept, if there is one.
func served(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	kept, ok := crd.Annotations[resource.ServedSpecAnnotation]
	if !ok {
		return crd, nil
	}
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(kept))))
	if err != nil {
		return nil, fmt.Errorf("crd: read annotation %s: %w", resource.ServedSpecAnnotation, err)
	}
	out := *crd
	out.Spec = apiextensionsv1.CustomResourceDefinitionSpec{}
	if err := json.NewDecoder(io.LimitReader(packed, maxServedSpec)).Decode(&out.Spec); err != nil {
		return nil, fmt.Errorf("crd: read annotation %s: %w", resource.ServedSpecAnnotation, err)
	}
	return &out, nil
}
