package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// strategic carries out a strategic merge patch, by the rules in the Go type's tags.
func (p *patcher) strategic(old resource.Object, stored *watchcache.Object) (resource.Object, error) {
	before, err := stored.JSON(p.Version)
	if err != nil {
		return nil, err
	}
	original := map[string]any{}
	if err := utiljson.Unmarshal(before, &original); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	patch := map[string]any{}
	var problems []error
	strict := p.decoding("").Strict()
	if strict {
		problems, err = kjson.UnmarshalStrict(p.patch, &patch)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(p.patch, &patch)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := checkLists(patch, original); err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(original, patch, p.Version.PatchType)
	if err != nil {
		return nil, strategicError(err)
	}

	// From map to typed object and not through JSON, because it is this that words the errors.
	into := reflect.New(reflect.Indirect(reflect.ValueOf(p.Version.PatchType)).Type()).Interface()
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, into, strict)
	if found, ok := runtime.AsStrictDecodingError(err); ok {
		problems = append(problems, found.Errors()...)
	} else if err != nil {
		return nil, invalidStrategic(patch, err)
	}
	if len(problems) > 0 {
		if p.validation == "Strict" {
			return nil, invalidStrategic(patch, runtime.NewStrictDecodingError(problems))
		}
		for _, e := range problems {
			p.warnings.AddWarning("", e.Error())
		}
	}

	after, err := json.Marshal(into)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	obj, _, err := p.Version.Codec.Decode(after, resource.DecodeOptions{FieldValidation: "Ignore", Patched: true})
	if err != nil {
		return nil, err
	}
	return p.own(old, obj)
}

func invalidStrategic(patch map[string]any, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), fmt.Sprintf("%+v", patch), err.Error()),
	})
}

func strategicError(err error) error {
	for _, bad := range []error{
		mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat,
	} {
		if errors.Is(err, bad) {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	if errors.Is(err, mergepatch.ErrNoListOfLists) || errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys) {
		return unprocessable(err.Error())
	}
	return plain(err.Error())
}
