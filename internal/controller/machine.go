package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StepAnnotation makes an operator act only when its value changes.
const StepAnnotation = "operatord.io/step"

// Why nothing is done now.
const (
	HeldPaused = "paused"
	HeldStep   = "step"
)

// Subject is what the kit needs to know of an object that a Machine runs on. API types have these methods
// beside their fields. The kit, not Machine.Status, keeps status.step and status.lastAction.
//
// A type may also have WasReady() bool, true once it was Ready in its present generation or an earlier one:
// with it a repair's time is measured over a restart too, from the condition Ready's lastTransitionTime.
type Subject interface {
	Object
	// Paused is spec.paused.
	Paused() bool
	// LastStep is status.step, the value of StepAnnotation seen last, which may be empty; nil: none was.
	LastStep() *string
	SetLastStep(value *string)
	// LastAction is status.lastAction; all zero when there is none.
	LastAction() (kind, target, why string, at metav1.MicroTime)
	SetLastAction(kind, target, why string, at metav1.MicroTime)
	// Conditions are status.conditions; the kit reads Ready to measure repair times.
	Conditions() []metav1.Condition
}

// MachineOptions connect a Machine. Name, For, Reader and Writer are required.
type MachineOptions struct {
	Name    string           // the operator's name: the source of Events
	For     schema.GroupKind // the kind it runs on
	Reader  Reader
	Writer  Writer // Tracked, so that each reconcile sees what the last one wrote
	Metrics Metrics
	Log     *slog.Logger     // nil: slog.Default
	Now     func() time.Time // nil: time.Now; stamps lastAction and Events
}

// Kit runs a Machine: it is the Reconciler of its kind, and plans and steps one object on demand.
//
// One reconcile is Observe, Decide, write the status if it differs, Act, Events. An object is held, so that
// its status is kept true and nothing else is done, while it is paused or stepping; one that is being
// deleted never is. Stepping: StepAnnotation is there, and its value was seen before. status.step, the value
// seen last, is written before acting, so a value acts at most once; it is used up when the decision is a
// noop, and the first value only starts stepping. Without the annotation there is no status.step, so
// that putting it back only holds.
type Kit interface {
	Reconciler
	// Plan decides without doing.
	Plan(ctx context.Context, key Key) (Plan, error)
	// Step does exactly one action, in the object's turn among reconciles, and answers when it is done:
	// also for an object that is stepping. A noop or a paused object is answered at once. Errors: NotFound,
	// what the action failed with, or the context's.
	Step(ctx context.Context, key Key) (Plan, error)
}

// NewMachine makes the kit of a machine. It is handed to New as the Reconciler; Step works from then on.
func NewMachine[T Subject, O any, A Action](o MachineOptions, m Machine[T, O, A]) Kit {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &kit[T, O, A]{
		MachineOptions: o,
		machine:        m,
		recorder:       NewRecorder(RecorderOptions{Writer: o.Writer, Component: o.Name, Now: o.Now, Log: o.Log}),
		steps:          map[Key][]*step{},
		running:        map[Key]running{},
		gaps:           map[Key]time.Time{},
	}
}

type kit[T Subject, O any, A Action] struct {
	MachineOptions
	machine  Machine[T, O, A]
	recorder *Recorder
	enqueue  func(Key)

	// Nothing that a decision needs: losing all of it changes no outcome.
	mu      sync.Mutex
	steps   map[Key][]*step   // asked for by Step, oldest first
	running map[Key]running   // actions that go on outside the workers
	gaps    map[Key]time.Time // when a gap was first seen in an object that was Ready
}

type running struct{ kind, target string }

// Attach makes Step work.
func (k *kit[T, O, A]) Attach(enqueue func(Key)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enqueue = enqueue
}

// look reads an object and decides about it.
func (k *kit[T, O, A]) look(ctx context.Context, key Key) (obj T, o O, a A, err error) {
	found, err := k.Reader.Get(k.For, key)
	if err != nil {
		return obj, o, a, err
	}
	obj, ok := found.(T)
	if !ok {
		return obj, o, a, Terminal(fmt.Errorf("%s %s is a %T, not a %T", k.For, key, found, obj))
	}
	if o, err = k.machine.Observe(ctx, k.Reader, obj); err != nil {
		return obj, o, a, fmt.Errorf("observe: %w", err)
	}
	return obj, o, k.machine.Decide(obj, o), nil
}

// holds says why nothing is done to an object now, and what its status.step has to be.
func holds(obj Subject) (held string, step *string) {
	last := obj.LastStep()
	if value, stepping := obj.GetAnnotations()[StepAnnotation]; stepping {
		step = &value
	}
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return "", last
	case obj.Paused():
		held = HeldPaused
	case step != nil && (last == nil || *last == *step):
		held = HeldStep
	}
	return held, step
}

func (k *kit[T, O, A]) Reconcile(ctx context.Context, key Key) (Result, error) {
	obj, o, a, err := k.look(ctx, key)
	if err != nil {
		if apierrors.IsNotFound(err) {
			k.forget(key, err)
			return Result{}, k.machine.Gone(ctx, key)
		}
		k.fail(key, err)
		return Result{}, err
	}
	held, seen := holds(obj)
	asked := k.askedFor(key, a, held)
	if asked || k.goesOn(key, a) && held == HeldStep {
		held = ""
	}
	acting := !a.Noop() && held == ""

	next, wrote, err := k.writeStatus(ctx, obj, o, a, held, seen, acting)
	switch {
	case apierrors.IsNotFound(err):
		return Result{}, nil // it has gone, which the views are about to tell
	case err != nil:
		return Result{}, fmt.Errorf("status: %w", err)
	}
	k.measure(key, obj, next)
	if !acting {
		if wrote {
			k.recordChange(ctx, obj, next, a, a.Noop())
		}
		return Result{RequeueAfter: a.After()}, nil
	}

	start := k.Now()
	err = k.machine.Act(ctx, k.Writer, next, a)
	if errors.Is(err, ErrRunning) {
		k.setRunning(key, &running{a.Kind(), a.Target()})
		k.acted(key, asked, false)
		if wrote {
			k.recordChange(ctx, obj, next, a, false)
		}
		return Result{RequeueAfter: a.After()}, nil
	}
	k.setRunning(key, nil)
	if err != nil {
		if wrote {
			k.recordChange(ctx, obj, next, a, false)
		}
		err = fmt.Errorf("%s %s: %w", a.Kind(), a.Target(), err)
		if !apierrors.IsConflict(err) {
			k.fail(key, err)
		}
		return Result{}, err
	}
	k.Log.Info("acted", "kind", k.For.Kind, "object", key, "action", a.Kind(), "target", a.Target(), "why", a.Why(), "took", k.Now().Sub(start))
	if k.Metrics.Acted != nil {
		k.Metrics.Acted(k.For.Kind, a.Kind())
	}
	k.recordDone(ctx, obj, next, a, wrote)
	k.acted(key, asked, true)
	return Result{RequeueAfter: a.After(), Again: true}, nil
}

// writeStatus makes the object's status true for what is about to happen, and writes it if it differs.
func (k *kit[T, O, A]) writeStatus(ctx context.Context, obj T, o O, a A, held string, seen *string, acting bool) (next T, wrote bool, err error) {
	next = k.machine.Status(obj, o, a, held)
	if any(next) == any(obj) {
		next = obj.DeepCopyObject().(T) // what the views hold is never changed
	}
	next.SetLastStep(seen)
	if kind, target, why, _ := obj.LastAction(); acting && (kind != a.Kind() || target != a.Target() || why != a.Why()) {
		next.SetLastAction(a.Kind(), a.Target(), a.Why(), metav1.NewMicroTime(k.Now().Truncate(time.Microsecond)))
	}
	if equality.Semantic.DeepEqual(obj, next) {
		return next, false, nil
	}
	return next, true, k.Writer.Update(ctx, next, "status")
}

// recordChange records what only the change of status tells: of a itself there is nothing to tell. Unless
// it is a noop the machine is shown the zero action instead, if that is one.
func (k *kit[T, O, A]) recordChange(ctx context.Context, old, next T, a A, noop bool) {
	if !noop {
		var none A
		if !isNoop(none) {
			return
		}
		a = none
	}
	k.record(ctx, next, k.machine.Events(old, next, a), 0)
}

// recordDone records what the change of status tells, if it was written, and then the action that is done.
func (k *kit[T, O, A]) recordDone(ctx context.Context, old, next T, a A, wrote bool) {
	events := k.machine.Events(old, next, a)
	change := 0
	var none A
	if wrote && isNoop(none) {
		change = min(len(k.machine.Events(old, next, none)), len(events))
	}
	k.record(ctx, next, events[:change], 0)
	k.record(ctx, next, events[change:], doneOrder)
}

func isNoop(a Action) bool { return a != nil && a.Noop() }

// doneOrder is where the Events of an action stand among those of one status: behind what the status itself tells,
// also when the action succeeds at a later try.
const doneOrder = 0x80

// record writes Events. What makes one unique is the status that it was seen in, and its place among that status's.
func (k *kit[T, O, A]) record(ctx context.Context, obj T, events []Event, from int) {
	for i, e := range events {
		k.recorder.Record(ctx, obj, k.For, e, Occurrence(obj.GetResourceVersion(), from+i))
	}
}

func (k *kit[T, O, A]) setRunning(key Key, r *running) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r == nil {
		delete(k.running, key)
	} else {
		k.running[key] = *r
	}
}

// goesOn tells whether a is an action that was begun and goes on outside the workers.
func (k *kit[T, O, A]) goesOn(key Key, a A) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.running[key]
	if ok && (r != running{a.Kind(), a.Target()}) {
		delete(k.running, key) // decided otherwise meanwhile
		ok = false
	}
	return ok
}

// measure reports repair times: from the first sight of a gap in an object that was Ready to Ready again.
func (k *kit[T, O, A]) measure(key Key, old, next T) {
	was := meta.FindStatusCondition(old.Conditions(), "Ready")
	is := meta.FindStatusCondition(next.Conditions(), "Ready")
	wasReady := was != nil && was.Status == metav1.ConditionTrue
	isReady := is != nil && is.Status == metav1.ConditionTrue
	if wasReady == isReady {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if wasReady {
		k.gaps[key] = k.Now()
		return
	}
	since, seen := k.gaps[key]
	delete(k.gaps, key)
	if !seen {
		// The gap was there when this process started: its condition tells since when, if it is one.
		before, ok := any(old).(interface{ WasReady() bool })
		if !ok || !before.WasReady() || was == nil {
			return
		}
		since = was.LastTransitionTime.Time
	}
	if k.Metrics.Repaired != nil {
		k.Metrics.Repaired(k.For.Kind, max(0, k.Now().Sub(since)))
	}
}

func (k *kit[T, O, A]) forget(key Key, err error) {
	k.mu.Lock()
	delete(k.gaps, key)
	delete(k.running, key)
	k.mu.Unlock()
	k.fail(key, err)
}
