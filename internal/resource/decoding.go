package resource

import (
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What all codecs answer when a body can't be read, in Kubernetes' words.

// Strict tells whether unknown and duplicate fields are looked for at all.
func (o DecodeOptions) Strict() bool { return o.FieldValidation != metav1.FieldValidationIgnore }

// Failed is the API error for a body that couldn't be decoded. kind is what was expected, gvk what was
// found, if anything.
func (o DecodeOptions) Failed(kind string, gvk *schema.GroupVersionKind, body []byte, err error) error {
	if o.Patched {
		return invalidPatch(body, err)
	}
	if gvk != nil && gvk.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", kind, err, summary(body)))
}

// Problems sorts out what strict decoding found: warnings, or an API error if o asks for strictness.
func (o DecodeOptions) Problems(kind string, gvk *schema.GroupVersionKind, body []byte, found []error) (warnings []string, err error) {
	found = append(o.PatchErrors[:len(o.PatchErrors):len(o.PatchErrors)], found...)
	if len(found) == 0 || !o.Strict() {
		return nil, nil
	}
	if o.FieldValidation == metav1.FieldValidationStrict {
		return nil, o.Failed(kind, gvk, body, runtime.NewStrictDecodingError(found))
	}
	for _, err := range found {
		warnings = append(warnings, err.Error())
	}
	return warnings, nil
}

// CheckVersion compares a body's group and version with the path's.
func (o DecodeOptions) CheckVersion(got, want schema.GroupVersion) error {
	if o.Patched || got == want {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%v)", got, want))
}

// UnsupportedMediaType is the API error for a body in a format that isn't read.
func UnsupportedMediaType() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    415,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
	}}
}

func invalidPatch(result []byte, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), string(result), err.Error()),
	})
}

// summary is the start of a body, in hexadecimal if it isn't a JSON object.
func summary(body []byte) string {
	const limit = 30
	text := func(b []byte) string { return string(b) }
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] != '{':
		text = hex.EncodeToString
	}
	if len(body) > limit {
		return text(body[:limit]) + " ..."
	}
	return text(body)
}
