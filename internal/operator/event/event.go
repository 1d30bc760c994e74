// Package event deletes Events an hour after they were last seen, as Kubernetes has its store do. Nothing else
// takes them away while what they are about lives, and operators write one for each action.
package event

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/controller"
)

// Name is the operator's name.
const Name = "event"

// Kind is what it reconciles.
func Kind() schema.GroupKind { return schema.GroupKind{Kind: "Event"} }

// kept is how long an Event stays after it was last seen.
const kept = time.Hour

// Options make an Operator. Reader and Writer are required.
type Options struct {
	Reader controller.Reader
	Writer controller.Writer // tracked
	Now    func() time.Time  // nil: time.Now
	Log    *slog.Logger      // nil: slog.Default
}

// Operator reconciles Events.
type Operator struct{ Options }

var _ controller.Reconciler = (*Operator)(nil)

// New makes the operator.
func New(o Options) *Operator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Operator{o}
}

// Reconcile deletes one Event if its time is over, and else looks at it again then.
func (op *Operator) Reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	obj, err := op.Reader.Get(Kind(), key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	e, ok := obj.(*corev1.Event)
	if !ok {
		return controller.Result{}, controller.Terminal(fmt.Errorf("event: %s is a %T", key, obj))
	}
	now := op.Now()
	if left := lastSeen(e, now).Add(kept).Sub(now); left > 0 {
		return controller.Result{RequeueAfter: left}, nil
	}
	if e.DeletionTimestamp != nil {
		return controller.Result{}, nil // somebody's finalizer holds it
	}
	err = op.Writer.Delete(ctx, Kind(), key, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &e.UID, ResourceVersion: &e.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err == nil {
		op.Log.Debug("event expired", "event", key)
	}
	return controller.Result{}, err
}

// lastSeen is the latest time that an Event tells of itself. One that is still to come doesn't count: a client
// whose clock is wrong must not have it kept for ever.
func lastSeen(e *corev1.Event, now time.Time) time.Time {
	seen := e.CreationTimestamp.Time
	times := []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(seen) && !t.After(now) {
			seen = t
		}
	}
	return seen
}
