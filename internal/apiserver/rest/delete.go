package rest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// Delete deletes an object, or begins to. opts may be nil: at once then. On an error the Result may be there
// all the same, with warnings.
func (v *Verbs) Delete(ctx context.Context, a Attributes, opts *metav1.DeleteOptions) (*Result, error) {
	opts, err := deleteOptions(opts)
	if err != nil {
		return nil, err
	}
	return v.served(a, func(a Attributes) (*Result, error) {
		r := v.request(ctx, a, "delete", opts.DryRun, "", "", opts)
		return r.result(r.delete(opts))
	})
}

// deleteOptions checks a client's options and copies them, because deletion changes them.
func deleteOptions(opts *metav1.DeleteOptions) (*metav1.DeleteOptions, error) {
	if opts == nil {
		opts = metav1.NewDeleteOptions(0)
	} else {
		opts = opts.DeepCopy()
	}
	opts.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	opts.TypeMeta = optionsGVK("DeleteOptions")
	return opts, nil
}

// delete goes on until a write lands: each lost race looks at the newer object again.
func (r *request) delete(opts *metav1.DeleteOptions) (*Result, error) {
	key := r.key(r.Name)
	was, err := r.present(key)
	asked := opts.DeepCopy()
	for {
		if err != nil {
			return nil, err
		}
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		if was == nil {
			return nil, apierrors.NewNotFound(r.resource(), r.Name)
		}
		d := &deletion{request: r, opts: asked.DeepCopy(), was: was}
		res, err := d.run()
		if present, isLost := lost(err); isLost {
			was = present
			continue
		}
		if errors.Is(err, storage.ErrFenced) {
			if was, err = r.present(key); err != nil {
				return nil, err
			}
			continue
		}
		return res, err
	}
}

// deletion is one attempt to delete an object as it was.
type deletion struct {
	*request
	opts *metav1.DeleteOptions
	was  *storage.KV
}

func (d *deletion) run() (*Result, error) {
	obj, err := d.hub(d.was)
	if err != nil {
		return nil, err
	}
	if marker, ok := d.Kind.Strategy.(resource.DeletionMarker); ok {
		if res, done, err := d.mark(marker, obj); done {
			return res, err
		}
	}
	graceful, pending, err := genericrest.BeforeDelete(d.Kind.Strategy, d.ctx, obj, d.opts)
	if err != nil {
		return nil, d.precondition(err)
	}
	if pending {
		res := d.deleted(d.cfg.Cache.Object(d.Kind, d.was))
		res.Accepted = d.accepted()
		return res, nil
	}
	// Admission sees the object as it is stored.
	if err := d.admit(); err != nil {
		return nil, err
	}
	if finalizers, changed := d.finalizers(obj); changed {
		obj.SetFinalizers(finalizers)
	}
	held := len(obj.GetFinalizers()) > 0
	switch {
	case !graceful && !held:
		return d.finish(d.was)
	case !graceful:
		markAsDeleting(obj, time.Now())
	}
	o, err := d.put(obj, d.was.Key, d.was)
	if err != nil {
		return nil, err
	}
	if held || *d.opts.GracePeriodSeconds > 0 {
		return d.begun(o), nil
	}
	if d.dryRun {
		return d.deleted(o), nil
	}
	// Deletion without grace of a kind that has it: two steps, as the object's watchers expect.
	res, err := d.finish(o.KV())
	if present, isLost := lost(err); isLost && present == nil {
		return d.deleted(o), nil // somebody else's deletion was faster
	}
	return res, err
}

// mark begins the deletion of kinds that have their own way of it. done is false once they only wait to be
// removed.
func (d *deletion) mark(marker resource.DeletionMarker, obj resource.Object) (res *Result, done bool, err error) {
	if p := d.opts.Preconditions; p != nil {
		if err := d.checkMark(p, obj); err != nil {
			return nil, true, err
		}
	}
	if obj.GetDeletionTimestamp() != nil {
		holder, ok := d.Kind.Strategy.(resource.DeletionHolder)
		if ok && holder.HoldsDeletion(obj) {
			return d.begun(d.cfg.Cache.Object(d.Kind, d.was)), true, nil
		}
		return nil, false, nil
	}
	if err := d.admit(); err != nil {
		return nil, true, err
	}
	marker.MarkDeleted(obj, d.opts, metav1.Now())
	o, err := d.put(obj, d.was.Key, d.was)
	if err != nil {
		return nil, true, err
	}
	return d.begun(o), true, nil
}

func (d *deletion) checkMark(p *metav1.Preconditions, obj resource.Object) error {
	switch {
	case p.UID != nil && *p.UID != obj.GetUID():
		return conflict(d.resource(), d.Name, uint64(d.was.Rev),
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, obj.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		return conflict(d.resource(), d.Name, uint64(d.was.Rev),
			fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// admit asks whether the object may be deleted at all.
func (d *deletion) admit() error {
	if d.Kind.GroupKind == namespaceKind && immortal(d.Name) {
		return apierrors.NewForbidden(d.resource(), d.Name, errors.New("this namespace may not be deleted"))
	}
	if d.cfg.Admission == nil {
		return nil
	}
	old, err := d.cfg.Cache.Object(d.Kind, d.was).Hub(d.Version)
	if err != nil {
		return err
	}
	return d.admitDeletion(old)
}

// precondition gives a failed precondition the present revision.
func (d *deletion) precondition(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) && apierrors.IsConflict(err) {
		return &ConflictError{StatusError: status, present: uint64(d.was.Rev)}
	}
	return err
}

// finish removes the object.
func (d *deletion) finish(was *storage.KV) (*Result, error) {
	rev, err := d.remove(was, d.Name)
	if err != nil {
		return nil, err
	}
	return d.deleted(watchcache.NewObject(d.Kind, was, rev)), nil
}

// begun is the answer while something still holds the object.
func (d *deletion) begun(o *watchcache.Object) *Result {
	return &Result{Object: o, Accepted: d.accepted()}
}

// accepted tells whether a deletion that goes on is a 202: only old clients ask for it.
func (d *deletion) accepted() bool {
	orphan := d.opts.OrphanDependents //nolint:staticcheck // see above
	return orphan != nil && !*orphan
}

// deleted is the answer for an object that is gone, or about to go.
func (d *deletion) deleted(o *watchcache.Object) *Result {
	if d.Kind.ReturnDeleted {
		return &Result{Object: o}
	}
	return &Result{Body: &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name:  d.Name,
		Group: d.Kind.Group,
		Kind:  d.Kind.Plural,
		UID:   o.Meta().UID,
	}}}
}

// markAsDeleting begins the deletion of an object without grace that finalizers hold.
func markAsDeleting(obj resource.Object, now time.Time) {
	at := obj.GetDeletionTimestamp()
	if at == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if at == nil || at.After(now) {
		t := metav1.NewTime(now)
		obj.SetDeletionTimestamp(&t)
	}
	var zero int64
	obj.SetDeletionGracePeriodSeconds(&zero)
}
