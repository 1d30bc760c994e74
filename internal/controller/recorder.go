package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Recorder writes core/v1 Events. One that is recorded again is the same Event, because its name follows
// from what it says and when; one that can't be written is lost.
type Recorder struct{ o RecorderOptions }

// RecorderOptions connect a Recorder. Writer and Component are required.
type RecorderOptions struct {
	Writer    Writer
	Component string           // who reports: an operator's name
	Now       func() time.Time // nil: time.Now
	Log       *slog.Logger     // nil: slog.Default
}

// NewRecorder makes a recorder.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Recorder{o}
}

// maxObjectInName leaves room for a dot, a revision, an order and a hash in an Event's name.
const maxObjectInName = 253 - 1 - 16 - 2 - 12

// Occurrence is that of an Event that was seen in a revision, order of several there (0 to 255) being the order of
// what happened.
func Occurrence(revision string, order int) string {
	return revision + "." + strconv.Itoa(order)
}

// Record writes one Event about an object. occurrence tells two Events of the same text apart (an Occurrence, a
// resourceVersion, a time); a second one with the same occurrence isn't written.
func (r *Recorder) Record(ctx context.Context, about Object, gk schema.GroupKind, e Event, occurrence string) {
	gvk := about.GetObjectKind().GroupVersionKind()
	if gvk.Kind == "" {
		gvk = gk.WithVersion("")
	}
	ref := corev1.ObjectReference{
		APIVersion:      gvk.GroupVersion().String(),
		Kind:            gvk.Kind,
		Namespace:       about.GetNamespace(),
		Name:            about.GetName(),
		UID:             about.GetUID(),
		ResourceVersion: about.GetResourceVersion(),
	}
	r.RecordRef(ctx, ref, e, occurrence)
}

// RecordRef is Record for an object that is known by reference only.
func (r *Recorder) RecordRef(ctx context.Context, ref corev1.ObjectReference, e Event, occurrence string) {
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := metav1.NewTime(r.o.Now())
	event := &corev1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(ref, e, occurrence)},
		InvolvedObject:      ref,
		Type:                e.Type,
		Reason:              e.Reason,
		Message:             e.Message,
		Source:              corev1.EventSource{Component: r.o.Component},
		ReportingController: r.o.Component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	// An Event is nothing that a reconcile has to see: it raises no floor.
	err := r.o.Writer.Create(context.WithValue(ctx, floorKey{}, (*floor)(nil)), event)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		r.o.Log.Debug("an Event is lost", "object", ref.Namespace+"/"+ref.Name, "reason", e.Reason, "cause", err)
	}
}

// eventName follows from what the Event says and when, so that it is never written twice. A revision, and the order
// within it, come first, because clients list what happened in one second by name.
func eventName(ref corev1.ObjectReference, e Event, occurrence string) string {
	h := sha256.New()
	for _, part := range []string{string(ref.UID), e.Type, e.Reason, e.Message, occurrence} {
		io.WriteString(h, part)
		h.Write([]byte{0})
	}
	name := ref.Name
	if len(name) > maxObjectInName {
		name = name[:maxObjectInName]
	}
	revision, order := seenIn(occurrence)
	return fmt.Sprintf("%s.%010x%02x%x", name, revision, order, h.Sum(nil)[:6])
}

// seenIn takes an Occurrence apart; what is none has no revision.
func seenIn(occurrence string) (revision uint64, order uint8) {
	at, nth, _ := strings.Cut(occurrence, ".")
	revision, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return 0, 0
	}
	n, err := strconv.ParseUint(cmp.Or(nth, "0"), 10, 8)
	if err != nil {
		return revision, math.MaxUint8
	}
	return revision, uint8(n)
}
