package pod

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// members is a view of a Cluster's Pods.
type members map[string]*corev1.Pod

func (m members) Get(_ schema.GroupKind, key controller.Key) (controller.Object, error) {
	if pod := m[key.Name]; pod != nil {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

func (m members) List(_ schema.GroupKind, q controller.Query) iter.Seq[controller.Object] {
	return func(yield func(controller.Object) bool) {
		for _, pod := range m {
			if q.Selector.Matches(labelSet(pod.Labels)) && !yield(pod) {
				return
			}
		}
	}
}

func (m members) AtLeast(context.Context, string) error { return nil }

type labelSet map[string]string

func (l labelSet) Has(name string) bool              { _, ok := l[name]; return ok }
func (l labelSet) Get(name string) string            { return l[name] }
func (l labelSet) Lookup(name string) (string, bool) { v, ok := l[name]; return v, ok }

// set makes a member what it is now, and gives what it is.
func (m members) set(name string, leader bool, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"),
		Labels: map[string]string{v1alpha1.ClusterLabel: "demo", "zone": "a"}}, Status: corev1.PodStatus{Phase: phase}}
	if leader {
		pod.Labels[v1alpha1.RoleLabel] = v1alpha1.RoleLeader
	}
	m[name] = pod
	return pod
}

// TestNoTwoFilesSayLeader, however the label was moved and in whatever order workers look.
func TestNoTwoFilesSayLeader(t *testing.T) {
	const running, failed = corev1.PodRunning, corev1.PodFailed
	for name, tc := range map[string]struct {
		now  func(m members) (looked []*corev1.Pod) // what has happened since a's file says leader, and who is looked at
		want string                                 // whose files say leader
	}{
		"moved, the new one is looked at first": {func(m members) []*corev1.Pod {
			m.set("a", false, running)
			return []*corev1.Pod{m.set("b", true, running)}
		}, "b"},
		"moved, and one who is late looks at the old one as it was": {func(m members) []*corev1.Pod {
			late := m["a"]
			m.set("a", false, running)
			return []*corev1.Pod{m.set("b", true, running), late}
		}, "b"},
		"a second is labelled": {func(m members) []*corev1.Pod {
			return []*corev1.Pod{m.set("b", true, running), m["a"]}
		}, "a"},
		"a second is labelled, then the first is not": {func(m members) []*corev1.Pod {
			second := m.set("b", true, running)
			m.set("a", false, running)
			return []*corev1.Pod{second}
		}, "b"},
		"a second is labelled when the first is dead": {func(m members) []*corev1.Pod {
			m.set("a", true, failed)
			return []*corev1.Pod{m.set("b", true, running)}
		}, "a b"}, // nobody reads a's any more
		"a second is labelled when the first is gone": {func(m members) []*corev1.Pod {
			delete(m, "a")
			return []*corev1.Pod{m.set("b", true, running)}
		}, "a b"},
		"another Cluster's leader": {func(m members) []*corev1.Pod {
			other := m.set("b", true, running)
			other.Labels[v1alpha1.ClusterLabel] = "other"
			return []*corev1.Pod{other}
		}, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			m := members{}
			op := &Operator{Options: Options{Reader: m}, labels: labelFiles{dir: t.TempDir()}}
			if err := op.writeLabels(m.set("a", true, running)); err != nil {
				t.Fatal(err)
			}
			for _, pod := range tc.now(m) {
				if err := op.writeLabels(pod); err != nil {
					t.Fatal(err)
				}
			}
			var say []string
			for _, name := range []string{"a", "b"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name + "-uid")}}
				if op.labels.sayLeader(pod) {
					say = append(say, name)
				}
				if text, err := os.ReadFile(op.labels.path(pod.UID)); err != nil || !strings.Contains(string(text), `zone="a"`) {
					t.Errorf("the file of %s: %q, %v", name, text, err)
				}
			}
			if got := strings.Join(say, " "); got != tc.want {
				t.Errorf("%q say leader, want %q", got, tc.want)
			}
		})
	}
}

// TestASecondLeaderWaitsForTheFirst: its file follows when the first has lost the label, and when its file has.
func TestASecondLeaderWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	a := sh("a", "exec sleep 1000")
	a.Labels = map[string]string{v1alpha1.ClusterLabel: "demo", v1alpha1.RoleLabel: v1alpha1.RoleLeader}
	w.create(a)
	file := w.op.labels.path(w.awaitReady("a").UID)
	// b is ready when it has seen another label of its own, ends with 0 when its file says leader alone, with 1 when a's
	// says so too.
	ready := filepath.Join(t.TempDir(), "ready")
	b := sh("b", `says() { grep -qx "$1" "$2"; }; leader='operatord.io/role="leader"'
		until says 'seen="yes"' $OPERATORD_LABELS || says "$leader" $OPERATORD_LABELS; do sleep 0.01; done
		touch `+ready+`
		until says "$leader" $OPERATORD_LABELS; do sleep 0.01; done
		! says "$leader" `+file, policy(corev1.RestartPolicyNever))
	b.Labels = map[string]string{v1alpha1.ClusterLabel: "demo"}
	b.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", ready}}}}
	w.create(b)
	w.await("b", "running", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning })
	w.patch("b", `{"metadata":{"labels":{"operatord.io/role":"leader","seen":"yes"}}}`)
	w.await("b", "ready", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) || p.Status.Phase == corev1.PodFailed
	})
	w.patch("a", `{"metadata":{"labels":{"operatord.io/role":null}}}`)
	w.awaitPhase("b", corev1.PodSucceeded)
}
