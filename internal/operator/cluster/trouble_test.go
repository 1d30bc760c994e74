package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/controller"
)

// refusing is a writer that creates nothing.
type refusing struct {
	controller.Writer
	err error
}

func (r refusing) Create(context.Context, controller.Object) error { return r.err }

// TestAFailingActionIsTold: the status says why nothing happens, an Event says it once, and success ends both.
func TestAFailingActionIsTold(t *testing.T) {
	op := newTest(t)
	cl := demo(1)
	no := refusing{err: errors.New("disk quota exceeded")}
	reconcile := func(w controller.Writer) (events string) {
		o, err := op.Observe(t.Context(), backups{}, cl)
		if err != nil {
			t.Fatal(err)
		}
		a := op.Decide(cl, o)
		next := op.Status(cl, o, a, "")
		events = reasons(op, cl, next, Action{})
		cl = next
		_ = op.Act(t.Context(), w, cl, a)
		return events
	}
	reconcile(no)
	if events := reconcile(no); events != "ActionFailed" {
		t.Errorf("Events %q", events)
	}
	for _, typ := range []string{"Ready", "Progressing"} {
		if c := meta.FindStatusCondition(cl.Status.Conditions, typ); !strings.Contains(c.Message, "create demo-0: disk quota exceeded") {
			t.Errorf("%+v", c)
		}
	}
	if events := reconcile(sink{}); events != "" {
		t.Errorf("told again: %q", events)
	}
	reconcile(sink{})
	if c := meta.FindStatusCondition(cl.Status.Conditions, "Progressing"); c.Reason != "Creating" {
		t.Errorf("it still fails: %+v", c)
	}
	if err := op.Gone(t.Context(), keyOf(cl)); err != nil || len(op.failed.byKey) > 0 {
		t.Errorf("remembered: %v", op.failed.byKey)
	}
}

// TestS46NoStormInATerminatingNamespace: what can't be created because its namespace goes isn't tried again.
func TestS46NoStormInATerminatingNamespace(t *testing.T) {
	op, cl := newTest(t), demo(1)
	err := apierrors.NewForbidden(corev1.Resource("pods"), "demo-0", errors.New("namespace default is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	if got := op.Act(t.Context(), refusing{err: err}, cl, op.Decide(cl, world())); !controller.IsTerminal(got) {
		t.Errorf("got %v", got)
	}
}
