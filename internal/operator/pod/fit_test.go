package pod

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/controller"
)

// Room goes to those that wait by their priority, then by their age, whoever asks first; what is small enough gets
// what is left.
func TestRoomIsGivenInOrder(t *testing.T) {
	wants := func(name, cpu string, priority int32, age time.Duration) *corev1.Pod {
		pod := sh(name, "true")
		pod.UID, pod.CreationTimestamp, pod.Spec.Priority = types.UID(name), metav1.NewTime(noon.Add(-age)), &priority
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return pod
	}
	l := ledger{filled: true, pods: map[controller.Key]entry{}, total: corev1.ResourceList{}, waiting: map[controller.Key]waiter{}}
	l.see(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")})
	first := wants("first", "2", 0, time.Hour)
	if lacks := l.take(first); len(lacks) > 0 {
		t.Fatalf("first lacks %v", lacks)
	}
	waiting := []*corev1.Pod{
		wants("young", "1", 0, time.Second), wants("old", "1", 0, time.Minute), wants("high", "1", 9, time.Second),
		wants("huge", "3", 99, time.Hour), wants("tiny", "500m", 0, time.Second),
	}
	for _, pod := range waiting {
		if lacks := l.take(pod); fmt.Sprint(lacks) != "[Insufficient cpu]" {
			t.Errorf("%s lacks %v", pod.Name, lacks)
		}
	}
	for _, c := range []struct {
		gone *corev1.Pod
		next string
	}{
		{first, "[default/high default/old]"},
		{waiting[1], "[default/tiny]"}, // before young by its name: both were made in the same second
		{waiting[2], "[default/young]"},
		{waiting[0], "[]"},
	} {
		if next := fmt.Sprint(l.settle(keyOf(c.gone), nil)); next != c.next {
			t.Errorf("after %s: %s, want %s", c.gone.Name, next, c.next)
		}
	}
	if more := l.see(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10")}); fmt.Sprint(more) != "[default/huge]" {
		t.Errorf("with more: %v", more)
	}
	if lacks := l.take(waiting[3]); len(lacks) > 0 {
		t.Errorf("huge was given room and lacks %v", lacks)
	}
}
