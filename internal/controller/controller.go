// Package controller is the machinery under every operator: queue, workers, and the state-machine kit in
// which a reconcile observes, decides purely, and does one thing.
//
// A key comes in from informers, from a channel of hints, from a resync or from RequeueAfter; it is
// deduplicated and rate-limited by client-go's workqueue; one worker at a time has it. The worker waits
// until the views hold everything that this operator wrote for the key (its floor), then runs one
// Reconcile. Events only say that something changed: what is done follows from the present state alone.
package controller

import (
	"context"
	"errors"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/informer"
)

// Key names one object of a controller's kind. Namespace is empty for cluster-scoped kinds. It is
// types.NamespacedName, so that rest.Local satisfies Writer without importing this package.
type Key = informer.Key

// Object is a typed (or unstructured) API object; the same type as resource.Object.
type Object = informer.Object

// Query narrows a List. Zero fields narrow nothing.
type Query = informer.Query

// Reader reads the informers' views. What it returns is shared: copy before changing. *informer.Set is one.
type Reader interface {
	// Get returns an errors.IsNotFound error when the view has no such object, or the kind isn't served.
	Get(gk schema.GroupKind, key Key) (Object, error)
	// List gives objects in order of namespace and name.
	List(gk schema.GroupKind, q Query) iter.Seq[Object]
	// AtLeast waits until every view has reached a resourceVersion; "" is the store's present one.
	AtLeast(ctx context.Context, revision string) error
}

// Writer writes through internal/apiserver/rest, as the operator's own user. Each call fills the object in
// with the answer. Errors are API errors (k8s.io/apimachinery/pkg/api/errors); one that is a conflict holds
// the present resourceVersion: errors.As(err, *interface{ PresentRevision() string }).
type Writer interface {
	Create(ctx context.Context, obj Object) error
	Update(ctx context.Context, obj Object, subresource ...string) error
	Patch(ctx context.Context, gk schema.GroupKind, key Key, pt types.PatchType, data []byte, subresource string) error
	Apply(ctx context.Context, obj Object) error // server-side apply, force; the field manager is the operator's name
	Delete(ctx context.Context, gk schema.GroupKind, key Key, opts metav1.DeleteOptions) error
}

// Result says when to look again although nothing changed.
type Result struct {
	RequeueAfter time.Duration // zero: not before the resync
	Again        bool          // at once, behind what is queued; together with RequeueAfter both happen
}

// Reconciler makes the world match one object. It is never run for one key by two workers at once.
type Reconciler interface {
	Reconcile(ctx context.Context, key Key) (Result, error)
}

// Attacher is a Reconciler that wakes its own keys: New gives it Controller.Enqueue, which never blocks.
type Attacher interface{ Attach(enqueue func(Key)) }

// Terminal marks an error that a retry cannot mend: it is counted and logged, and the key waits for the
// next change.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return "terminal: " + e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

// IsTerminal tells whether err was marked by Terminal.
func IsTerminal(err error) bool {
	var t *terminalError
	return errors.As(err, &t)
}

// ErrRunning is what Machine.Act returns while something long that it began (a copy of a directory) goes on
// outside the workers. It is no failure: no back-off, and no Event, metric or log line before the action is
// done. A hint brings the key back, Decide decides the same, and Act is called again, even if the value of
// StepAnnotation that began it is used up meanwhile.
var ErrRunning = errors.New("begun, and goes on outside the workers")

// Action is one thing to do, or the reason for doing nothing.
type Action interface {
	Kind() string         // metric label, Event, status.lastAction
	Target() string       // what it is done to
	Why() string          // for people
	After() time.Duration // > 0: look again then, although nothing changed
	Noop() bool
}

// Event is a core/v1 Event in the making.
type Event struct{ Type, Reason, Message string }

// Machine is an operator that fills one gap a reconcile. Observe may fail; the rest that is pure may not.
type Machine[T Object, O any, A Action] interface {
	// Observe reads the world; the clock is read here and nowhere else.
	Observe(ctx context.Context, r Reader, obj T) (O, error)
	// Decide is pure: a flat run of `if gap { return action }`.
	Decide(obj T, o O) A
	// Status is pure: a copy of obj whose status is true while a is being done. held says why nothing is
	// done now ("paused", "step"), whether a is a noop or not; empty otherwise. The kit adds status.step
	// and status.lastAction.
	Status(obj T, o O, a A, held string) T
	// Act does one write or one process call, idempotently. ErrRunning: it isn't done yet.
	Act(ctx context.Context, w Writer, obj T, a A) error
	// Events is pure; called after Act, and also without one (a noop, or held) when the status was changed:
	// then only what the change of status tells is an Event, and a is a noop, or the zero A if that is one.
	// Events may be lost by a kill, never doubled.
	Events(old, new T, a A) []Event
	// Gone clears up after an object that doesn't exist.
	Gone(ctx context.Context, key Key) error
}
