package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/api/v1alpha1"
)

// TestObserveMember: what a Pod says about its member.
func TestObserveMember(t *testing.T) {
	cl := demo(3)
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	ended := func(d time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(d)}}}
	}
	condition := func(typ corev1.PodConditionType, status corev1.ConditionStatus, d time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: typ, Status: status, LastTransitionTime: at(d)}
	}
	// made an hour ago, started a second later
	running := func(conditions ...corev1.PodCondition) func(*corev1.Pod) {
		started := at(-time.Hour + time.Second)
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, Conditions: conditions}
		}
	}
	base := Member{Ordinal: 1, Ours: true, Living: true, Since: now.Add(-time.Hour), Started: now.Add(-time.Hour)}
	expect := func(changes ...func(*Member)) Member {
		m := base
		for _, c := range changes {
			c(&m)
		}
		return m
	}
	started := func(m *Member) { m.Started = now.Add(-time.Hour + time.Second) }

	for _, tc := range []struct {
		when string
		pod  func(*corev1.Pod)
		want Member
	}{
		{"just made, without a node or a phase: it lives", func(*corev1.Pod) {}, expect()},
		{"pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, expect()},
		{"nobody knows: it lives", func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }, expect()},
		{"running, never ready", running(), expect(started)},
		{"running, ready", running(condition(corev1.PodReady, "True", -time.Minute)), expect(started, func(m *Member) { m.Ready = true })},
		{"running, not ready any more", running(condition(corev1.PodReady, "False", -time.Minute)), expect(started, func(m *Member) { m.Since = now.Add(-time.Minute) })},
		{"readiness unknown", running(condition(corev1.PodReady, "Unknown", -time.Minute)), expect(started, func(m *Member) { m.Since = now.Add(-time.Minute) })},
		{"its containers are ready, it isn't", running(condition(corev1.ContainersReady, "True", -time.Minute)), expect(started)},
		{"failed: when the last process ended", func(p *corev1.Pod) {
			running(condition(corev1.PodReady, "True", -time.Minute))(p)
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = []corev1.ContainerStatus{ended(-9 * time.Second), ended(-7 * time.Second), {}}
		}, expect(started, func(m *Member) { m.Living, m.Died = false, now.Add(-7*time.Second) })},
		{"succeeded: that is a death too", func(p *corev1.Pod) {
			running()(p)
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{ended(-7 * time.Second)}
		}, expect(started, func(m *Member) { m.Living, m.Died = false, now.Add(-7*time.Second) })},
		{"failed before any process: when a condition last moved", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{condition(corev1.PodScheduled, "True", -time.Minute)}}
		}, expect(func(m *Member) { m.Living, m.Died = false, now.Add(-time.Minute) })},
		{"failed, and nothing tells when", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, expect(func(m *Member) { m.Living, m.Died = false, now.Add(-time.Hour) })},
		{"being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, expect(leaves)},
		{"labelled", func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.RoleLabel: "leader"} }, expect(leads)},
		{"labelled otherwise", func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.RoleLabel: "follower"} }, expect()},
		{"owned by nobody", func(p *corev1.Pod) { p.OwnerReferences = nil }, expect(func(m *Member) { m.Ours = false })},
		{"owned by an earlier Cluster of that name", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "earlier" }, expect(func(m *Member) { m.Ours = false })},
		{"owned, but controlled by nobody", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, expect(func(m *Member) { m.Ours = false })},
	} {
		t.Run(tc.when, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "demo-1", UID: "uid", CreationTimestamp: at(-time.Hour),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cl, v1alpha1.GroupVersion.WithKind("Cluster"))},
			}}
			tc.pod(pod)
			tc.want.Pod = pod
			if got := observeMember(cl, 1, pod); got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}
