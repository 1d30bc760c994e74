package controller

import (
	"context"
	"errors"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// floor is the revision that the views must have reached before a key is reconciled again, so that an
// operator sees what it wrote. A reconcile's context carries the one that its writes raise.
type floor struct {
	mu     sync.Mutex
	rev    uint64
	latest bool // something was written and its revision isn't known: wait for the store's newest
}

type floorKey struct{}

func floorOf(ctx context.Context) *floor {
	f, _ := ctx.Value(floorKey{}).(*floor)
	return f
}

func (f *floor) raise(revision string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rev, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		f.latest = true
		return
	}
	f.rev = max(f.rev, rev)
}

// after notes the outcome of a write that answered with revision.
func (f *floor) after(err error, revision string) {
	if err == nil {
		f.raise(revision)
		return
	}
	var conflict interface{ PresentRevision() string }
	if errors.As(err, &conflict) {
		f.raise(conflict.PresentRevision())
	}
}

func (f *floor) isZero() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rev == 0 && !f.latest
}

// wait has atLeast wait for the floor; both nil-safe.
func (f *floor) wait(ctx context.Context, atLeast func(context.Context, string) error) error {
	if f == nil || atLeast == nil {
		return nil
	}
	f.mu.Lock()
	rev, latest := f.rev, f.latest
	f.mu.Unlock()
	if latest {
		return atLeast(ctx, "")
	}
	return atLeast(ctx, strconv.FormatUint(rev, 10))
}

// Tracked wraps a writer so that every answer and every conflict raises the floor of the key that the
// context's reconcile is about: that key isn't reconciled again before the views hold what was written.
// With a context from elsewhere it only writes.
func Tracked(w Writer) Writer { return tracked{w} }

type tracked struct{ w Writer }

func (t tracked) Create(ctx context.Context, obj Object) error {
	err := t.w.Create(ctx, obj)
	floorOf(ctx).after(err, obj.GetResourceVersion())
	return err
}

func (t tracked) Update(ctx context.Context, obj Object, subresource ...string) error {
	err := t.w.Update(ctx, obj, subresource...)
	floorOf(ctx).after(err, obj.GetResourceVersion())
	return err
}

func (t tracked) Patch(ctx context.Context, gk schema.GroupKind, key Key, pt types.PatchType, data []byte, subresource string) error {
	err := t.w.Patch(ctx, gk, key, pt, data, subresource)
	floorOf(ctx).after(err, "")
	return err
}

func (t tracked) Apply(ctx context.Context, obj Object) error {
	err := t.w.Apply(ctx, obj)
	floorOf(ctx).after(err, obj.GetResourceVersion())
	return err
}

func (t tracked) Delete(ctx context.Context, gk schema.GroupKind, key Key, opts metav1.DeleteOptions) error {
	err := t.w.Delete(ctx, gk, key, opts)
	floorOf(ctx).after(err, "")
	return err
}
