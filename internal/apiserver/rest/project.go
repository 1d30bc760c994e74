package rest

import (
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// projectBody makes the new object of a PUT or POST to a subresource whose body is of another kind.
func (r *request) projectBody(p resource.Projection, body Body) (func(resource.Object, *watchcache.Object) (resource.Object, error), error) {
	sent, texts, err := p.Decode(body.Data, r.decoding(body.MediaType))
	if err != nil {
		return nil, err
	}
	r.warnings.add(texts)
	if err := genericrest.EnsureObjectNamespaceMatchesRequestNamespace(r.objectNamespace(), sent); err != nil {
		return nil, err
	}
	if !p.Creates() {
		if err := r.checkName(sent); err != nil {
			return nil, err
		}
	}
	return func(old resource.Object, _ *watchcache.Object) (resource.Object, error) {
		return r.project(p, old, sent.DeepCopyObject().(resource.Object))
	}, nil
}

// project makes a body true of an object.
func (r *request) project(p resource.Projection, old, body resource.Object) (resource.Object, error) {
	if !p.Creates() {
		base, err := p.Base(r.Version, old)
		if err != nil {
			return nil, err
		}
		if body, err = r.own(base, body); err != nil {
			return nil, err
		}
	}
	return p.Put(r.ctx, r.Version, old, body)
}

// patchedBody decodes what became of a projection's body by a patch.
func (r *request) patchedBody(p resource.Projection, old resource.Object, patch func(base []byte) ([]byte, []error, error)) (resource.Object, error) {
	base, err := p.Base(r.Version, old)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(base)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	after, problems, err := patch(before)
	if err != nil {
		return nil, err
	}
	opts := r.decoding("application/json")
	opts.Patched, opts.PatchErrors = true, problems
	body, texts, err := p.Decode(after, opts)
	if err != nil {
		return nil, err
	}
	r.warnings.add(texts)
	if err := r.checkName(body); err != nil {
		return nil, err
	}
	return r.project(p, old, body)
}

// projected is the answer to a write of a projection.
func (r *request) projected(p resource.Projection, res *Result) (*Result, error) {
	if p.Creates() {
		return &Result{Body: &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, Created: true}, nil
	}
	body, err := r.body(p, res.Object)
	return &Result{Body: body}, err
}

func (r *request) body(p resource.Projection, o *watchcache.Object) (resource.Object, error) {
	obj, err := o.Hub(r.Version)
	if err != nil {
		return nil, err
	}
	return p.Get(r.Version, obj)
}

// createSubresource is a POST to a subresource.
func (r *request) createSubresource(body Body) (*Result, error) {
	sub := r.Kind.Subresources[r.Subresource]
	if sub == nil || sub.Project == nil || !sub.Project.Creates() {
		return nil, apierrors.NewMethodNotSupported(r.resource(), "create")
	}
	makes, err := r.projectBody(sub.Project, body)
	if err != nil {
		return nil, err
	}
	if err := r.mayCreate(r.Name, ""); err != nil {
		return nil, err
	}
	// Binding and its like change the object by rules of their own, not as an update of it.
	return r.update(&change{project: sub.Project, make: makes})
}
