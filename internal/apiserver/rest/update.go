package rest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// Update replaces an object or one of its subresources. On an error the Result may be there all the same,
// with warnings.
func (v *Verbs) Update(ctx context.Context, a Attributes, body Body, opts metav1.UpdateOptions) (*Result, error) {
	if errs := metav1validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "UpdateOptions"}, "", errs)
	}
	opts.TypeMeta = optionsGVK("UpdateOptions")
	return v.served(a, func(a Attributes) (*Result, error) {
		r := v.request(ctx, a, "update", opts.DryRun, opts.FieldManager, opts.FieldValidation, &opts)
		return r.result(r.replace(body))
	})
}

// replace is an update by a PUT's body.
func (r *request) replace(body Body) (*Result, error) {
	c, err := r.change()
	if err != nil {
		return nil, err
	}
	if c.project != nil {
		c.make, err = r.projectBody(c.project, body)
	} else {
		err = r.replaceBy(c, body)
	}
	if err != nil {
		return nil, err
	}
	return r.update(c)
}

// replaceBy makes the change that a PUT's body asks for.
func (r *request) replaceBy(c *change, body Body) error {
	decode := func() (resource.Object, error) {
		obj, texts, err := r.Version.Codec.Decode(body.Data, r.decoding(body.MediaType))
		if err != nil {
			return nil, err
		}
		r.warnings.add(texts)
		if err := genericrest.EnsureObjectNamespaceMatchesRequestNamespace(r.objectNamespace(), obj); err != nil {
			return nil, err
		}
		if err := r.checkName(obj); err != nil {
			return nil, err
		}
		dedupOwners(obj, r.warnings, false)
		return obj, nil
	}
	first, err := decode()
	if err != nil {
		return err
	}
	c.uid = uidOf(first)
	c.make = func(old resource.Object, _ *watchcache.Object) (resource.Object, error) {
		// What is decoded is changed on its way, so a second attempt decodes again.
		obj := first
		first = nil
		if obj == nil {
			if obj, err = decode(); err != nil {
				return nil, err
			}
		}
		live := old
		if live == nil {
			live = r.Version.Codec.New()
		}
		return r.own(live, obj)
	}
	return nil
}

// change is an update in the making.
type change struct {
	strategy genericrest.RESTUpdateStrategy // nil: none is asked
	project  resource.Projection            // of a subresource whose body is another kind's
	// make returns the new object, which is its own; old is nil where there is none yet, and else not to
	// be changed. It runs again after a lost race.
	make func(old resource.Object, stored *watchcache.Object) (resource.Object, error)
	// create: an object that doesn't exist is made, whatever the strategy says.
	create bool
	uid    *types.UID // that the object must have
}

// change finds the rules for updates of the object or of a subresource.
func (r *request) change() (*change, error) {
	if r.Subresource == "" {
		return &change{strategy: r.Kind.Strategy}, nil
	}
	sub := r.Kind.Subresources[r.Subresource]
	switch {
	case sub == nil:
		return nil, apierrors.NewNotFound(r.resource(), r.Name)
	case sub.Project != nil:
		return &change{strategy: r.Kind.Strategy, project: sub.Project}, nil
	}
	return &change{strategy: sub.Strategy}, nil
}

// update carries out a change, on the newest object, until it lands: a lost race is run again. A client
// that named a resourceVersion gets a 409 in the second run, because the object has another one then; others
// queue up after it.
func (r *request) update(c *change) (*Result, error) {
	key := r.key(r.Name)
	was, err := r.present(key)
	for attempt := 1; ; attempt++ {
		if attempt == 3 && err == nil {
			leave, err := r.lanes.enter(r.ctx, key)
			if err != nil {
				return nil, err
			}
			defer leave()
			if was, err = r.present(key); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, err
		}
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		var res *Result
		if was == nil {
			res, err = r.createByUpdate(c, key)
		} else {
			res, err = r.updateOnce(c, was)
		}
		if present, isLost := lost(err); isLost {
			was, err = present, nil
			continue
		}
		if errors.Is(err, storage.ErrFenced) {
			was, err = r.present(key)
			continue
		}
		if err != nil {
			return nil, err
		}
		if c.project != nil {
			return r.projected(c.project, res)
		}
		return res, nil
	}
}

// createByUpdate makes the object of an update whose object doesn't exist.
func (r *request) createByUpdate(c *change, key string) (*Result, error) {
	if !c.create && (r.Subresource != "" || c.strategy == nil || !c.strategy.AllowCreateOnUpdate(r.ctx)) {
		return nil, apierrors.NewNotFound(r.resource(), r.Name)
	}
	if err := checkPreconditions(r.resource(), key, r.Name, &metav1.Preconditions{UID: c.uid}, "", ""); err != nil {
		return nil, err
	}
	obj, err := c.make(nil, nil)
	if err != nil {
		return nil, err
	}
	if uid := obj.GetUID(); uid != "" {
		return nil, conflict(r.resource(), r.Name, 0, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if r.MayCreate != nil {
		if err := r.MayCreate(r.ctx); err != nil {
			return nil, err
		}
	}
	if err := r.mayCreate(obj.GetName(), ""); err != nil {
		return nil, err
	}
	if obj, err = r.mutate(OpCreate, r.createOptions(), obj, nil); err != nil {
		return nil, err
	}
	genericrest.WipeObjectMetaSystemFields(obj)
	if err := r.newObject(obj); err != nil {
		return nil, err
	}
	o, err := r.putNew(obj)
	if err != nil {
		return nil, err
	}
	return &Result{Object: o, Created: true}, nil
}

// updateOnce carries out a change on the object as it was. A lost race is the store's error.
func (r *request) updateOnce(c *change, was *storage.KV) (*Result, error) {
	stored := r.cfg.Cache.Object(r.Kind, was)
	old, err := r.hub(was)
	if err != nil {
		return nil, err
	}
	if err := checkPreconditions(r.resource(), was.Key, r.Name, &metav1.Preconditions{UID: c.uid}, old.GetUID(), old.GetResourceVersion()); err != nil {
		return nil, err
	}
	obj, err := c.make(old, stored)
	if err != nil {
		return nil, err
	}
	if obj, err = r.mutate(OpUpdate, r.updateOptions(), obj, old); err != nil {
		return nil, err
	}
	if err := r.compareRevision(c, obj, was); err != nil {
		return nil, err
	}
	if c.strategy == nil {
		if err := checkPreconditions(r.resource(), was.Key, r.Name, &metav1.Preconditions{UID: uidOf(obj)}, old.GetUID(), ""); err != nil {
			return nil, err
		}
	} else {
		if err := genericrest.BeforeUpdate(updating{c.strategy}, r.ctx, obj, old); err != nil {
			return nil, err
		}
	}
	keepTimestamps(obj, old)
	if err := r.validate(OpUpdate, r.updateOptions(), obj, old); err != nil {
		return nil, err
	}
	if r.releases(obj, old) {
		return r.released(obj, was)
	}
	o, err := r.put(obj, was.Key, was)
	if err != nil {
		return nil, err
	}
	return &Result{Object: o}, nil
}

// compareRevision is optimistic locking.
func (r *request) compareRevision(c *change, obj resource.Object, was *storage.KV) error {
	var named storage.Rev
	if rev := obj.GetResourceVersion(); rev != "" {
		n, err := strconv.ParseUint(rev, 10, 64)
		if err != nil {
			return plain(err.Error())
		}
		named = storage.Rev(n)
	}
	switch {
	case named == 0 && (c.strategy == nil || c.strategy.AllowUnconditionalUpdate(r.ctx)):
		obj.SetResourceVersion(strconv.FormatUint(uint64(was.Rev), 10))
		return nil
	case named == 0:
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Kind.Group, Kind: r.Kind.Plural}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata").Child("resourceVersion"), uint64(0), "must be specified for an update"),
		})
	case named != was.Rev:
		return conflict(r.resource(), r.Name, uint64(was.Rev), errors.New(lockMessage))
	}
	return nil
}

// releases tells whether an update lets go the last thing that kept a deleted object.
func (r *request) releases(obj, old resource.Object) bool {
	if len(obj.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && *grace != 0 {
		return false
	}
	holder, ok := r.Kind.Strategy.(resource.DeletionHolder)
	return !ok || !holder.HoldsDeletion(obj)
}

// released deletes the object of an update that let it go. The answer is the object as it was sent, at the
// revision it had.
func (r *request) released(obj resource.Object, was *storage.KV) (*Result, error) {
	value, err := r.encode(obj)
	if err != nil {
		return nil, err
	}
	if _, err := r.remove(was, r.Name); err != nil {
		if present, isLost := lost(err); !isLost || present != nil {
			return nil, err
		}
		// Somebody else released it at the same time.
	}
	return &Result{Object: watchcache.NewObject(r.Kind, &storage.KV{Key: was.Key, Value: value}, uint64(was.Rev))}, nil
}

// checkName compares an object's name with the path's.
func (r *request) checkName(obj resource.Object) error {
	name := obj.GetName()
	if name == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: %v", r.Name, "name must be provided"))
	}
	if name != r.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name))
	}
	if ns := obj.GetNamespace(); r.objectNamespace() != "" && ns != "" && ns != r.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", ns, r.Namespace))
	}
	return nil
}
