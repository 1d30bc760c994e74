package rest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"operatord.io/operatord/internal/watchcache"
)

// Get reads one object, or a subresource's body. A resourceVersion of "0" takes whatever is at hand, a
// number waits for it.
func (v *Verbs) Get(ctx context.Context, a Attributes, opts metav1.GetOptions) (*Result, error) {
	view, err := v.cfg.Cache.View(ctx, opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	o, ok := v.cfg.Cache.Get(view, a.Kind, a.Namespace, a.Name)
	if !ok {
		return nil, apierrors.NewNotFound(a.Kind.GroupResource(), a.Name)
	}
	if a.Subresource == "" {
		return &Result{Object: o}, nil
	}
	sub := a.Kind.Subresources[a.Subresource]
	switch {
	case sub == nil:
		return nil, apierrors.NewNotFound(a.Kind.GroupResource(), a.Name)
	case sub.Project == nil:
		return &Result{Object: o}, nil
	}
	obj, err := o.Hub(a.Version)
	if err != nil {
		return nil, err
	}
	body, err := sub.Project.Get(a.Version, obj)
	if err != nil {
		return nil, err
	}
	return &Result{Body: body}, nil
}

// List reads a page of a collection. Namespace and Version are taken from a.
func (v *Verbs) List(ctx context.Context, a Attributes, opts watchcache.ListOptions) (*watchcache.List, error) {
	return v.cfg.Cache.List(ctx, a.Kind, scoped(a, opts))
}

// Watch opens a watch of a collection, or of the one object that a names.
func (v *Verbs) Watch(ctx context.Context, a Attributes, opts watchcache.ListOptions) (*watchcache.Watch, error) {
	return v.cfg.Cache.Watch(ctx, a.Kind, scoped(a, opts))
}

// scoped are list options for what a names.
func scoped(a Attributes, opts watchcache.ListOptions) watchcache.ListOptions {
	opts.Version, opts.Namespace = a.Version, a.Namespace
	if a.Name != "" {
		name := fields.OneTermEqualSelector("metadata.name", a.Name)
		if opts.Field == nil || opts.Field.Empty() {
			opts.Field = name
		} else {
			opts.Field = fields.AndSelectors(opts.Field, name)
		}
	}
	return opts
}
