package daemon

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/apiserver"
	"operatord.io/operatord/internal/controller"
)

// planner shows and takes the next actions of the operators that run.
type planner map[schema.GroupKind]controller.Kit

var _ apiserver.Planner = planner(nil)

func (s *server) planner() planner {
	p := planner{}
	for _, o := range s.operators {
		if o.kit != nil {
			p[o.kind] = o.kit
		}
	}
	return p
}

// Plan decides without doing.
func (p planner) Plan(ctx context.Context, gk schema.GroupKind, namespace, name string) (apiserver.Plan, error) {
	kit, err := p.kit(gk, name)
	if err != nil {
		return apiserver.Plan{}, err
	}
	return answer(kit.Plan(ctx, controller.Key{Namespace: namespace, Name: name}))
}

// Step has one action done.
func (p planner) Step(ctx context.Context, gk schema.GroupKind, namespace, name string) (apiserver.Plan, error) {
	kit, err := p.kit(gk, name)
	if err != nil {
		return apiserver.Plan{}, err
	}
	return answer(kit.Step(ctx, controller.Key{Namespace: namespace, Name: name}))
}

func (p planner) kit(gk schema.GroupKind, name string) (controller.Kit, error) {
	kit, ok := p[gk]
	if !ok {
		err := apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, name)
		err.ErrStatus.Message = "no operator that plans its steps tends " + gk.String() + " in this daemon (see serve --operators)"
		return nil, err
	}
	return kit, nil
}

func answer(p controller.Plan, err error) (apiserver.Plan, error) {
	if err != nil {
		return apiserver.Plan{}, err
	}
	out := apiserver.Plan{Kind: p.Kind, Target: p.Target, Why: p.Why, Held: p.Held}
	if p.After > 0 {
		out.After = p.After.String()
	}
	return out, nil
}
