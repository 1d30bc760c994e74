package controller

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StepAnnotation makes an operator act only when its value changes.
const StepAnnotation = "operatord.io/step"

// Subject is what the kit needs to know of an object that a Machine runs on. API types have these methods
// beside their fields. The kit, not Machine.Status, keeps status.step and status.lastAction.
type Subject interface {
	Object
	// Paused is spec.paused.
	Paused() bool
	// LastStep is status.step, the value of StepAnnotation seen last.
	LastStep() string
	SetLastStep(value string)
	// LastAction is status.lastAction; all zero when there is none.
	LastAction() (kind, target, why string, at metav1.MicroTime)
	SetLastAction(kind, target, why string, at metav1.MicroTime)
	// Conditions are status.conditions; the kit reads Ready to measure repair times.
	Conditions() []metav1.Condition
}

// MachineOptions connect a Machine. Name, For, Reader and Writer are required.
type MachineOptions struct {
	Name   string           // the operator's name: the source of Events
	For    schema.GroupKind // the kind it runs on
	Reader Reader
	Writer Writer
	// Conflict of names aside, an Event lost is an Event lost: they are written once, best effort.
	Metrics Metrics
	Log     *slog.Logger     // nil: slog.Default
	Now     func() time.Time // nil: time.Now; stamps lastAction and Events
}

// Plan is what a state machine would do next to one object.
type Plan struct {
	Kind   string // the action's, noop when there is nothing to do now
	Target string
	Why    string
	After  time.Duration // > 0: it looks again then
	Held   string        // why it won't be done by itself now: paused, step; empty otherwise
}

// Kit runs a Machine: it is the Reconciler of its kind, and plans and steps one object on demand.
// NewMachine makes one.
type Kit interface {
	Reconciler
	// Plan decides without doing.
	Plan(ctx context.Context, key Key) (Plan, error)
	// Step does exactly one action, in the object's turn among reconciles, and answers when it is done,
	// even if the object is held by StepAnnotation. A noop or a paused object is answered at once.
	Step(ctx context.Context, key Key) (Plan, error)
}
