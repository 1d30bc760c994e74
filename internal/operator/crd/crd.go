// Package crd tends CustomResourceDefinitions: it accepts their names, establishes them, and empties the
// kind of one that is being deleted. It always runs, because without it no custom kind is served.
//
// The registry follows the status that is written here: a kind is served from the revision at which its
// CRD became Established. Conditions, reasons and messages are kube-apiserver's, and some more say why a CRD that
// kube-apiserver would serve isn't served here. One worker looks at one
// CRD after the other at the newest state, so that two can't be given the same name.
//
// What the server needs before anyone can use it stands here too: EnsureNamespaces makes the four
// namespaces that always exist, Install the CRDs of our own kinds.
package crd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/resource"
	resourcecrd "operatord.io/operatord/internal/resource/crd"
)

// Name is the operator's name.
const Name = "crd"

// Kind is what it reconciles.
func Kind() schema.GroupKind {
	return schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}
}

// Options make an Operator. All are required but Own and Log.
type Options struct {
	Reader   Reader
	Metadata *informer.Metadata
	Writer   controller.Writer // tracked
	// Builtin are the kinds that are compiled in. Their names are nobody else's.
	Builtin []*resource.Kind
	// Own are the definitions that operators install. Their names are theirs in their group, also while they
	// aren't there, and one of their name isn't established in another scope or with another kind.
	Own []*apiextensionsv1.CustomResourceDefinition
	Log *slog.Logger
}

// Reader is controller.Reader that can also wait for one kind. *informer.Set is one.
type Reader interface {
	controller.Reader
	AtLeastOf(ctx context.Context, revision string, kinds ...schema.GroupKind) error
}

// Operator reconciles CustomResourceDefinitions. Run it with one worker.
type Operator struct {
	Options

	// Custom kinds that are being emptied, so that the end of an instance wakes its CRD. After a restart
	// the first look at each CRD fills it again.
	mu       sync.Mutex
	emptying map[schema.GroupKind]controller.Key
	enqueue  func(controller.Key)
}

var _ controller.Attacher = (*Operator)(nil)

// New makes the operator, before the set of Options.Metadata runs.
func New(o Options) *Operator {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	op := &Operator{Options: o, emptying: map[schema.GroupKind]controller.Key{}}
	o.Metadata.Subscribe(op.instanceChanged)
	return op
}

// Watches are the changes of other objects that concern a CRD: those of CRDs of the same group, which may
// give a name back.
func (op *Operator) Watches() []controller.Watch {
	return []controller.Watch{{Kind: Kind(), Map: func(r controller.Reader, obj controller.Object) []controller.Key {
		changed, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return nil
		}
		var keys []controller.Key
		for other := range definitions(r) {
			if other.Spec.Group == changed.Spec.Group && other.Name != changed.Name && !namesAreTrue(other) {
				keys = append(keys, controller.Key{Name: other.Name})
			}
		}
		return keys
	}}}
}

// Attach has the operator wake CRDs itself.
func (op *Operator) Attach(enqueue func(controller.Key)) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.enqueue = enqueue
}

// instanceChanged wakes the CRD that waits for an instance to go.
func (op *Operator) instanceChanged(old, new *informer.Item) {
	if old == nil || new != nil {
		return
	}
	op.mu.Lock()
	key, waits := op.emptying[old.Kind()]
	enqueue := op.enqueue
	op.mu.Unlock()
	if waits && enqueue != nil {
		enqueue(key)
	}
}

// Reconcile makes the conditions of one CRD true.
func (op *Operator) Reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	// Names are given out from what all CRDs have, so the newest state is needed of all of them.
	if err := op.Reader.AtLeastOf(ctx, "", Kind()); err != nil {
		return controller.Result{}, err
	}
	obj, err := op.Reader.Get(Kind(), key)
	if apierrors.IsNotFound(err) {
		op.setEmptying(key, nil)
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return controller.Result{}, controller.Terminal(fmt.Errorf("crd: %s is a %T", key, obj))
	}
	if crd.DeletionTimestamp != nil {
		return controller.Result{}, op.terminate(ctx, crd)
	}
	next := crd.DeepCopy()
	if apihelpers.IsCRDConditionFalse(crd, resourcecrd.Servable) && resourcecrd.Check(crd) == nil {
		// This release serves what an earlier one couldn't. A write that changes nothing has it marked so.
		return controller.Result{}, op.Writer.Update(ctx, next)
	}
	op.acceptNames(next)
	op.establish(next)
	approve(next)
	if equality.Semantic.DeepEqual(crd.Status, next.Status) {
		return controller.Result{}, nil
	}
	if err := op.Writer.Update(ctx, next, "status"); err != nil {
		return controller.Result{}, err
	}
	if apihelpers.IsCRDConditionTrue(next, apiextensionsv1.Established) && !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		op.Log.Info("custom kind served", "crd", crd.Name)
	}
	return controller.Result{}, nil
}
