package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// Patch changes an object or one of its subresources: JSON, merge, strategic merge and apply patches. On an
// error the Result may be there all the same, with warnings.
func (v *Verbs) Patch(ctx context.Context, a Attributes, pt types.PatchType, patch []byte, opts metav1.PatchOptions) (*Result, error) {
	if err := acceptsPatch(a, pt); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidatePatchOptions(&opts, pt); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	if pt == types.ApplyPatchType {
		if _, err := yaml.ToJSON(patch); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
		}
	} else if !json.Valid(patch) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	opts.TypeMeta = optionsGVK("PatchOptions")
	verb := "patch"
	if pt == types.ApplyPatchType {
		verb = "apply"
	}
	return v.served(a, func(a Attributes) (*Result, error) {
		r := v.request(ctx, a, verb, opts.DryRun, opts.FieldManager, opts.FieldValidation, &opts)
		c, err := r.change()
		if err != nil {
			return nil, err
		}
		p := &patcher{request: r, kind: pt, patch: patch, force: opts.Force != nil && *opts.Force, project: c.project}
		c.make = p.make
		c.create = pt == types.ApplyPatchType && a.Subresource == ""
		return r.result(r.update(c))
	})
}

// acceptsPatch refuses kinds of patches that the object has no rules for, with a 415.
func acceptsPatch(a Attributes, pt types.PatchType) error {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if a.Version.PatchType != nil {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	accepted = append(accepted, string(types.ApplyPatchType))
	for _, t := range accepted {
		if t == string(pt) {
			return nil
		}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    statusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s", strings.Join(accepted, ", ")),
	}}
}

// patcher makes the new object of a patch.
type patcher struct {
	*request
	kind    types.PatchType
	patch   []byte
	force   bool
	project resource.Projection
}

func (p *patcher) make(old resource.Object, stored *watchcache.Object) (resource.Object, error) {
	if old == nil {
		if p.kind != types.ApplyPatchType {
			return nil, apierrors.NewNotFound(p.resource(), p.Name)
		}
		obj, err := p.apply(p.Version.Codec.New(), nil)
		return p.named(obj, err)
	}
	if p.project != nil {
		return p.patchProjection(old)
	}
	var obj resource.Object
	var err error
	switch p.kind {
	case types.ApplyPatchType:
		// The field manager takes live's managedFields apart; old stays as it is.
		obj, err = p.applyOnto(old, stored)
	case types.StrategicMergePatchType:
		obj, err = p.strategic(old, stored)
	default:
		obj, err = p.json(old, stored)
	}
	return p.named(obj, err)
}

// named checks that a patch hasn't turned the object into another.
func (p *patcher) named(obj resource.Object, err error) (resource.Object, error) {
	if err != nil {
		return nil, err
	}
	if err := genericrest.EnsureObjectNamespaceMatchesRequestNamespace(p.objectNamespace(), obj); err != nil {
		return nil, err
	}
	return obj, p.checkName(obj)
}

// json carries out a JSON or merge patch on the object as JSON in the request's version.
func (p *patcher) json(old resource.Object, stored *watchcache.Object) (resource.Object, error) {
	before, err := stored.JSON(p.Version)
	if err != nil {
		return nil, err
	}
	obj, texts, err := p.patched(before)
	if apierrors.IsInvalid(err) {
		// The message quotes the whole object, with the members in the order of a fresh encoding.
		if fresh, encodeErr := p.Version.Codec.Encode(old); encodeErr == nil {
			_, _, err = p.patched(fresh)
		}
	}
	if err != nil {
		return nil, err
	}
	p.warnings.add(texts)
	return p.own(old, obj)
}

// patched is what a JSON or merge patch makes of an object's JSON.
func (p *patcher) patched(before []byte) (resource.Object, []string, error) {
	after, problems, err := p.patchJSON(before)
	if err != nil {
		return nil, nil, err
	}
	opts := p.decoding("application/json")
	opts.Patched, opts.PatchErrors = true, problems
	return p.Version.Codec.Decode(after, opts)
}

// patchProjection patches a subresource's body of another kind.
func (p *patcher) patchProjection(old resource.Object) (resource.Object, error) {
	if p.kind == types.ApplyPatchType {
		base, err := p.project.Base(p.Version, old)
		if err != nil {
			return nil, err
		}
		body, err := p.apply(base, nil)
		if err != nil {
			return nil, err
		}
		if err := p.checkName(body); err != nil {
			return nil, err
		}
		return p.project.Put(p.ctx, p.Version, old, body)
	}
	return p.patchedBody(p.project, old, p.patchJSON)
}
