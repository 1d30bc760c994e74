package event

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/controller"
)

// world holds one Event, or none, and remembers how it was deleted.
type world struct {
	controller.Reader
	controller.Writer
	event   *corev1.Event
	refuses error
	deleted *metav1.DeleteOptions
}

func (w *world) Get(_ schema.GroupKind, key controller.Key) (controller.Object, error) {
	if w.event == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("events"), key.Name)
	}
	return w.event, nil
}

func (w *world) Delete(_ context.Context, _ schema.GroupKind, _ controller.Key, opts metav1.DeleteOptions) error {
	w.deleted = &opts
	return w.refuses
}

func TestReconcile(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute)) }
	micro := func(minutes int) metav1.MicroTime { return metav1.MicroTime(at(minutes)) }
	for name, c := range map[string]struct {
		change func(*corev1.Event)
		again  time.Duration // 0: it is deleted
	}{
		"an old one goes":                 {func(*corev1.Event) {}, 0},
		"a new one stays for its hour":    {func(e *corev1.Event) { e.CreationTimestamp = at(-10) }, 50 * time.Minute},
		"one that was seen again":         {func(e *corev1.Event) { e.LastTimestamp = at(-20) }, 40 * time.Minute},
		"one that says when it was":       {func(e *corev1.Event) { e.EventTime = micro(-30) }, 30 * time.Minute},
		"one of a series":                 {func(e *corev1.Event) { e.Series = &corev1.EventSeries{LastObservedTime: micro(-59)} }, time.Minute},
		"one that says it is yet to come": {func(e *corev1.Event) { e.LastTimestamp = at(1000) }, 0},
	} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", CreationTimestamp: at(-60)}}
		c.change(e)
		w := &world{event: e}
		op := New(Options{Reader: w, Writer: w, Now: func() time.Time { return now }})
		result, err := op.Reconcile(t.Context(), controller.Key{})
		if err != nil || result.RequeueAfter != c.again || (w.deleted != nil) != (c.again == 0) {
			t.Errorf("%s: again in %v, deleted %v, %v; want again in %v", name, result.RequeueAfter, w.deleted != nil, err, c.again)
		}
		if w.deleted != nil && (*w.deleted.Preconditions.UID != "u" || *w.deleted.Preconditions.ResourceVersion != "7") {
			t.Errorf("%s: deleted whatever is there now", name)
		}
	}
}

func TestReconcileWhatIsGone(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("events"), "e")
	busy := errors.New("busy")
	for _, c := range []struct {
		w    *world
		want error
	}{
		{&world{}, nil},
		{&world{event: &corev1.Event{}, refuses: gone}, nil},
		{&world{event: &corev1.Event{}, refuses: busy}, busy},
	} {
		op := New(Options{Reader: c.w, Writer: c.w})
		if _, err := op.Reconcile(t.Context(), controller.Key{}); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
}
