// Package namespace empties namespaces that are being deleted, and then lets them go.
//
// Pods go first, then everything else, as in Kubernetes. What remains, and which finalizers hold it, is told
// by the namespace's conditions, in Kubernetes' words. The operator waits by being woken when something in
// a terminating namespace goes; nothing is polled.
package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
)

// Name is the operator's name.
const Name = "namespace"

// Kind is what it reconciles.
func Kind() schema.GroupKind { return schema.GroupKind{Kind: "Namespace"} }

func podKind() schema.GroupKind { return schema.GroupKind{Kind: "Pod"} }

// Options make an Operator. Reader, Metadata and Writer are required.
type Options struct {
	Reader   controller.Reader
	Metadata *informer.Metadata
	Writer   controller.Writer // tracked
	Now      func() time.Time  // nil: time.Now
	Log      *slog.Logger      // nil: slog.Default
}

// Operator reconciles Namespaces.
type Operator struct {
	Options

	// Namespaces that are being emptied, so that what goes from them wakes them. After a restart the first
	// look at each namespace fills it again.
	mu       sync.Mutex
	emptying map[string]struct{}
	enqueue  func(controller.Key)
}

var _ controller.Attacher = (*Operator)(nil)

// New makes the operator, before the set of Options.Metadata runs.
func New(o Options) *Operator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	op := &Operator{Options: o, emptying: map[string]struct{}{}}
	o.Metadata.Subscribe(op.contentChanged)
	return op
}

// Attach has the operator wake namespaces itself.
func (op *Operator) Attach(enqueue func(controller.Key)) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.enqueue = enqueue
}

// contentChanged wakes a namespace that is being emptied when something in it goes, or appears after all.
func (op *Operator) contentChanged(old, new *informer.Item) {
	if old != nil && new != nil {
		return
	}
	item := new
	if item == nil {
		item = old
	}
	op.mu.Lock()
	_, waits := op.emptying[item.Key.Namespace]
	enqueue := op.enqueue
	op.mu.Unlock()
	if waits && enqueue != nil {
		enqueue(controller.Key{Name: item.Key.Namespace})
	}
}

// Reconcile empties one namespace, if it is being deleted.
func (op *Operator) Reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	obj, err := op.Reader.Get(Kind(), key)
	if apierrors.IsNotFound(err) {
		op.setEmptying(key.Name, false)
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return controller.Result{}, controller.Terminal(fmt.Errorf("namespace: %s is a %T", key, obj))
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		op.setEmptying(key.Name, false)
		return controller.Result{}, nil
	}
	op.setEmptying(key.Name, true)
	return controller.Result{}, op.empty(ctx, ns)
}

// empty deletes what is there, tells what remains, and lets the namespace go when nothing does.
func (op *Operator) empty(ctx context.Context, ns *corev1.Namespace) error {
	// Creates are refused since the namespace is being deleted: what the newest state holds is all.
	content, err := op.content(ctx, ns.Name)
	if err != nil {
		return err
	}
	pods := func(item *informer.Item) bool { return item.Kind() == podKind() }
	first := slices.Collect(filter(content, pods))
	if len(first) == 0 {
		first = content
	}
	background := metav1.DeletePropagationBackground
	failed := controller.DeleteAll(ctx, op.Writer, slices.Values(first), &background)
	if content, err = op.content(ctx, ns.Name); err != nil {
		return err
	}
	if len(failed) == 0 && len(content) > 0 && !slices.ContainsFunc(content, pods) && slices.ContainsFunc(first, pods) {
		// The Pods went at once, and what woke us was seen by this look already.
		failed = controller.DeleteAll(ctx, op.Writer, slices.Values(content), &background)
		if content, err = op.content(ctx, ns.Name); err != nil {
			return err
		}
	}
	next := ns.DeepCopy()
	setConditions(&next.Status, content, failed, metav1.NewTime(op.Now()))
	if !equality.Semantic.DeepEqual(ns.Status, next.Status) {
		if err := op.Writer.Update(ctx, next, "status"); err != nil {
			return ignoreNotFound(err)
		}
	}
	if len(content) > 0 {
		return utilerrors.NewAggregate(failed) // the next to go wakes us
	}
	next.Spec.Finalizers = slices.DeleteFunc(next.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if err := op.Writer.Update(ctx, next, "finalize"); err != nil {
		return ignoreNotFound(err)
	}
	op.setEmptying(ns.Name, false)
	op.Log.Info("namespace emptied", "namespace", ns.Name)
	return nil
}

// content is everything in a namespace at the newest revision.
func (op *Operator) content(ctx context.Context, namespace string) ([]*informer.Item, error) {
	if err := op.Reader.AtLeast(ctx, ""); err != nil {
		return nil, err
	}
	return slices.Collect(op.Metadata.InNamespace(namespace)), nil
}

func (op *Operator) setEmptying(namespace string, on bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if on {
		op.emptying[namespace] = struct{}{}
	} else {
		delete(op.emptying, namespace)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
