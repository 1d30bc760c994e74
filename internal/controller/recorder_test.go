package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestEventNames(t *testing.T) {
	ref := corev1.ObjectReference{Name: "demo", UID: "u"}
	created := Event{Type: corev1.EventTypeNormal, Reason: "MemberCreated", Message: "Created demo-0"}
	if a, b := eventName(ref, created, "7"), eventName(ref, created, "7"); a != b {
		t.Errorf("the same Event is named %s and %s", a, b)
	}
	if a, b := eventName(ref, created, "7"), eventName(ref, created, "8"); a == b {
		t.Errorf("two occurrences are both named %s", a)
	}
	var names []string
	for _, revision := range []string{"", "process://1/2/3", "9", "10", "255", "256", "70000"} { // as they happened
		for _, text := range []string{"b", "a"} {
			names = append(names, eventName(ref, Event{Message: text}, revision))
		}
	}
	for i := 4; i < len(names); i += 2 { // revisions, a pair each: any order within, none across
		if before, pair := slices.Max(names[i-2:i]), slices.Min(names[i:i+2]); before >= pair {
			t.Errorf("%s is listed before %s", pair, before)
		}
	}
	var inOne []string
	for order, reason := range []string{"LeaderLost", "MemberLost", "LeaderElected"} {
		inOne = append(inOne, eventName(ref, Event{Reason: reason}, Occurrence("256", order*doneOrder/2)))
	}
	if !slices.IsSorted(inOne) {
		t.Errorf("listed out of order: %v", inOne)
	}
	ref.Name = strings.Repeat("x", 253)
	if errs := validation.IsDNS1123Subdomain(eventName(ref, created, Occurrence("18446744073709551615", 255))); len(errs) > 0 {
		t.Error(errs)
	}
}
