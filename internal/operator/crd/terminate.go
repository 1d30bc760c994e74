package crd

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/resource"
)

// terminate deletes all instances of a CRD that is being deleted and then lets go of it. It waits for an
// instance by being woken when it goes.
func (op *Operator) terminate(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return nil
	}
	key := controller.Key{Name: crd.Name}
	next := crd.DeepCopy()
	if k := op.shadowed(crd); k != nil {
		// Whatever lies under this name is the built-in kind's.
		return op.release(ctx, next, "BuiltInKind", fmt.Sprintf("%s is built in: nothing was deleted", k.GroupResource()))
	}
	_, served := crd.Annotations[resource.ServedSpecAnnotation]
	if served = served || apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established); !served {
		return op.release(ctx, next, "NeverEstablished", "resource was never established")
	}
	gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Status.AcceptedNames.Kind}
	op.setEmptying(key, &gk)

	inProgress := condition(apiextensionsv1.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
	apihelpers.SetCRDCondition(next, inProgress)
	if err := op.writeStatus(ctx, crd, next); err != nil {
		return err
	}
	// Creates are refused since the CRD is being deleted, so this is all there will ever be.
	if err := op.Reader.AtLeastOf(ctx, "", gk); err != nil {
		return err
	}
	instances := slices.DeleteFunc(slices.Collect(op.Metadata.OfKind(gk)), func(i *informer.Item) bool {
		return i.Resource().Resource != crd.Spec.Names.Plural // another's, which the status calls by this kind
	})
	errs := controller.Some(controller.DeleteAll(ctx, op.Writer, slices.Values(instances), nil))
	if err := utilerrors.NewAggregate(errs); err != nil {
		failed := next.DeepCopy()
		apihelpers.SetCRDCondition(failed, condition(apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)))
		return utilerrors.NewAggregate([]error{err, op.writeStatus(ctx, next, failed)})
	}
	if len(instances) > 0 {
		return nil // the last to go wakes us
	}
	return op.release(ctx, next, "InstanceDeletionCompleted", "removed all instances")
}

// release says how it ended and removes the finalizer, which removes the CRD.
func (op *Operator) release(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, reason, message string) error {
	apihelpers.SetCRDCondition(crd, condition(apiextensionsv1.ConditionFalse, reason, message))
	apihelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
	if err := op.Writer.Update(ctx, crd, "status"); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	op.setEmptying(controller.Key{Name: crd.Name}, nil)
	op.Log.Info("custom kind gone", "crd", crd.Name, "reason", reason)
	return nil
}

func (op *Operator) writeStatus(ctx context.Context, old, next *apiextensionsv1.CustomResourceDefinition) error {
	if equality.Semantic.DeepEqual(old.Status, next.Status) {
		return nil
	}
	return op.Writer.Update(ctx, next, "status")
}

func condition(status apiextensionsv1.ConditionStatus, reason, message string) apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: status, Reason: reason, Message: message}
}

// setEmptying has a kind's CRD woken when an instance goes; nil: no longer.
func (op *Operator) setEmptying(key controller.Key, gk *schema.GroupKind) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if gk != nil {
		op.emptying[*gk] = key
		return
	}
	for kind, k := range op.emptying {
		if k == key {
			delete(op.emptying, kind)
		}
	}
}
