package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/process"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

// world is an API on a real store with the pod operator on it: everything but HTTP. It can be stopped and
// started again on the same directory, as a daemon is; processes go on.
type world struct {
	t     *testing.T
	dir   string
	opts  Options
	store storage.Store
	set   *informer.Set
	user  controller.Writer
	stops []func() // last first

	runtime *process.Runtime
	op      *Operator

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of a Pod
}

func newWorld(t *testing.T, opts Options) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), opts: opts}
	w.start(true)
	t.Cleanup(w.cleanUp)
	return w
}

// start starts the API, and the operator if it is wanted.
func (w *world) start(operator bool) {
	w.t.Helper()
	ctx := context.Background()
	store, err := bolt.Open(ctx, bolt.Options{Dir: filepath.Join(w.dir, "store")})
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = store
	w.stop(func() { _ = store.Close() })
	registry := resource.NewRegistry(builtin.Kinds(), nil)
	cache := watchcache.New(store, registry, watchcache.Options{})
	w.stop(cache.Close)
	verbs := rest.New(rest.Config{Store: store, Registry: registry, Cache: cache})
	scheme := builtin.NewScheme()
	w.set = informer.New(cache, registry, scheme, nil)
	w.user = rest.NewLocal[controller.Object, controller.Key](verbs, scheme, "test")
	w.changed = make(chan struct{})
	w.set.Subscribe(podKind, func(_, _ controller.Object) { w.notify() })

	var ctrl *controller.Controller
	if operator {
		if w.runtime, err = process.Open(filepath.Join(w.dir, "run"), process.Options{}); err != nil {
			w.t.Fatal(err)
		}
		w.stop(func() { w.runtime.Close() })
		o := w.opts
		o.Runtime, o.Reader, o.Dir, o.NodeName = w.runtime, w.set, filepath.Join(w.dir, "pods"), "here"
		o.Writer = controller.Tracked(rest.NewLocal[controller.Object, controller.Key](verbs, scheme, "pod"))
		if w.op, err = New(o); err != nil {
			w.t.Fatal(err)
		}
		ctrl = controller.New(controller.Options{
			Name: "pod", For: w.op.For(), Reconciler: w.op, Source: w.set, Watches: w.op.Watches(), Hints: w.op.Hints(),
		})
	}
	running, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	w.stop(func() {
		cancel()
		wait.Wait()
	})
	wait.Go(func() { _ = w.set.Run(running) })
	for _, namespace := range []string{"default", corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := w.user.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
	if operator {
		wait.Go(func() { _ = ctrl.Run(running) })
		wait.Go(func() { _ = w.op.Run(running) })
	}
	if err := w.set.Synced(ctx, podKind); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stop(f func()) { w.stops = append(w.stops, f) }

// halt is the end of the daemon, as far as its processes notice.
func (w *world) halt() {
	for i := len(w.stops) - 1; i >= 0; i-- {
		w.stops[i]()
	}
	w.stops = nil
}

func (w *world) restart() {
	w.t.Helper()
	w.halt()
	w.start(true)
}

// cleanUp ends whatever runs.
func (w *world) cleanUp() {
	w.halt()
	r, err := process.Open(filepath.Join(w.dir, "run"), process.Options{})
	if err != nil {
		w.t.Error(err)
		return
	}
	defer r.Close()
	for {
		left := false
		all, err := r.List()
		if err != nil {
			w.t.Error(err)
			return
		}
		for _, p := range all {
			if !p.Empty {
				left = true
				_ = r.Kill(context.Background(), p.ID)
				continue
			}
			_ = r.Remove(context.Background(), p.ID)
		}
		if !left {
			return
		}
		select {
		case <-r.Changed():
		case <-time.After(20 * time.Second):
			w.t.Error("processes can't be ended")
			return
		}
	}
}

func (w *world) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// pod reads a Pod from the view; nil if it isn't there.
func (w *world) pod(name string) *corev1.Pod {
	obj, err := w.set.Get(podKind, controller.Key{Namespace: "default", Name: name})
	if err != nil {
		return nil
	}
	return obj.(*corev1.Pod)
}

// await waits until a Pod is as wanted; want is given nil while there is none.
func (w *world) await(name, what string, want func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		pod := w.pod(name)
		if want(pod) {
			return pod
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%s never was %s:\n%+v", name, what, pod)
		}
	}
}

func (w *world) awaitRunning(name string) *corev1.Pod {
	w.t.Helper()
	return w.await(name, "running", func(p *corev1.Pod) bool {
		return p != nil && p.Status.Phase == corev1.PodRunning && allRunning(p)
	})
}

func (w *world) awaitReady(name string) *corev1.Pod {
	w.t.Helper()
	return w.await(name, "ready", func(p *corev1.Pod) bool { return p != nil && isReady(p) })
}

func (w *world) awaitPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	w.t.Helper()
	return w.await(name, string(phase), func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == phase })
}

func (w *world) awaitGone(name string) {
	w.t.Helper()
	w.await(name, "gone", func(p *corev1.Pod) bool { return p == nil })
}

// eventually tries something again that nothing tells the success of.
func (w *world) eventually(what string, try func() error) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: never: %v", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// awaitEvent waits for an Event about a Pod that begins with a message.
func (w *world) awaitEvent(name, reason, message string) {
	w.t.Helper()
	kind := schema.GroupKind{Kind: "Event"}
	if err := w.set.Synced(context.Background(), kind); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("an Event "+reason+" about "+name, func() error {
		var said []string
		for obj := range w.set.List(kind, controller.Query{Namespace: "default"}) {
			e := obj.(*corev1.Event)
			if e.InvolvedObject.Name != name {
				continue
			}
			if e.Reason == reason && strings.HasPrefix(e.Message, message) {
				return nil
			}
			said = append(said, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("Events are %q", said)
	})
}

func allRunning(p *corev1.Pod) bool {
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Running == nil {
			return false
		}
	}
	return len(p.Status.ContainerStatuses) > 0
}

func isReady(p *corev1.Pod) bool { return conditionTrue(p.Status.Conditions, corev1.PodReady) }

func condition(p *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	return conditionOf(p.Status.Conditions, t)
}

// sh is a Pod with one container that runs a shell script.
func sh(name, script string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: "main", Image: "host", Command: []string{"/bin/sh", "-c", script}}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func policy(p corev1.RestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
}

func (w *world) create(obj controller.Object) {
	w.t.Helper()
	if err := w.user.Create(context.Background(), obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(name string, grace *int64) {
	w.t.Helper()
	err := w.user.Delete(context.Background(), podKind, controller.Key{Namespace: "default", Name: name}, metav1.DeleteOptions{GracePeriodSeconds: grace})
	if err != nil {
		w.t.Fatal(err)
	}
}

// patch merges JSON into a Pod.
func (w *world) patch(name, json string) {
	w.t.Helper()
	err := w.user.Patch(context.Background(), podKind, controller.Key{Namespace: "default", Name: name}, types.MergePatchType, []byte(json), "")
	if err != nil {
		w.t.Fatal(err)
	}
}

// output is what the main container of a Pod has printed in its present attempt.
func (w *world) output(pod *corev1.Pod) string {
	w.t.Helper()
	s := pod.Status.ContainerStatuses[0]
	data, err := os.ReadFile(filepath.Join(w.dir, "run", string(pod.UID), s.Name, itoa(s.RestartCount), "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			out.WriteString(fields[3])
		}
	}
	return out.String()
}
