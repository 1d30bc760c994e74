package pod

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/process"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func TestRunsAPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}, Data: map[string]string{"a": "1", "b": "2"}})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("hidden")}})
	pod := sh("one", `printf '%s\n' "$POD_IP" "$POD_NAME" "$NS" "$UID_" "$TIER" "$X_a" "$X_b" "$FROM_CM" "$FROM_S" "$NONE" "$SUM" "$CPU" "$0" "$OPERATORD_DATA"; cat $OPERATORD_LABELS; exec sleep 1000`,
		func(p *corev1.Pod) {
			p.Labels = map[string]string{"tier": "back", "app": "x"}
			p.Annotations = map[string]string{"operatord.io/data": "/some/dir", v1alpha1.WithoutAnnotation: "spec.containers[0].resources.limits.cpu"}
			c := &p.Spec.Containers[0]
			c.Args = []string{"arg $(TIER) $$(TIER)"}
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "X_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}
			field := func(path string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
			}
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			c.Env = []corev1.EnvVar{
				{Name: "NS", ValueFrom: field("metadata.namespace")},
				{Name: "UID_", ValueFrom: field("metadata.uid")},
				{Name: "TIER", ValueFrom: field("metadata.labels['tier']")},
				{Name: "FROM_CM", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Key: "b"}}},
				{Name: "FROM_S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}},
				{Name: "NONE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "nothing"}, Key: "k", Optional: ptr.To(true)}}},
				{Name: "SUM", Value: "$(TIER)+$(X_a)+$(UNSET)"},
				{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			}
		})
	w.create(pod)
	got := w.awaitReady("one")
	s := got.Status
	if got.Spec.NodeName != "here" || s.HostIP != "127.0.0.1" || s.StartTime == nil || s.ObservedGeneration != got.Generation {
		t.Errorf("status is %+v", s)
	}
	if ip := net.ParseIP(s.PodIP); ip == nil || !ip.IsLoopback() || len(s.PodIPs) != 1 || s.PodIPs[0].IP != s.PodIP {
		t.Errorf("podIP is %q, podIPs %v", s.PodIP, s.PodIPs)
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if condition(got, c).Status != corev1.ConditionTrue {
			t.Errorf("condition %s is %+v", c, condition(got, c))
		}
	}
	cs := s.ContainerStatuses[0]
	if !regexp.MustCompile(`^process://\d+/\d+/[0-9a-f-]{36}$`).MatchString(cs.ContainerID) || !*cs.Started || cs.RestartCount != 0 || cs.Image != "host" {
		t.Errorf("container status is %+v", cs)
	}
	want := []string{s.PodIP, "one", "default", string(got.UID), "back", "1", "2", "2", "hidden", "", "back+1+$(UNSET)", "2", "arg back $(TIER)", "/some/dir", `app="x"`, `tier="back"`, ""}
	var out []string
	// Its output is written a moment after it runs.
	deadline := time.Now().Add(10 * time.Second)
	for len(out) < len(want) && time.Now().Before(deadline) {
		out = strings.Split(w.output(got), "\n")
	}
	if !slices.Equal(out, want) {
		t.Errorf("output is %q, want %q", out, want)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("well", "exit 0", policy(corev1.RestartPolicyNever)))
	w.create(sh("badly", "exit 3", policy(corev1.RestartPolicyNever)))
	w.create(sh("on-failure", "exit 0", policy(corev1.RestartPolicyOnFailure)))
	w.create(sh("no-program", "", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"no-such-program"}
	}))
	w.create(sh("again", "exit 4"))

	for _, name := range []string{"well", "on-failure"} {
		p := w.awaitPhase(name, corev1.PodSucceeded)
		if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "Completed" || term.StartedAt.IsZero() || term.FinishedAt.IsZero() {
			t.Errorf("%s: %+v", name, p.Status.ContainerStatuses[0])
		}
		if c := condition(p, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "PodCompleted" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	p := w.awaitPhase("badly", corev1.PodFailed)
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "Error" || term.ExitCode != 3 || term.ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("badly: %+v", p.Status.ContainerStatuses[0])
	}
	p = w.awaitPhase("no-program", corev1.PodFailed)
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "StartError" || term.ExitCode != 127 || !strings.Contains(term.Message, "no-such-program") {
		t.Errorf("no-program: %+v", p.Status.ContainerStatuses[0])
	}
	// At once after the first death, then in back-off.
	p = w.await("again", "in its back-off", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	s := p.Status.ContainerStatuses[0]
	if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 4 || !strings.HasPrefix(s.State.Waiting.Message, "back-off 10s restarting") || p.Status.Phase != corev1.PodRunning {
		t.Errorf("again: %+v", p.Status)
	}
}

// A Pod on another Node is that Node's; when it is deleted and there is no such Node, nobody else would end it.
func TestPodsOfNodesThatDontExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	at := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	deleted := func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp != nil }
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	w.create(sh("nowhere", "exec sleep 1000", at("no-such-node")))
	w.create(sh("there", "exec sleep 1000", at("other")))
	w.await("there", "known", func(p *corev1.Pod) bool { return p != nil })
	if p := w.await("nowhere", "known", func(p *corev1.Pod) bool { return p != nil }); p.Status.Phase == corev1.PodRunning {
		t.Errorf("it runs: %+v", p.Status)
	}
	w.delete("nowhere", nil)
	w.awaitGone("nowhere")

	w.delete("there", nil)
	w.await("there", "being deleted", deleted)
	if _, err := w.op.Reconcile(t.Context(), controller.Key{Namespace: "default", Name: "there"}); err != nil {
		t.Fatal(err)
	}
	if p := w.pod("there"); !deleted(p) {
		t.Fatal("it is gone, although its Node is there")
	}
	if err := w.user.Delete(t.Context(), nodeKind, controller.Key{Name: "other"}, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitGone("there")
}

func TestInitContainersRunInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	dir := t.TempDir()
	container := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: "host", Command: []string{"/bin/sh", "-c", script}}
	}
	w.create(sh("ordered", "test -e "+dir+"/2 && exec sleep 1000", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			container("first", "sleep 0.1; touch "+dir+"/1"),
			container("second", "test -e "+dir+"/1 && touch "+dir+"/2"),
		}
		side := container("side", "test -e "+dir+"/2 && touch "+dir+"/side && exec sleep 1000")
		side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, side)
	}))
	pending := w.await("ordered", "initialising", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.InitContainerStatuses) == 3
	})
	if c := condition(pending, corev1.PodInitialized); c.Status != corev1.ConditionFalse || pending.Status.Phase != corev1.PodPending {
		t.Errorf("while initialising: %s %+v", pending.Status.Phase, c)
	}
	p := w.awaitReady("ordered")
	for _, s := range p.Status.InitContainerStatuses[:2] {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 || !s.Ready || s.RestartCount != 0 {
			t.Errorf("%+v", s)
		}
	}
	if s := p.Status.InitContainerStatuses[2]; s.State.Running == nil || !s.Ready {
		t.Errorf("sidecar: %+v", s)
	}
	w.create(sh("stuck", "exec sleep 1000", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{container("fails", "exit 5")}
	}))
	p = w.awaitPhase("stuck", corev1.PodFailed)
	if s := p.Status.ContainerStatuses[0]; s.State.Waiting == nil || s.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("%+v", s)
	}
	// A Job with a sidecar ends although the sidecar doesn't.
	w.create(sh("job", "sleep 0.1", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		side := container("side", "exec sleep 1000")
		side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = []corev1.Container{side}
	}))
	w.awaitPhase("job", corev1.PodSucceeded)
}

// S62: the daemon's death leaves Pods alone; the next one finds them, changes nothing, and goes on: one is
// deleted, one ends by itself, one ended and one was deleted meanwhile.
func TestS62Restart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	release := fifo(t)
	w.create(sh("stays", "exec sleep 1000"))
	w.create(sh("deleted", "exec sleep 1000"))
	w.create(sh("exits", "cat "+release+"; exit 3", policy(corev1.RestartPolicyNever)))
	w.create(sh("force-deleted", "exec sleep 1000"))
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"stays", "deleted", "exits", "force-deleted"} {
		before[name] = w.awaitReady(name)
	}
	w.halt()
	// While no operator is there, an object goes.
	w.start(false)
	w.delete("force-deleted", ptr.To[int64](0))
	w.awaitGone("force-deleted")
	w.halt()
	w.start(true)

	awaitOver(t, before["force-deleted"])
	w.delete("deleted", nil)
	w.awaitGone("deleted")
	awaitOver(t, before["deleted"])
	release2 := open(t, release)
	start := time.Now()
	release2.Close()
	p := w.awaitPhase("exits", corev1.PodFailed)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("its end was noticed after %v", took)
	}
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.ExitCode != 3 || p.Status.ContainerStatuses[0].ContainerID != before["exits"].Status.ContainerStatuses[0].ContainerID {
		t.Errorf("%+v", p.Status.ContainerStatuses[0])
	}
	// Nothing was written about the one that stayed as it was.
	if p := w.pod("stays"); p.ResourceVersion != before["stays"].ResourceVersion {
		t.Errorf("the restart changed a Pod from\n%+v to\n%+v", before["stays"].Status, p.Status)
	}
}

// A Pod whose processes ended while nobody looked gets its real exit code.
func TestExitCodeOfADeathWhileDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	release := fifo(t)
	w.create(sh("exits", "cat "+release+"; exit 7", policy(corev1.RestartPolicyNever)))
	before := w.awaitReady("exits")
	w.halt()
	open(t, release).Close()
	awaitOver(t, before)
	w.start(true)
	p := w.awaitPhase("exits", corev1.PodFailed)
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.ExitCode != 7 {
		t.Errorf("%+v", p.Status.ContainerStatuses[0])
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open waits until the other side has opened a fifo.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pidOf is the process of a Pod's first container.
func pidOf(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	rest, _ := strings.CutPrefix(pod.Status.ContainerStatuses[0].ContainerID, "process://")
	digits, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("container id %q: %v", pod.Status.ContainerStatuses[0].ContainerID, err)
	}
	return pid
}

// awaitOver waits until a Pod's process is gone, looking at the kernel alone.
func awaitOver(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pid := pidOf(t, pod)
	deadline := time.Now().Add(20 * time.Second)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			t.Fatalf("process %d of %s still runs", pid, pod.Name)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func TestTermination(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	// Ends when asked to; ends with its grace when deaf, and only then does the object go.
	w.create(sh("polite", "trap 'exit 0' TERM; while :; do sleep 0.02; done", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60) }))
	w.create(sh("deaf", "trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done"))
	w.create(sh("kept", "exec sleep 1000", func(p *corev1.Pod) { p.Finalizers = []string{"example.org/keep"} }))
	polite, deaf, kept := w.awaitReady("polite"), w.awaitReady("deaf"), w.awaitReady("kept")

	w.delete("polite", nil)
	w.delete("deaf", nil)
	w.delete("kept", nil)
	w.awaitGone("polite")
	awaitOver(t, polite)
	w.await("deaf", "gone with its processes", func(p *corev1.Pod) bool {
		alive := syscall.Kill(pidOf(t, deaf), 0) == nil
		if p == nil && alive {
			t.Error("the object went before its process")
		}
		return p == nil
	})
	// Others' finalizers keep the object, and nothing is done about it in a circle.
	p := w.await("kept", "over", func(p *corev1.Pod) bool {
		return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	})
	awaitOver(t, kept)
	if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase is %s", p.Status.Phase)
	}
	w.patch("kept", `{"metadata":{"finalizers":null}}`)
	w.awaitGone("kept")
	w.awaitNothingLeft()
}

// awaitNothingLeft waits until nothing of past Pods is on disk.
func (w *world) awaitNothingLeft() {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		all, err := w.runtime.List()
		if err != nil {
			w.t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(w.dir, "pods", "*"))
		if len(all) == 0 && len(files) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("left: %+v %v", all, files)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A Pod of the same name waits until the processes of the one before are gone: they may share a data directory.
func TestSuccessorWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	lock := filepath.Join(t.TempDir(), "lock")
	script := "mkdir " + lock + " || { echo two at once; exit 9; }; trap '' TERM; while :; do sleep 0.05; done"
	w.create(sh("name", script, policy(corev1.RestartPolicyNever)))
	first := w.awaitReady("name")
	awaitFile(t, lock)
	w.delete("name", ptr.To[int64](0))
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	w.create(sh("name", script, policy(corev1.RestartPolicyNever)))
	second := w.await("name", "running anew", func(p *corev1.Pod) bool {
		return p != nil && p.UID != first.UID && isReady(p)
	})
	if syscall.Kill(pidOf(t, first), 0) == nil {
		t.Error("the first one's process runs beside the second's")
	}
	if second.Status.PodIP == first.Status.PodIP {
		t.Error("both have one address")
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{HostImages: []string{"host", "busybox*", "registry.example/*"}})
	image := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = name }
	}
	for i, name := range []string{"busybox:1.36", "busybox", "registry.example/app@sha256:0000000000000000000000000000000000000000000000000000000000000000"} {
		w.create(sh("runs-"+itoa(int32(i)), "exec sleep 1000", image(name)))
		w.awaitReady("runs-" + itoa(int32(i)))
	}
	w.create(sh("refused", "exec sleep 1000", image("nginx:1.27")))
	p := w.await("refused", "waiting", func(p *corev1.Pod) bool { return p != nil && len(p.Status.ContainerStatuses) == 1 })
	s := p.Status.ContainerStatuses[0]
	if s.State.Waiting == nil || s.State.Waiting.Reason != "ErrImagePull" || p.Status.Phase != corev1.PodPending {
		t.Fatalf("%+v", p.Status)
	}
	for _, way := range []string{`"nginx:1.27"`, `set the image to "host"`, "--host-images 'host,busybox*,registry.example/*,nginx:1.27'"} {
		if !strings.Contains(s.State.Waiting.Message, way) {
			t.Errorf("the message lacks %s: %s", way, s.State.Waiting.Message)
		}
	}
	w.delete("refused", nil)
	w.awaitGone("refused")
	if _, err := New(Options{Dir: t.TempDir(), HostImages: []string{"[" /* no pattern */}}); err == nil {
		t.Error("a bad pattern was accepted")
	}
}

func TestWaitsForItsConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("waits", "exec sleep 1000", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}}
	}))
	p := w.await("waits", "waiting", func(p *corev1.Pod) bool { return p != nil && len(p.Status.ContainerStatuses) == 1 })
	if s := p.Status.ContainerStatuses[0].State.Waiting; s == nil || s.Reason != "CreateContainerConfigError" || !strings.Contains(s.Message, `"late" not found`) {
		t.Errorf("%+v", p.Status.ContainerStatuses[0])
	}
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}})
	w.awaitReady("waits")
}

func TestLabelsFileFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	// It ends when its own file says leader.
	w.create(sh("member", `while ! grep -qx 'operatord.io/role="leader"' $OPERATORD_LABELS; do sleep 0.01; done; exit 0`, policy(corev1.RestartPolicyNever)))
	w.awaitReady("member")
	w.patch("member", `{"metadata":{"labels":{"operatord.io/role":"leader"}}}`)
	w.awaitPhase("member", corev1.PodSucceeded)
}

func TestProbes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	dir := t.TempDir()
	exec := func(command ...string) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}
	}
	t.Run("exec readiness", func(t *testing.T) {
		w.create(sh("exec", "exec sleep 1000", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: exec("sh", "-c", "test -e "+dir+"/ready || { echo no such luck; exit 1; }"), PeriodSeconds: 1, FailureThreshold: 1}
		}))
		if p := w.awaitRunning("exec"); isReady(p) || condition(p, corev1.ContainersReady).Message != "containers with unready status: [main]" {
			t.Errorf("ready before its probe: %+v", p.Status.Conditions)
		}
		// The probe says why, in both conditions and an Event.
		w.await("exec", "told to be unready", func(p *corev1.Pod) bool {
			const why = "containers with unready status: [main]; main: Readiness probe failed: exit code 1: no such luck"
			return strings.HasPrefix(condition(p, corev1.ContainersReady).Message, why) && strings.HasPrefix(condition(p, corev1.PodReady).Message, why)
		})
		w.awaitEvent("exec", "Unhealthy", "Readiness probe failed: exit code 1: no such luck")
		if err := os.WriteFile(dir+"/ready", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := w.awaitReady("exec")
		// The daemon's restart changes nothing, and the stored readiness holds until the probe says otherwise.
		w.restart()
		if now := w.pod("exec"); !isReady(now) || now.ResourceVersion != p.ResourceVersion {
			t.Errorf("after a restart: %+v", now.Status)
		}
		if err := os.Remove(dir + "/ready"); err != nil {
			t.Fatal(err)
		}
		w.await("exec", "unready", func(p *corev1.Pod) bool { return !isReady(p) && allRunning(p) })
	})
	t.Run("http and tcp readiness", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		healthy := make(chan bool, 1)
		healthy <- true
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			ok := <-healthy
			healthy <- ok
			if !ok {
				rw.WriteHeader(503)
			}
		})}
		defer server.Close()
		go server.Serve(l)
		port := intstr.FromInt(l.Addr().(*net.TCPAddr).Port)
		w.create(sh("http", "exec sleep 1000", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: port, Path: "/healthz"}}}
		}))
		w.create(sh("tcp", "exec sleep 1000", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1,
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: port}}}
		}))
		w.awaitReady("http")
		w.awaitReady("tcp")
		<-healthy
		healthy <- false
		w.await("http", "unready", func(p *corev1.Pod) bool { return !isReady(p) })
		server.Close()
		w.await("tcp", "unready", func(p *corev1.Pod) bool { return !isReady(p) })
	})
	t.Run("startup and liveness", func(t *testing.T) {
		// It has started when its first command has run: a /dead that is written before would be removed.
		w.create(sh("lives", "rm -f "+dir+"/dead; touch "+dir+"/up; exec sleep 1000", func(p *corev1.Pod) {
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: exec("test", "-e", dir+"/up", "-a", "!", "-e", dir+"/dead"), PeriodSeconds: 1, FailureThreshold: 30}
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: exec("test", "!", "-e", dir+"/dead"), PeriodSeconds: 1, FailureThreshold: 1}
		}))
		w.awaitReady("lives")
		if err := os.WriteFile(dir+"/dead", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := w.await("lives", "restarted", func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
		})
		if term := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; term == nil || term.Signal != 15 {
			t.Errorf("%+v", p.Status.ContainerStatuses[0])
		}
		w.awaitEvent("lives", "Unhealthy", "Liveness probe failed: exit code 1")
	})
}

// A Secret's value is told nowhere: not by a program that isn't there, not by what a probe prints, serves or runs.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	const hidden = "v3ry-hidden"
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"K": []byte(hidden)}})
	withSecret := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = []corev1.EnvVar{
			{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "K"}}},
			{Name: "DERIVED", Value: "a-$(K)-b"},
		}
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "X_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	}
	command := func(args ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Command = args }
	}
	probe := func(args ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: args}}}
		}
	}
	never := policy(corev1.RestartPolicyNever)
	w.create(sh("path", "", withSecret, never, command("/bin/$(K)")))
	w.create(sh("name", "", withSecret, never, command("$(DERIVED)")))
	w.create(sh("search", "", withSecret, never, command("nothing"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "PATH", Value: "/$(K)"})
	}))
	w.create(sh("prints", "exec sleep 1000", withSecret, probe("sh", "-c", "echo $K $X_K $DERIVED; exit 1")))
	// A value that stands in no variable of a Secret's any more, only in those made from them.
	w.create(sh("hands-on", "exec sleep 1000", probe("sh", "-c", "echo $K $DERIVED; exit 1"), withSecret, func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.EnvFrom, c.Env = nil, append(c.Env, corev1.EnvVar{Name: "K", Value: "x-$(DERIVED)"})
	}))
	w.create(sh("isnt", "exec sleep 1000", withSecret, probe("$(K)")))
	for _, name := range []string{"path", "name", "search"} {
		p := w.awaitPhase(name, corev1.PodFailed)
		if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Message == "" {
			t.Errorf("%s: %+v", name, p.Status.ContainerStatuses[0])
		}
		w.awaitEvent(name, "Failed", "")
	}
	w.awaitEvent("prints", "Unhealthy", "Readiness probe failed: exit code 1: [X_K] [X_K] [DERIVED]")
	w.awaitEvent("hands-on", "Unhealthy", "Readiness probe failed: exit code 1: [K] [DERIVED]")
	w.awaitEvent("isnt", "Unhealthy", "Readiness probe failed: no program $(K) in")
	for _, kind := range []schema.GroupKind{podKind, {Kind: "Event"}} {
		for obj := range w.set.List(kind, controller.Query{}) {
			if data, err := json.Marshal(obj); err != nil || strings.Contains(string(data), hidden) {
				t.Errorf("%s %s tells it (%v): %s", kind, obj.GetName(), err, data)
			}
		}
	}
}

// A full disk where the records lie: the Pod says what it waits for, and starts when there is room again.
func TestStartsWhenThereIsRoomAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	t.Parallel()
	// After what runs there has been ended, before the test's directories go.
	var run string
	t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(run, unix.MNT_DETACH) })
	w := newWorld(t, Options{})
	w.halt()
	run = filepath.Join(w.dir, "run")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", run, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	w.start(true)
	ballast := filepath.Join(run, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	w.create(sh("waits", "exec sleep 1000"))
	p := w.await("waits", "told why it waits", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "no space left on device")
	})
	if reason := p.Status.ContainerStatuses[0].State.Waiting.Reason; reason != "CreateContainerError" {
		t.Errorf("the reason is %s", reason)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.awaitRunning("waits")
}

// After a reboot everything that is declared runs again, also with restartPolicy Never: that is no death.
func TestReboot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("member", "exec sleep 1000", policy(corev1.RestartPolicyNever)))
	w.create(sh("done", "exit 0", policy(corev1.RestartPolicyNever)))
	before := w.awaitReady("member")
	done := w.awaitPhase("done", corev1.PodSucceeded)
	w.halt()
	// As a power cut leaves it: nothing runs, and the records are of another boot.
	if err := syscall.Kill(pidOf(t, before), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitOver(t, before)
	dir := filepath.Join(w.dir, "run", string(before.UID), "main", "0")
	awaitFile(t, filepath.Join(dir, "exit"))
	if err := os.Remove(filepath.Join(dir, "exit")); err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(filepath.Join(dir, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	spec = regexp.MustCompile(`(?m)^boot .*$`).ReplaceAll(spec, []byte("boot 11111111-1111-1111-1111-111111111111"))
	if err := os.WriteFile(filepath.Join(dir, "spec"), spec, 0o600); err != nil {
		t.Fatal(err)
	}
	phases := map[corev1.PodPhase]bool{}
	w.start(true)
	p := w.await("member", "running again", func(p *corev1.Pod) bool {
		phases[p.Status.Phase] = true
		return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
	})
	if p.Status.PodIP != before.Status.PodIP {
		t.Errorf("its address was %s and is %s", before.Status.PodIP, p.Status.PodIP)
	}
	if phases[corev1.PodFailed] || phases[corev1.PodSucceeded] {
		t.Errorf("it went through the phases %v", phases)
	}
	if now := w.pod("done"); now.ResourceVersion != done.ResourceVersion {
		t.Errorf("the one that was done before changed: %+v", now.Status)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s", path)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// A run directory that is lost is like a reboot.
func TestRunDirectoryLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("member", "exec sleep 1000", policy(corev1.RestartPolicyNever)))
	before := w.awaitReady("member")
	w.halt()
	if err := syscall.Kill(pidOf(t, before), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitOver(t, before)
	awaitFile(t, filepath.Join(w.dir, "run", string(before.UID), "main", "0", "exit"))
	if err := os.RemoveAll(filepath.Join(w.dir, "run")); err != nil {
		t.Fatal(err)
	}
	w.start(true)
	p := w.await("member", "running again", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID && isReady(p)
	})
	if p.Status.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("%+v", p.Status.ContainerStatuses[0])
	}
}

// A shim that was killed: the Pod has failed when its leftovers are gone, and its Always runs again.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("never", "exec sleep 1000", policy(corev1.RestartPolicyNever)))
	w.create(sh("always", "exec sleep 1000"))
	for _, name := range []string{"never", "always"} {
		p := w.awaitReady(name)
		data, err := os.ReadFile(filepath.Join(w.dir, "run", string(p.UID), "main", "0", "shim"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.Fields(string(data))[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if name == "always" {
			w.await(name, "running again", func(p *corev1.Pod) bool {
				return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
			})
		} else {
			over := w.awaitPhase(name, corev1.PodFailed)
			if term := over.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "ContainerStatusUnknown" || term.ExitCode != 137 {
				t.Errorf("%+v", over.Status.ContainerStatuses[0])
			}
		}
		awaitOver(t, p)
	}
}

// S68: trouble with a log is a condition while it lasts.
func TestS68LogTroubleIsACondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("talks", "while :; do echo x; sleep 0.02; done"))
	p := w.awaitReady("talks")
	log := filepath.Join(w.dir, "run", string(p.UID), "main", "0", "log")
	awaitFile(t, log)
	// It comes back at once; a directory in its place has to be quicker.
	for os.Mkdir(log, 0o755) != nil {
		_ = os.Remove(log)
	}
	p = w.await("talks", "without a log", func(p *corev1.Pod) bool { return condition(p, conditionLogs).Status == corev1.ConditionFalse })
	if c := condition(p, conditionLogs); !strings.Contains(c.Message, "container main: open log") {
		t.Errorf("%+v", c)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	w.await("talks", "logged again", func(p *corev1.Pod) bool { return condition(p, conditionLogs).Type == "" })
}

// asking asks for what a process can't have here.
func asking(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
}

// TestIsNotStartedWithoutWhatItAsksFor: a Pod waits, and says for what, until somebody says that it may go without.
func TestIsNotStartedWithoutWhatItAsksFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("asks", "exec sleep 1000", asking))
	p := w.await("asks", "judged", func(p *corev1.Pod) bool { return p != nil && condition(p, conditionHonoured).Type != "" })
	c := condition(p, conditionHonoured)
	const without = "spec.volumes,spec.containers[0].volumeMounts,spec.containers[0].securityContext.readOnlyRootFilesystem"
	if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "not started") || !strings.HasSuffix(c.Message, "annotate it: "+v1alpha1.WithoutAnnotation+"="+without) {
		t.Errorf("%+v", c)
	}
	if s := p.Status.ContainerStatuses[0]; s.State.Waiting == nil || s.State.Waiting.Reason != notHonoured || s.ContainerID != "" || p.Status.Phase != corev1.PodPending {
		t.Errorf("%s: %+v", p.Status.Phase, s)
	}
	if all, err := w.runtime.Group(string(p.UID)); err != nil || len(all) > 0 {
		t.Errorf("it was started: %+v, %v", all, err)
	}

	// All but one are not all.
	annotate := func(list string) {
		w.patch("asks", `{"metadata":{"annotations":{"`+v1alpha1.WithoutAnnotation+`":"`+list+`"}}}`)
	}
	annotate("spec.volumes,spec.containers[0].volumeMounts")
	p = w.await("asks", "without its volumes", func(p *corev1.Pod) bool {
		return strings.Contains(condition(p, conditionHonoured).Message, "runs without spec.volumes")
	})
	if c := condition(p, conditionHonoured); !strings.Contains(c.Message, "not started, since this machine can't give it what it asks for: spec.containers[0].securityContext.readOnlyRootFilesystem") {
		t.Errorf("%+v", c)
	}
	annotate(without + ", spec.no.such")
	p = w.awaitReady("asks")
	c = condition(p, conditionHonoured)
	if c.Status != corev1.ConditionFalse || strings.Contains(c.Message, "not started") || !strings.Contains(c.Message, "runs without spec.volumes: ") ||
		!strings.HasSuffix(c.Message, "that stands in the way: spec.no.such") {
		t.Errorf("%+v", c)
	}
	annotate(without)
	w.await("asks", "without a stray name", func(p *corev1.Pod) bool {
		return !strings.Contains(condition(p, conditionHonoured).Message, "spec.no.such")
	})
}

// TestOldPodsAreNotJudged: what a daemon has started that judged nothing is adopted, and started again when it dies.
func TestOldPodsAreNotJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{JudgedSince: time.Now().Add(time.Hour)})
	w.create(sh("old", "exec sleep 1000", asking))
	before := w.awaitReady("old")
	if c := condition(before, conditionHonoured); c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Message, "runs without spec.volumes") {
		t.Errorf("%+v", c)
	}
	w.restart()
	if p := w.pod("old"); p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("not adopted: %+v", p.Status)
	}
	all, err := w.runtime.Group(string(before.UID))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := syscall.Kill(all[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.await("old", "started again", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && allRunning(p) })
}

func TestPlainPodsAskForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("plain", "exec sleep 1000"))
	if c := condition(w.awaitReady("plain"), conditionHonoured); c.Type != "" {
		t.Errorf("a plain Pod has %+v", c)
	}
	w.create(sh("root", "exec sleep 1000", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](0)}
	}))
	p := w.await("root", "waiting", func(p *corev1.Pod) bool { return p != nil && len(p.Status.ContainerStatuses) == 1 })
	if s := p.Status.ContainerStatuses[0].State.Waiting; s == nil || s.Reason != "CreateContainerConfigError" || !strings.Contains(s.Message, "runAsNonRoot") {
		t.Errorf("%+v", p.Status.ContainerStatuses[0])
	}
}

func TestScheduling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("choosy", "exec sleep 1000", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
	w.create(sh("elsewhere", "exec sleep 1000", func(p *corev1.Pod) { p.Spec.SchedulerName = "another" }))
	p := w.await("choosy", "unschedulable", func(p *corev1.Pod) bool {
		return p != nil && condition(p, corev1.PodScheduled).Status == corev1.ConditionFalse
	})
	if c := condition(p, corev1.PodScheduled); c.Reason != "Unschedulable" || !strings.Contains(c.Message, "didn't match Pod's node affinity/selector") {
		t.Errorf("%+v", c)
	}
	label := `{"metadata":{"labels":{"disk":"fast"}}}`
	w.eventually("the Node is registered", func() error {
		return w.user.Patch(context.Background(), nodeKind, controller.Key{Name: "here"}, types.MergePatchType, []byte(label), "")
	})
	w.awaitReady("choosy")
	if p := w.pod("elsewhere"); p.Spec.NodeName != "" {
		t.Error("another scheduler's Pod was bound")
	}
}

// The machine's Node has room for so much: what doesn't fit waits and says for what, and is bound when there is room.
func TestSchedulingByRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	requests := func(name corev1.ResourceName, quantity string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			list := corev1.ResourceList{name: resource.MustParse(quantity)}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		}
	}
	waits := func(name, what string) {
		t.Helper()
		p := w.await(name, "unschedulable", func(p *corev1.Pod) bool {
			return p != nil && condition(p, corev1.PodScheduled).Reason == "Unschedulable"
		})
		if c := condition(p, corev1.PodScheduled); c.Message != "0/1 nodes are available: 1 "+what+"." || p.Status.Phase != corev1.PodPending {
			t.Errorf("%s is %s: %+v", name, p.Status.Phase, c)
		}
	}
	w.create(sh("cores", "exec sleep 1000", requests("cpu", "10k")))
	waits("cores", "Insufficient cpu")
	w.awaitEvent("cores", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.")
	w.create(sh("pages", "exec sleep 1000", requests("hugepages-2Mi", "2Mi"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("1Mi")
	}))
	waits("pages", "Insufficient hugepages-2Mi")
	w.create(sh("first", "exec sleep 1000", requests("example.com/gpu", "1")))
	waits("first", "Insufficient example.com/gpu")

	// The administrator says that there is one: the first Pod gets it, the second waits for the first's end.
	w.eventually("the Node has a gpu", func() error {
		return w.user.Patch(context.Background(), nodeKind, controller.Key{Name: "here"}, types.MergePatchType, []byte(`{"status":{"capacity":{"example.com/gpu":"1"}}}`), "status")
	})
	w.awaitRunning("first")
	w.create(sh("second", "exec sleep 1000", requests("example.com/gpu", "1")))
	waits("second", "Insufficient example.com/gpu")
	w.restart()
	waits("second", "Insufficient example.com/gpu")
	w.delete("first", nil)
	w.awaitRunning("second")
	w.patch("second", `{"spec":{"activeDeadlineSeconds":1}}`)
	w.awaitPhase("second", corev1.PodFailed)
	w.create(sh("third", "exec sleep 1000", requests("example.com/gpu", "1")))
	w.awaitRunning("third") // what is over takes no room

	// One that is bound past the scheduler is turned away.
	w.create(sh("pushed", "exec sleep 1000", requests("cpu", "10k"), func(p *corev1.Pod) { p.Spec.NodeName = "here" }))
	if p := w.awaitPhase("pushed", corev1.PodFailed); p.Status.Reason != "OutOfcpu" || !strings.Contains(p.Status.Message, "Insufficient cpu") {
		t.Errorf("%+v", p.Status)
	}
}

// A grace period is what it says, to the millisecond, although the API keeps whole seconds.
func TestGraceIsNeverShorter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	for i := range 5 {
		name := "deaf" + strconv.Itoa(i)
		w.create(sh(name, "trap '' TERM; while :; do sleep 1; done", func(p *corev1.Pod) {
			p.Finalizers = []string{"example.org/keep"} // so that its end can be read
		}))
		id := process.ID{Group: string(w.awaitReady(name).UID), Name: "main"}
		w.delete(name, nil)
		w.await(name, "over", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].State.Terminated != nil })
		run, err := w.runtime.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if lived := run.Finished.Sub(w.op.whenAsked(id)); run.Signal != 9 || lived < time.Second {
			t.Errorf("ended by signal %d after %s, with a grace period of 1 s", run.Signal, lived)
		}
		w.patch(name, `{"metadata":{"finalizers":null}}`)
	}
}

func TestKeepsItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Version: "test"})
	w.create(sh("any", "exec sleep 1000"))
	w.awaitReady("any")
	deadline := time.Now().Add(20 * time.Second)
	for {
		node, err := w.set.Get(nodeKind, controller.Key{Name: "here"})
		_, leased := w.set.Get(leaseKind, controller.Key{Namespace: corev1.NamespaceNodeLease, Name: "here"})
		if err == nil && leased == nil {
			n := node.(*corev1.Node)
			ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if !ready || n.Status.Capacity.Cpu().IsZero() || n.Status.Capacity.Memory().IsZero() || n.Labels[corev1.LabelHostname] != "here" || n.Status.NodeInfo.BootID == "" {
				data, _ := json.Marshal(n)
				t.Errorf("node is %s", data)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err, leased)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// What doesn't change isn't written: looking again at everything leaves every revision as it is.
func TestNoHotLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("a", "exec sleep 1000"))
	w.create(sh("b", "exit 1", policy(corev1.RestartPolicyNever)))
	w.create(sh("c", "exec sleep 1000", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx" }))
	w.awaitReady("a")
	w.awaitPhase("b", corev1.PodFailed)
	w.await("c", "waiting", func(p *corev1.Pod) bool { return p != nil && len(p.Status.ContainerStatuses) == 1 })
	before := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		before[name] = w.pod(name).ResourceVersion
	}
	for range 3 {
		for _, name := range []string{"a", "b", "c"} {
			if _, err := w.op.Reconcile(context.Background(), controller.Key{Namespace: "default", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.restart()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := w.op.Reconcile(context.Background(), controller.Key{Namespace: "default", Name: name}); err != nil {
			t.Fatal(err)
		}
		if err := w.set.AtLeast(context.Background(), ""); err != nil {
			t.Fatal(err)
		}
		if now := w.pod(name).ResourceVersion; now != before[name] {
			t.Errorf("%s went from revision %s to %s", name, before[name], now)
		}
	}
}

// An attempt that the runtime can't start shows why, and starts when the cause has gone.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	block := sh("blocked", "exec sleep 1000", func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/wait"}}
	})
	w.create(block)
	// A file where its directory has to be.
	obstacle := filepath.Join(w.dir, "run", string(block.UID), "main")
	if err := os.Mkdir(filepath.Dir(obstacle), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.patch("blocked", `{"spec":{"schedulingGates":null}}`)
	p := w.await("blocked", "refused", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerError"
	})
	if m := p.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, "not a directory") {
		t.Errorf("message is %q", m)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	w.awaitReady("blocked")
}

// TestTellsTheLastWords: of a container that fails, where its policy says so, and without the values of Secrets.
func TestTellsTheLastWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("hidden-value")}})
	policies := map[string]corev1.TerminationMessagePolicy{"tells": corev1.TerminationMessageFallbackToLogsOnError, "silent": corev1.TerminationMessageReadFile}
	for name, of := range policies {
		w.create(sh(name, `for i in $(seq 100); do echo line $i; done; echo "no way: $K"; exit 3`, policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.Containers[0].TerminationMessagePolicy = of
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}}
		}))
	}
	said := w.awaitPhase("tells", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated.Message
	if strings.Count(said, "\n") != 80 || !strings.HasPrefix(said, "line 22\n") || !strings.HasSuffix(said, "line 100\nno way: [K]\n") {
		t.Errorf("%q", said)
	}
	if said := w.awaitPhase("silent", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated.Message; said != "" {
		t.Errorf("%q", said)
	}
}

// TestUnlimitedIsWhatTheMachineHas: a resourceFieldRef of a limit that isn't set gives the Node's allocatable.
func TestUnlimitedIsWhatTheMachineHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.create(sh("unlimited", `test "$CPU" = `+strconv.Itoa(runtime.NumCPU()), policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CPU", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}}
	}))
	w.awaitPhase("unlimited", corev1.PodSucceeded)
}

// TestAnotherContainersResources: a resourceFieldRef may name any container of the Pod, and no other.
func TestAnotherContainersResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	of := func(container string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "host", Command: []string{"true"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3m")}}}}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CPU", ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}}}
		}
	}
	w.create(sh("init", `test "$CPU" = 3`, policy(corev1.RestartPolicyNever), of("init")))
	w.create(sh("nobody", "true", policy(corev1.RestartPolicyNever), of("nobody")))
	w.awaitPhase("init", corev1.PodSucceeded)
	w.awaitEvent("nobody", "Failed", "env CPU: container nobody not found")
}
