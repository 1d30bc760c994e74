package builtin

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"operatord.io/operatord/internal/resource"
)

// Events are one set of objects, stored as the core group's, and served in two groups.

func (b *builder) event() *resource.Kind {
	d := b.eventDefinition(corev1.SchemeGroupVersion)
	d.object = &corev1.Event{}
	d.columns = newColumns(eventCells, eventColumns()...)
	return b.kind(d)
}

func eventsGroup(b *builder) []*resource.Kind {
	d := b.eventDefinition(eventsv1.SchemeGroupVersion)
	d.object = &eventsv1.Event{}
	d.stored = corev1.SchemeGroupVersion.WithKind("Event")
	d.storedGroup = new(string)
	d.columns = newColumns(func(e *eventsv1.Event) []any { return eventCells(coreEvent(e)) }, eventColumns()...)
	return []*resource.Kind{b.kind(d)}
}

func (b *builder) eventDefinition(gv schema.GroupVersion) definition {
	return definition{
		gvk:        gv.WithKind("Event"),
		plural:     "events",
		singular:   "event",
		shortNames: []string{"ev"},
		namespaced: true,
		strategy: &own[*core.Event]{
			base:     base{scheme: b.scheme, gv: gv, namespaced: true, collect: rest.Unsupported},
			validate: func(e *core.Event) field.ErrorList { return validation.ValidateEventCreate(e, gv) },
			validateUpdate: func(e, old *core.Event) field.ErrorList {
				return validation.ValidateEventUpdate(e, old, gv)
			},
			createOnUpdate: true,
		},
		fields: []string{
			"involvedObject.apiVersion", "involvedObject.fieldPath", "involvedObject.kind", "involvedObject.name",
			"involvedObject.namespace", "involvedObject.resourceVersion", "involvedObject.uid",
			"reason", "reportingComponent", "source", "type",
		},
		values: selectable(func(e *eventFields) fields.Set {
			source := e.Source.Component
			if source == "" {
				source = e.ReportingController
			}
			return fields.Set{
				"involvedObject.kind":            e.InvolvedObject.Kind,
				"involvedObject.namespace":       e.InvolvedObject.Namespace,
				"involvedObject.name":            e.InvolvedObject.Name,
				"involvedObject.uid":             string(e.InvolvedObject.UID),
				"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
				"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
				"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
				"reason":                         e.Reason,
				"reportingComponent":             e.ReportingController,
				"source":                         source,
				"type":                           e.Type,
			}
		}),
	}
}

// eventFields are what selectors look at in an Event as it is stored.
type eventFields struct {
	InvolvedObject      corev1.ObjectReference `json:"involvedObject"`
	Reason              string                 `json:"reason"`
	Source              corev1.EventSource     `json:"source"`
	Type                string                 `json:"type"`
	ReportingController string                 `json:"reportingComponent"`
}

func eventColumns() []metav1.TableColumnDefinition {
	doc := corev1.Event{}.SwaggerDoc()
	name := nameColumn()
	name.Priority = 1
	return []metav1.TableColumnDefinition{
		column("Last Seen", "string", doc["lastTimestamp"]),
		column("Type", "string", doc["type"]),
		column("Reason", "string", doc["reason"]),
		column("Object", "string", doc["involvedObject"]),
		wide("Subobject", "string", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]),
		wide("Source", "string", doc["source"]),
		column("Message", "string", doc["message"]),
		wide("First Seen", "string", doc["firstTimestamp"]),
		wide("Count", "string", doc["count"]),
		name,
	}
}

func eventCells(e *corev1.Event) []any {
	first := age(e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = microAge(e.EventTime)
	}
	last := age(e.LastTimestamp)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := e.Count
	if e.Series != nil {
		last = microAge(e.Series.LastObservedTime)
		count = e.Series.Count
	} else if count == 0 {
		count = 1
	}
	target := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		target += "/" + e.InvolvedObject.Name
	}
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	host := e.Source.Host
	if host == "" {
		host = e.ReportingInstance
	}
	if host != "" {
		source += ", " + host
	}
	return []any{last, e.Type, e.Reason, target, e.InvolvedObject.FieldPath, source, strings.TrimSpace(e.Message), first, int64(count), e.Name}
}

// coreEvent is what columns need of e in the core group's form.
func coreEvent(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		InvolvedObject:      e.Regarding,
		Reason:              e.Reason,
		Message:             e.Note,
		Type:                e.Type,
		EventTime:           e.EventTime,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func microAge(t metav1.MicroTime) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
