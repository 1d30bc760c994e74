// Package garbagecollector deletes objects whose owners are gone, and tends the finalizers
// foregroundDeletion and orphan of owners that are being deleted.
//
// It works on the metadata view over all kinds: an item is looked at when it, an owner or a dependent of it
// changes, and what is done follows from the present state alone. An owner is taken for absent only if no
// object has its uid at a revision not below the dependent's; a uid never comes back, so it is gone for
// good. A kind that isn't served is unknown, and nothing is deleted for it until it is; a version of a served kind
// need only be declared. Each write names
// the uid and revision that were looked at, so whatever changed meanwhile is looked at again.
package garbagecollector

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/resource"
)

// Name is the operator's name.
const Name = "garbagecollector"

// Options make a Collector. Set, Registry and Writer are required.
type Options struct {
	Set      *informer.Set
	Registry *resource.Registry
	Writer   controller.Writer // tracked
	Workers  int
	Metrics  controller.Metrics
	Queue    workqueue.MetricsProvider
	Log      *slog.Logger // nil: slog.Default
}

// Collector is the operator. Its keys are uids.
type Collector struct {
	Options
	items    *informer.Metadata
	loop     *controller.Loop[types.UID]
	recorder *controller.Recorder

	mu      sync.Mutex
	unknown map[types.UID]struct{} // dependents with an owner of a kind that isn't served
}

// New makes the collector, before its set runs.
func New(o Options) *Collector {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Collector{Options: o, items: o.Set.Metadata(), unknown: map[types.UID]struct{}{}}
	c.recorder = controller.NewRecorder(controller.RecorderOptions{Writer: o.Writer, Component: Name, Log: o.Log})
	c.loop = controller.NewLoop(controller.LoopOptions[types.UID]{
		Name:      Name,
		Reconcile: c.reconcile,
		AtLeast:   o.Set.AtLeast,
		Workers:   o.Workers,
		Metrics:   o.Metrics,
		Queue:     o.Queue,
		Log:       o.Log,
	})
	c.items.Subscribe(c.changed)
	return c
}

// Run collects until ctx ends. It begins when the views of all kinds are filled.
func (c *Collector) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	if c.Set.WaitForSync(ctx) == nil {
		group.Go(func() { c.followKinds(ctx) })
	}
	c.loop.Run(ctx)
	return ctx.Err()
}

// followKinds looks again at what waits for a kind to be served.
func (c *Collector) followKinds(ctx context.Context) {
	for {
		changed := c.Registry.Changed()
		c.mu.Lock()
		again := c.unknown
		c.unknown = map[types.UID]struct{}{}
		c.mu.Unlock()
		for uid := range again {
			c.loop.Add(uid)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// changed wakes whoever a change concerns: the item, its dependents when it goes or begins to wait for
// them, and its owners that wait for it.
func (c *Collector) changed(old, new *informer.Item) {
	if new == nil {
		c.mu.Lock()
		delete(c.unknown, old.UID())
		c.mu.Unlock()
	}
	if new != nil && (waits(new) || len(new.Owners()) > 0 && concerns(old, new)) {
		c.loop.Add(new.UID())
	}
	if old != nil && new == nil || new != nil && waitsForDependents(new) && (old == nil || !waitsForDependents(old)) {
		owner := old
		if new != nil {
			owner = new
		}
		for _, dependent := range c.items.Dependents(owner.UID()) {
			c.loop.Add(dependent.UID())
		}
	}
	if old == nil || new != nil && equality.Semantic.DeepEqual(old.Owners(), new.Owners()) {
		return
	}
	for _, ref := range old.Owners() {
		if owner, ok := c.items.ByUID(ref.UID); ok && waits(owner) {
			c.loop.Add(owner.UID())
		}
	}
}

func concerns(old, new *informer.Item) bool {
	return old == nil || old.Deleting() != new.Deleting() || !equality.Semantic.DeepEqual(old.Owners(), new.Owners()) ||
		!slices.Equal(old.Finalizers(), new.Finalizers())
}

func waits(i *informer.Item) bool { return waitsForDependents(i) || waitsToOrphan(i) }

func waitsForDependents(i *informer.Item) bool {
	return i.Deleting() && slices.Contains(i.Finalizers(), metav1.FinalizerDeleteDependents)
}

func waitsToOrphan(i *informer.Item) bool {
	return i.Deleting() && slices.Contains(i.Finalizers(), metav1.FinalizerOrphanDependents)
}

func (c *Collector) reconcile(ctx context.Context, uid types.UID) (controller.Result, error) {
	item, ok := c.items.ByUID(uid)
	if !ok {
		return controller.Result{}, nil
	}
	var err error
	switch {
	case waitsToOrphan(item):
		err = c.orphan(ctx, item)
	case waitsForDependents(item):
		err = c.awaitDependents(ctx, item)
	case item.Deleting() || len(item.Owners()) == 0:
	default:
		err = c.collect(ctx, item)
	}
	if apierrors.IsNotFound(err) {
		err = nil // gone, which the views will tell
	}
	return controller.Result{}, err
}

// orphan takes the owner off all its dependents, then the finalizer off the owner.
func (c *Collector) orphan(ctx context.Context, owner *informer.Item) error {
	if err := c.Set.AtLeast(ctx, ""); err != nil {
		return err
	}
	for _, dependent := range c.dependents(owner) {
		if err := c.disown(ctx, dependent, func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID() }); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return c.release(ctx, owner, metav1.FinalizerOrphanDependents)
}

// awaitDependents lets an owner go that is deleted in the foreground, once no dependent blocks it, or nothing does
// but a circle of such owners that it is in itself.
func (c *Collector) awaitDependents(ctx context.Context, owner *informer.Item) error {
	if err := c.Set.AtLeast(ctx, ""); err != nil {
		return err
	}
	blocking := c.blocking(owner)
	for _, dependent := range blocking {
		if !waitsForDependents(dependent) {
			c.loop.Add(dependent.UID())
		}
	}
	if len(blocking) > 0 && !c.circular(owner) {
		return nil
	}
	return c.release(ctx, owner, metav1.FinalizerDeleteDependents)
}

// circular tells whether an owner waits for itself, and all that it waits for waits as well: then none of them goes
// unless one goes first. While a circle waits for something else, that is waited for. Whatever makes this true
// happens to a member of the circle or to a dependent of one, so a member is looked at afterwards.
func (c *Collector) circular(owner *informer.Item) bool {
	itself := false
	seen := map[types.UID]bool{}
	for next := c.blocking(owner); len(next) > 0; {
		item := next[len(next)-1]
		next = next[:len(next)-1]
		if !waitsForDependents(item) {
			return false
		}
		itself = itself || item.UID() == owner.UID()
		if !seen[item.UID()] {
			seen[item.UID()] = true
			next = append(next, c.blocking(item)...)
		}
	}
	return itself
}

// blocking are the dependents that an owner in foreground deletion waits for.
func (c *Collector) blocking(owner *informer.Item) []*informer.Item {
	return slices.DeleteFunc(c.dependents(owner), func(d *informer.Item) bool { return !blocks(d, owner) })
}

// dependents are an owner's, those left out that may not have it as an owner.
func (c *Collector) dependents(owner *informer.Item) []*informer.Item {
	return slices.DeleteFunc(c.items.Dependents(owner.UID()), func(d *informer.Item) bool {
		return owner.Key.Namespace != "" && d.Key.Namespace != owner.Key.Namespace
	})
}

func blocks(dependent, owner *informer.Item) bool {
	return slices.ContainsFunc(dependent.Owners(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.UID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	})
}

// collect deletes an item that has owners, none of which exists any more, or exists only to wait for it.
func (c *Collector) collect(ctx context.Context, item *informer.Item) error {
	owners, err := c.classify(ctx, item)
	if err != nil || owners.keep {
		return err
	}
	gone := func(ref metav1.OwnerReference) bool {
		return slices.Contains(owners.absent, ref.UID) || slices.Contains(owners.waiting, ref.UID)
	}
	switch {
	case owners.solid > 0:
		if len(owners.absent)+len(owners.waiting) == 0 {
			return nil
		}
		return c.disown(ctx, item, gone)
	case len(owners.waiting) > 0 && len(c.items.Dependents(item.UID())) > 0:
		return c.delete(ctx, item, metav1.DeletePropagationForeground)
	case slices.Contains(item.Finalizers(), metav1.FinalizerOrphanDependents):
		return c.delete(ctx, item, metav1.DeletePropagationOrphan)
	case slices.Contains(item.Finalizers(), metav1.FinalizerDeleteDependents):
		return c.delete(ctx, item, metav1.DeletePropagationForeground)
	}
	return c.delete(ctx, item, metav1.DeletePropagationBackground)
}

func (c *Collector) kind(gk schema.GroupKind) (*resource.Kind, bool) { return c.Registry.ByKind(gk) }

func revision(i *informer.Item) string { return strconv.FormatUint(i.Rev, 10) }
