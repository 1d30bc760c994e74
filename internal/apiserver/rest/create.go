package rest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrest "k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// nameAttempts is how often a name is generated before the client is told to try again.
const nameAttempts = 8

// Create makes an object, or does what creating a subresource does (binding). On an error the Result may
// be there all the same, with warnings.
func (v *Verbs) Create(ctx context.Context, a Attributes, body Body, opts metav1.CreateOptions) (*Result, error) {
	if errs := metav1validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	opts.TypeMeta = optionsGVK("CreateOptions")
	return v.served(a, func(a Attributes) (*Result, error) {
		r := v.request(ctx, a, "create", opts.DryRun, opts.FieldManager, opts.FieldValidation, &opts)
		if a.Subresource != "" {
			return r.result(r.createSubresource(body))
		}
		return r.result(r.create(body))
	})
}

func (r *request) create(body Body) (*Result, error) {
	obj, texts, err := r.Version.Codec.Decode(body.Data, r.decoding(body.MediaType))
	if err != nil {
		return nil, err
	}
	r.warnings.add(texts)
	genericrest.WipeObjectMetaSystemFields(obj)
	if err := genericrest.EnsureObjectNamespaceMatchesRequestNamespace(r.objectNamespace(), obj); err != nil {
		return nil, err
	}
	dedupOwners(obj, r.warnings, false)
	if obj, err = r.own(r.Version.Codec.New(), obj); err != nil {
		return nil, err
	}
	if err := r.mayCreate(obj.GetName(), obj.GetGenerateName()); err != nil {
		return nil, err
	}
	if obj, err = r.mutate(OpCreate, r.options, obj, nil); err != nil {
		return nil, err
	}
	if obj.GetGenerateName() == "" || obj.GetName() != "" {
		o, err := r.insert(obj)
		return &Result{Object: o, Created: true}, err
	}
	for attempt := 1; ; attempt++ {
		named := obj.DeepCopyObject().(resource.Object)
		named.SetName(r.Kind.Strategy.GenerateName(obj.GetGenerateName()))
		o, err := r.insert(named)
		if err == nil || !apierrors.IsAlreadyExists(err) {
			return &Result{Object: o, Created: true}, err
		}
		if attempt == nameAttempts {
			return nil, apierrors.NewGenerateNameConflict(r.resource(), named.GetName(), 1)
		}
	}
}

// insert validates a new object and writes it; one that is there already is a 409 AlreadyExists.
func (r *request) insert(obj resource.Object) (*watchcache.Object, error) {
	if err := r.newObject(obj); err != nil {
		return nil, err
	}
	if rev, err := watchcache.ParseResourceVersion(obj.GetResourceVersion()); err == nil && rev != 0 {
		return nil, plain("resourceVersion should not be set on objects to be created")
	}
	o, err := r.putNew(obj)
	if present, isLost := lost(err); isLost {
		err := apierrors.NewAlreadyExists(r.resource(), obj.GetName())
		if present != nil && r.cfg.Cache.Object(r.Kind, present).Meta().DeletionTimestamp != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	return o, err
}

// newObject fills in a new object's system fields and validates it.
func (r *request) newObject(obj resource.Object) error {
	genericrest.FillObjectMetaSystemFields(obj)
	if err := genericrest.BeforeCreate(creation{r.Kind.Strategy}, r.ctx, obj); err != nil {
		return err
	}
	if _, ok := r.Kind.Subresources["status"]; ok && r.Kind.Custom {
		// The strategy has taken the status away. Its default is what a read would show.
		if err := r.Version.Codec.Default(obj); err != nil {
			return err
		}
	}
	if err := r.validate(OpCreate, r.createOptions(), obj, nil); err != nil {
		return err
	}
	if obj.GetName() == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	if r.cfg.Unattended != nil {
		if text := r.cfg.Unattended(r.Kind.GroupKind); text != "" {
			r.warnings.AddWarning("", text)
		}
	}
	return nil
}

// putNew writes a new object while its namespace and CRD are as they must be, also if those are written to
// meanwhile.
func (r *request) putNew(obj resource.Object) (*watchcache.Object, error) {
	for {
		key := r.key(obj.GetName())
		if r.dryRun {
			if kv, err := r.present(key); err != nil || kv != nil {
				if err == nil {
					err = &storage.ConflictError{Key: key, Present: kv}
				}
				return nil, err
			}
		}
		o, err := r.put(obj, key, nil)
		if !errors.Is(err, storage.ErrFenced) {
			return o, err
		}
		if err := r.mayCreate(obj.GetName(), ""); err != nil {
			return nil, err
		}
	}
}

// objectNamespace is the namespace that an object of this request must name, or may leave out.
func (r *request) objectNamespace() string {
	if !r.Kind.Namespaced {
		return ""
	}
	return r.Namespace
}

// own records in managedFields what a write changes.
func (r *request) own(live, obj resource.Object) (resource.Object, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.checkSets(obj); err != nil {
		return nil, err
	}
	manager, err := r.Version.FieldManager(r.Subresource)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("no ownership of fields for %s: %w", r.resource(), err))
	}
	return object(manager.UpdateNoErrors(live, obj, r.manager))
}

func object(obj runtime.Object) (resource.Object, error) {
	o, ok := obj.(resource.Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%T is no object with metadata", obj))
	}
	return o, nil
}

// createOptions are the options that admission sees where a request of another kind makes an object.
func (r *request) createOptions() runtime.Object {
	switch o := r.options.(type) {
	case *metav1.UpdateOptions:
		return &metav1.CreateOptions{TypeMeta: optionsGVK("CreateOptions"), DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	case *metav1.PatchOptions:
		return &metav1.CreateOptions{TypeMeta: optionsGVK("CreateOptions"), DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	}
	return r.options
}

// updateOptions are the same for updates.
func (r *request) updateOptions() runtime.Object {
	if o, ok := r.options.(*metav1.PatchOptions); ok {
		return &metav1.UpdateOptions{TypeMeta: optionsGVK("UpdateOptions"), DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	}
	return r.options
}
