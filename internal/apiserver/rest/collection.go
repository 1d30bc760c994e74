package rest

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/watchcache"
)

// deleters is how many objects of a collection are deleted at once: enough to share syncs.
const deleters = 16

// DeleteCollection deletes what a List with the same options returns, and answers with it as it was. It
// stops at the first error; what was deleted until then stays deleted.
func (v *Verbs) DeleteCollection(ctx context.Context, a Attributes, opts *metav1.DeleteOptions, list watchcache.ListOptions) (*watchcache.List, error) {
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	opts, err := deleteOptions(opts)
	if err != nil {
		return nil, err
	}
	found, err := v.List(ctx, a, list)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan *watchcache.Object)
	var running sync.WaitGroup
	for range min(deleters, len(found.Objects)) {
		running.Go(func() {
			for o := range todo {
				each := a
				each.Namespace, each.Name = o.Namespace(), o.Name()
				_, err := v.served(each, func(a Attributes) (*Result, error) {
					return v.request(ctx, a, "deletecollection", opts.DryRun, "", "", opts).delete(opts)
				})
				if err != nil && !apierrors.IsNotFound(err) {
					cancel(err)
				}
			}
		})
	}
	for _, o := range found.Objects {
		select {
		case todo <- o:
		case <-ctx.Done():
		}
	}
	close(todo)
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return found, nil
}
