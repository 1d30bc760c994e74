package apiserver

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Planner tells what an operator would do next for one object, and has it done. Errors are API errors: 404
// for an object that doesn't exist and for a kind whose operator is off.
type Planner interface {
	Plan(ctx context.Context, gk schema.GroupKind, namespace, name string) (Plan, error)
	// Step takes exactly one action and returns what it was.
	Step(ctx context.Context, gk schema.GroupKind, namespace, name string) (Plan, error)
}

// Plan is an operator's next action on one object.
type Plan struct {
	Kind   string `json:"kind"`             // of the action
	Target string `json:"target,omitempty"` // what it is done to
	Why    string `json:"why,omitempty"`
	After  string `json:"after,omitempty"` // how long it waits before it does it: "1m30s"
	Held   string `json:"held,omitempty"`  // why it won't be done now
}

// servePlan answers GET …/NAME/plan and POST …/NAME/step; false when the request is neither.
func (x *exchange) servePlan() bool {
	sub := x.info.Subresource
	if sub != "plan" && sub != "step" || len(x.info.Parts) != 3 {
		return false
	}
	if x.kind.Subresources[sub] != nil {
		return false
	}
	name, err := x.name()
	if err != nil {
		x.fail(err)
		return true
	}
	if x.s.cfg.Planner == nil {
		x.fail(apierrors.NewNotFound(x.kind.GroupResource(), name))
		return true
	}
	var plan Plan
	switch {
	case sub == "plan" && x.r.Method == http.MethodGet:
		plan, err = x.s.cfg.Planner.Plan(x.ctx, x.kind.GroupKind, x.namespace(), name)
	case sub == "step" && x.r.Method == http.MethodPost:
		plan, err = x.step(name)
	default:
		err = apierrors.NewMethodNotSupported(x.kind.GroupResource(), x.info.Verb)
	}
	if err != nil {
		x.fail(err)
		return true
	}
	x.writeJSON(http.StatusOK, plan)
	return true
}

// step takes one action, or says which, if it is a dry run.
func (x *exchange) step(name string) (Plan, error) {
	o, err := x.createOptions()
	if err != nil {
		return Plan{}, err
	}
	act := x.s.cfg.Planner.Step
	if len(o.DryRun) > 0 {
		act = x.s.cfg.Planner.Plan
	}
	return act(x.ctx, x.kind.GroupKind, x.namespace(), name)
}
