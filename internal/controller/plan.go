package controller

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Plan is what a state machine would do next to one object, or has just done.
type Plan struct {
	Kind   string // the action's; noop when there is nothing to do now
	Target string
	Why    string
	After  time.Duration // > 0: it looks again then
	Held   string        // why it won't be done by itself now: paused, step; empty for noop, of which nothing is held
}

func planOf(a Action, held string) Plan {
	if a.Noop() {
		held = ""
	}
	return Plan{Kind: a.Kind(), Target: a.Target(), Why: a.Why(), After: a.After(), Held: held}
}

// step is one call of Step, from when it is asked for to when its action is done.
type step struct {
	plan   Plan
	begun  bool // Act was called and hasn't failed; done as soon as something else is decided
	acted  bool // Act has returned for good: it isn't forced again
	answer chan stepAnswer
}

type stepAnswer struct {
	plan Plan
	err  error
}

// errNotRunning is Step's before a Controller has the kit.
var errNotRunning = errors.New("controller: nobody runs this operator")

func (k *kit[T, O, A]) Plan(ctx context.Context, key Key) (Plan, error) {
	obj, _, a, err := k.look(ctx, key)
	if err != nil {
		return Plan{}, err
	}
	held, _ := holds(obj)
	return planOf(a, held), nil
}

func (k *kit[T, O, A]) Step(ctx context.Context, key Key) (Plan, error) {
	if _, err := k.Reader.Get(k.For, key); err != nil {
		return Plan{}, err
	}
	s := &step{answer: make(chan stepAnswer, 1)}
	k.mu.Lock()
	enqueue := k.enqueue
	if enqueue == nil {
		k.mu.Unlock()
		return Plan{}, errNotRunning
	}
	k.steps[key] = append(k.steps[key], s)
	k.mu.Unlock()
	enqueue(key)
	select {
	case answer := <-s.answer:
		return answer.plan, answer.err
	case <-ctx.Done():
		k.mu.Lock()
		defer k.mu.Unlock()
		k.drop(key, s)
		return Plan{}, ctx.Err()
	}
}

// askedFor tells whether somebody asked for a to be done now. It answers a step whose action is done, and
// one that has nothing to do.
func (k *kit[T, O, A]) askedFor(key Key, a A, held string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.steps[key]) > 0 {
		s := k.steps[key][0]
		same := s.begun && s.plan.Kind == a.Kind() && s.plan.Target == a.Target()
		switch {
		case s.acted && same:
			return false // the machine doesn't see yet that it is done
		case s.begun && !same:
			s.answer <- stepAnswer{plan: s.plan}
			k.drop(key, s)
			continue
		case !s.begun && (a.Noop() || held == HeldPaused):
			s.answer <- stepAnswer{plan: planOf(a, held)}
			k.drop(key, s)
			continue
		}
		s.plan = planOf(a, "")
		return true
	}
	return false
}

// acted notes that Act was called: for good, or it goes on.
func (k *kit[T, O, A]) acted(key Key, asked, done bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if steps := k.steps[key]; asked && len(steps) > 0 {
		steps[0].begun, steps[0].acted = true, done
	}
}

// fail ends the steps of a key with an error.
func (k *kit[T, O, A]) fail(key Key, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.steps[key]) > 0 {
		s := k.steps[key][0]
		s.answer <- stepAnswer{err: err}
		k.drop(key, s)
	}
}

func (k *kit[T, O, A]) drop(key Key, s *step) {
	rest := slices.DeleteFunc(k.steps[key], func(other *step) bool { return other == s })
	if len(rest) == 0 {
		delete(k.steps, key)
	} else {
		k.steps[key] = rest
	}
}
