package controller

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Controller runs a Reconciler for the objects of one kind. New makes one; it does nothing before Run.
type Controller struct {
	opts Options
	loop *Loop[Key]
}

// New subscribes a controller to its source, which must not run yet.
func New(o Options) *Controller {
	if o.Resync == 0 {
		o.Resync = 5 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	kinds := []schema.GroupKind{o.For}
	for _, w := range o.Watches {
		kinds = append(kinds, w.Kind)
	}
	c := &Controller{opts: o, loop: NewLoop(LoopOptions[Key]{
		Name:      o.Name,
		Reconcile: o.Reconciler.Reconcile,
		AtLeast: func(ctx context.Context, revision string) error {
			return o.Source.AtLeastOf(ctx, revision, kinds...)
		},
		Workers: o.Workers,
		BackOff: o.BackOff,
		Metrics: o.Metrics,
		Queue:   o.Queue,
		Log:     o.Log,
	})}
	o.Source.Subscribe(o.For, func(old, new Object) {
		if new == nil {
			new = old
		}
		c.Enqueue(Key{Namespace: new.GetNamespace(), Name: new.GetName()})
	})
	for _, w := range o.Watches {
		if w.Map == nil {
			continue
		}
		o.Source.Subscribe(w.Kind, func(old, new Object) {
			// Both sides: an object that no longer concerns a key did so until now.
			for _, obj := range []Object{old, new} {
				if obj == nil {
					continue
				}
				for _, key := range c.mapped(w, obj) {
					c.Enqueue(key)
				}
			}
		})
	}
	if r, ok := o.Reconciler.(Attacher); ok {
		r.Attach(c.Enqueue)
	}
	return c
}

// mapped calls a Map. One that panics costs its event, which a resync makes up for, and nothing else.
func (c *Controller) mapped(w Watch, obj Object) (keys []Key) {
	defer func() {
		if r := recover(); r != nil {
			c.opts.Log.Error("mapping a change to keys panicked", "kind", w.Kind, "object", Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}, "cause", r, "stack", string(debug.Stack()))
			if c.opts.Metrics.Reconciled != nil {
				c.opts.Metrics.Reconciled(c.opts.Name, "panic", 0)
			}
		}
	}()
	return w.Map(c.opts.Source, obj)
}

// Enqueue has a key looked at as soon as a worker is free.
func (c *Controller) Enqueue(key Key) { c.loop.Add(key) }

// Run waits until the controller's own kind is served and the views of all it watches are filled, then
// works until ctx ends and what is under way is done. It waits for no other operator: a watched kind that
// isn't served has no objects.
func (c *Controller) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	if c.opts.Hints != nil {
		group.Go(func() { c.takeHints(ctx) })
	}
	if err := c.synced(ctx); err == nil {
		if c.opts.Resync > 0 {
			group.Go(func() { c.resync(ctx) })
		}
	}
	// Also when ctx has ended: the loop owns its queue and ends it.
	c.loop.Run(ctx)
	return ctx.Err()
}

func (c *Controller) synced(ctx context.Context) error {
	if err := c.opts.Source.Synced(ctx, c.opts.For); err != nil {
		return err
	}
	for _, w := range c.opts.Watches {
		if err := c.opts.Source.SyncedIfServed(ctx, w.Kind); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) takeHints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key, ok := <-c.opts.Hints:
			if !ok {
				return
			}
			c.Enqueue(key)
		}
	}
}

// resync has every key looked at again and again, spread over a tenth of the interval.
func (c *Controller) resync(ctx context.Context) {
	spread := c.opts.Resync / 10
	for {
		timer := time.NewTimer(c.opts.Resync - spread/2)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for obj := range c.opts.Source.List(c.opts.For, Query{}) {
			c.loop.AddAfter(Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}, rand.N(spread+1))
		}
	}
}
