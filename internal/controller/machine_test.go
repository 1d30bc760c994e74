package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/api/v1alpha1"
)

// The machine under test wants one ConfigMap for each of spec.members, makes one at a time, and is Ready
// when all are there. With restoreFrom it first does something long outside the workers.

var (
	clusters      = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster"}
	deleteOptions = metav1.DeleteOptions{}
)

func cluster(name string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	c.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Cluster"))
	return c
}

type toy struct {
	mu     sync.Mutex
	done   bool // the long thing
	begun  int
	fail   error
	panics bool
	gone   []Key
	told   []string
}

type toyWorld struct{ missing, there []string }

type toyAction struct {
	kind, target, why string
	after             time.Duration
}

func (a toyAction) Kind() string {
	if a.Noop() {
		return "noop"
	}
	return a.kind
}
func (a toyAction) Target() string       { return a.target }
func (a toyAction) Why() string          { return a.why }
func (a toyAction) After() time.Duration { return a.after }
func (a toyAction) Noop() bool           { return a.kind == "" }

func (m *toy) Observe(_ context.Context, r Reader, c *v1alpha1.Cluster) (toyWorld, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.panics {
		panic("observe")
	}
	var o toyWorld
	for i := range c.Spec.Members {
		name := fmt.Sprintf("%s-%d", c.Name, i)
		if _, err := r.Get(configMaps, key(name)); err != nil {
			o.missing = append(o.missing, name)
		} else {
			o.there = append(o.there, name)
		}
	}
	return o, nil
}

func (m *toy) Decide(c *v1alpha1.Cluster, o toyWorld) toyAction {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.DeletionTimestamp != nil && len(o.there) > 0:
		return toyAction{kind: "remove", target: o.there[0], why: "deleted"}
	case c.DeletionTimestamp != nil:
		return toyAction{why: "gone"}
	case c.Spec.RestoreFrom != "" && !m.done:
		return toyAction{kind: "restore", target: c.Spec.RestoreFrom, why: "declared"}
	case len(o.missing) > 0:
		return toyAction{kind: "create", target: o.missing[0], why: "missing", after: time.Minute}
	}
	return toyAction{why: "complete"}
}

func (m *toy) Status(c *v1alpha1.Cluster, o toyWorld, a toyAction, held string) *v1alpha1.Cluster {
	c = c.DeepCopy()
	c.Status.Members = int32(len(o.there))
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Gap", Message: held}
	if len(o.missing) == 0 {
		ready.Status, ready.Reason = metav1.ConditionTrue, "Complete"
	}
	c.Status.Conditions = []metav1.Condition{ready}
	return c
}

func (m *toy) Act(ctx context.Context, w Writer, c *v1alpha1.Cluster, a toyAction) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	switch a.kind {
	case "restore":
		m.begun++
		return ErrRunning
	case "remove":
		return w.Delete(ctx, configMaps, key(a.target), deleteOptions)
	}
	return w.Create(ctx, configMap(a.target))
}

func (m *toy) Events(old, new *v1alpha1.Cluster, a toyAction) (out []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old.Status.Members > new.Status.Members {
		out = append(out, Event{Type: corev1.EventTypeWarning, Reason: "Lost", Message: fmt.Sprint(old.Status.Members, " became ", new.Status.Members)})
	}
	if !a.Noop() {
		out = append(out, Event{Type: corev1.EventTypeNormal, Reason: "Did", Message: a.kind + " " + a.target})
	}
	for _, e := range out {
		m.told = append(m.told, e.Reason+" "+e.Message)
	}
	return out
}

func (m *toy) Gone(_ context.Context, key Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = append(m.gone, key)
	return nil
}

// bench is a machine in a controller over a world, or driven by hand.
type bench struct {
	*world
	toy     *toy
	kit     Kit
	log     *lines
	mu      sync.Mutex
	acted   []string
	repairs []time.Duration
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// set changes the toy while workers use it.
func (b *bench) set(edit func(*toy)) {
	b.toy.mu.Lock()
	defer b.toy.mu.Unlock()
	edit(b.toy)
}

func (b *bench) actions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acted)
}

func newBench() *bench {
	b := &bench{world: newWorld(), toy: &toy{}, log: &lines{}}
	b.kit = NewMachine(MachineOptions{
		Name: "toy", For: clusters, Reader: b.world, Writer: Tracked(b.world),
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
		Metrics: Metrics{
			Acted: func(kind, action string) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.acted = append(b.acted, kind+" "+action)
			},
			Repaired: func(_ string, d time.Duration) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.repairs = append(b.repairs, d)
			},
		},
	}, Machine[*v1alpha1.Cluster, toyWorld, toyAction](b.toy))
	return b
}

func (b *bench) make(t *testing.T, members int32, edit func(*v1alpha1.Cluster)) {
	t.Helper()
	c := cluster("demo")
	c.Spec.Members = members
	if edit != nil {
		edit(c)
	}
	if err := b.Create(context.Background(), c); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) demo() *v1alpha1.Cluster {
	c, _ := b.present(clusters, key("demo")).(*v1alpha1.Cluster)
	return c
}

// reconcile runs once, by hand.
func (b *bench) reconcile(t *testing.T) Result {
	t.Helper()
	result, err := b.kit.Reconcile(context.Background(), key("demo"))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b *bench) annotate(value string) {
	b.change(clusters, key("demo"), func(obj Object) {
		if value == "" {
			obj.SetAnnotations(nil)
		} else {
			obj.SetAnnotations(map[string]string{StepAnnotation: value})
		}
	})
}

func TestOneGapAReconcile(t *testing.T) {
	b := newBench()
	b.make(t, 3, nil)
	for i := 1; i <= 3; i++ {
		result := b.reconcile(t)
		if !result.Again || result.RequeueAfter != time.Minute {
			t.Errorf("after an action: %+v, want again at once and after a minute", result)
		}
		if n := len(b.names(configMaps)); n != i {
			t.Fatalf("%d made after %d reconciles", n, i)
		}
		if kind, target, why, _ := b.demo().LastAction(); kind != "create" || target != fmt.Sprint("demo-", i-1) || why != "missing" {
			t.Errorf("lastAction %s %s %s", kind, target, why)
		}
	}
	if result := b.reconcile(t); result != (Result{}) {
		t.Errorf("when complete: %+v", result)
	}
	_, _, _, before := b.demo().LastAction()
	rv, lines, events := b.demo().ResourceVersion, strings.Count(b.log.String(), "\n"), len(b.events)
	for range 3 {
		b.reconcile(t)
	}
	if _, _, _, at := b.demo().LastAction(); b.demo().ResourceVersion != rv || !at.Equal(&before) {
		t.Error("a noop wrote")
	}
	if strings.Count(b.log.String(), "\n") != lines || lines != 3 {
		t.Errorf("%d log lines for 3 actions:\n%s", lines, b.log)
	}
	if len(b.events) != events || events != 3 || len(b.acted) != 3 {
		t.Errorf("%d Events and %d counted for 3 actions", events, len(b.acted))
	}
	e := b.events[0]
	if e.InvolvedObject.UID != b.demo().UID || e.InvolvedObject.Kind != "Cluster" || e.Reason != "Did" || e.Source.Component != "toy" || e.Namespace != "default" {
		t.Errorf("Event %+v", e)
	}
}

func TestGone(t *testing.T) {
	b := newBench()
	b.reconcile(t)
	if !slices.Equal(b.toy.gone, []Key{key("demo")}) {
		t.Errorf("gone: %v", b.toy.gone)
	}
}

// What goes between a look and a write is no error.
func TestGoneWhileItIsLookedAt(t *testing.T) {
	b := newBench()
	b.make(t, 1, nil)
	b.lag = time.Hour // the view doesn't tell
	_ = b.Delete(context.Background(), clusters, key("demo"), deleteOptions)
	if result := b.reconcile(t); result != (Result{}) {
		t.Errorf("result %+v", result)
	}
	if n := len(b.names(configMaps)); n != 0 {
		t.Errorf("%d made for nobody", n)
	}
}

func TestStepping(t *testing.T) {
	b := newBench()
	b.make(t, 4, func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{StepAnnotation: "1"} })
	made := func() int { return len(b.names(configMaps)) }
	settle := func() {
		for range 3 {
			b.reconcile(t)
		}
	}
	want := func(n int, step, after string) {
		t.Helper()
		if made() != n || seen(b.demo()) != step {
			t.Errorf("%s: %d made and status.step %s, want %d and %s", after, made(), seen(b.demo()), n, step)
		}
	}
	settle()
	want(0, "1", "the first value only starts stepping")
	if why := b.demo().Status.Conditions[0].Message; why != HeldStep {
		t.Errorf("held %q", why)
	}
	b.annotate("2")
	settle()
	want(1, "2", "a new value acts once")
	b.annotate("1")
	settle()
	want(2, "1", "any other value acts once")
	b.annotate("")
	settle()
	want(4, "none", "without the annotation it goes on by itself")
	b.annotate("1")
	settle()
	b.annotate("x")
	settle()
	want(4, "x", "a noop uses the value up")
	b.change(clusters, key("demo"), func(obj Object) { obj.(*v1alpha1.Cluster).Spec.Members = 6 })
	settle()
	want(4, "x", "a value used up does nothing later")
	b.annotate("y")
	settle()
	want(5, "y", "the next value acts once")
}

// seen is status.step.
func seen(c *v1alpha1.Cluster) string {
	if c.Status.Step == nil {
		return "none"
	}
	return *c.Status.Step
}

// An empty value is a value: it starts stepping, and every change from it and to it acts once.
func TestSteppingWithAnEmptyValue(t *testing.T) {
	b := newBench()
	b.make(t, 4, func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{StepAnnotation: ""} })
	for made, value := range []string{"", "1", "", "2"} {
		b.change(clusters, key("demo"), func(obj Object) { obj.SetAnnotations(map[string]string{StepAnnotation: value}) })
		for range 3 {
			b.reconcile(t)
		}
		if n := len(b.names(configMaps)); n != made || seen(b.demo()) != value {
			t.Errorf("after %q: %d made, want %d; status.step %q", value, n, made, seen(b.demo()))
		}
	}
}

// status.step is written before acting: a kill between loses the step, it never doubles it.
func TestStepIsUsedUpBeforeActing(t *testing.T) {
	b := newBench()
	b.make(t, 3, func(c *v1alpha1.Cluster) {
		c.Annotations = map[string]string{StepAnnotation: "2"}
		c.Status.Step = ptr.To("1")
	})
	b.toy.fail = errors.New("killed here")
	if _, err := b.kit.Reconcile(context.Background(), key("demo")); err == nil {
		t.Fatal("no error")
	}
	if step := seen(b.demo()); step != "2" {
		t.Errorf("status.step %s before the action was done", step)
	}
	b.toy.fail = nil
	b.reconcile(t)
	if n := len(b.names(configMaps)); n != 0 {
		t.Errorf("%d made: the value acted twice", n)
	}
}

func TestPausedTouchesNothingButNeverHoldsUpADeletion(t *testing.T) {
	b := newBench()
	b.make(t, 3, func(c *v1alpha1.Cluster) { c.Finalizers = []string{"x"} })
	b.reconcile(t)
	b.change(clusters, key("demo"), func(obj Object) { obj.(*v1alpha1.Cluster).Spec.Paused = true })
	events := len(b.events)
	for range 3 {
		b.reconcile(t)
	}
	if n := len(b.names(configMaps)); n != 1 {
		t.Errorf("%d made while paused", n)
	}
	if b.demo().Status.Members != 1 || b.demo().Status.Conditions[0].Message != HeldPaused {
		t.Errorf("the status is not kept true while paused: %+v", b.demo().Status)
	}
	if len(b.events) != events {
		t.Error("an Event for an action that was not done")
	}
	_ = b.Delete(context.Background(), configMaps, key("demo-0"), deleteOptions)
	b.reconcile(t)
	if !slices.Contains(b.toy.told, "Lost 1 became 0") {
		t.Errorf("a change seen while paused is not told: %v", b.toy.told)
	}

	_ = b.Create(context.Background(), configMap("demo-0"))
	b.annotate("1")
	b.change(clusters, key("demo"), func(obj Object) { obj.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) })
	b.reconcile(t)
	if n := len(b.names(configMaps)); n != 0 {
		t.Error("paused or stepping held up a deletion")
	}
}

func TestPlanDecidesWithoutDoing(t *testing.T) {
	b := newBench()
	b.make(t, 2, func(c *v1alpha1.Cluster) { c.Spec.Paused = true })
	writes := len(b.writes)
	p, err := b.kit.Plan(context.Background(), key("demo"))
	if want := (Plan{Kind: "create", Target: "demo-0", Why: "missing", After: time.Minute, Held: HeldPaused}); err != nil || p != want {
		t.Errorf("plan %+v, %v; want %+v", p, err, want)
	}
	if len(b.writes) != writes {
		t.Error("a plan wrote")
	}
	if _, err := b.kit.Plan(context.Background(), key("none")); !apierrors.IsNotFound(err) {
		t.Errorf("plan of nothing: %v", err)
	}
}

func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.lag = 10 * time.Millisecond
		b.make(t, 2, func(c *v1alpha1.Cluster) { c.Annotations = map[string]string{StepAnnotation: "1"} })
		ctx := context.Background()
		if _, err := b.kit.Step(ctx, key("none")); !apierrors.IsNotFound(err) {
			t.Errorf("step of nothing: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := b.kit.Step(ctx, key("demo")); err != errNotRunning {
			t.Errorf("step without a controller: %v", err)
		}
		defer start(Options{For: clusters, Reconciler: b.kit, Source: b.world, Resync: -1, Watches: []Watch{{Kind: configMaps, Map: func(Reader, Object) []Key { return []Key{key("demo")} }}}})()
		time.Sleep(time.Second)
		if n := len(b.names(configMaps)); n != 0 {
			t.Fatalf("%d made before the first step", n)
		}
		for i := range 2 {
			p, err := b.kit.Step(ctx, key("demo"))
			if want := (Plan{Kind: "create", Target: fmt.Sprint("demo-", i), Why: "missing", After: time.Minute}); err != nil || p != want {
				t.Errorf("step %d: %+v, %v; want %+v", i, p, err, want)
			}
			time.Sleep(time.Second)
			if n := len(b.names(configMaps)); n != i+1 {
				t.Fatalf("%d made after step %d", n, i+1)
			}
		}
		p, err := b.kit.Step(ctx, key("demo"))
		if want := (Plan{Kind: "noop", Why: "complete"}); err != nil || p != want {
			t.Errorf("step with nothing to do: %+v, %v; want %+v", p, err, want)
		}

		b.change(clusters, key("demo"), func(obj Object) { obj.(*v1alpha1.Cluster).Spec.Members = 3 })
		time.Sleep(time.Second)
		b.set(func(m *toy) { m.fail = errors.New("no room") })
		if _, err := b.kit.Step(ctx, key("demo")); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("a step that fails: %v", err)
		}
		b.set(func(m *toy) { m.fail = nil })
		b.change(clusters, key("demo"), func(obj Object) { obj.(*v1alpha1.Cluster).Spec.Paused = true })
		time.Sleep(time.Second)
		if p, err := b.kit.Step(ctx, key("demo")); err != nil || p.Held != HeldPaused || p.Kind != "create" {
			t.Errorf("step of a paused object: %+v, %v", p, err)
		}
		if n := len(b.names(configMaps)); n != 2 {
			t.Errorf("%d made although paused", n)
		}
	})
}

// A step whose action goes on outside the workers is answered when it is done, and does nothing else.
func TestStepWaitsForWhatGoesOnOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.make(t, 1, func(c *v1alpha1.Cluster) {
			c.Annotations = map[string]string{StepAnnotation: "1"}
			c.Spec.RestoreFrom = "backup"
		})
		hints := make(chan Key)
		defer start(Options{For: clusters, Reconciler: b.kit, Source: b.world, Resync: -1, Hints: hints})()
		synctest.Wait()
		type answer struct {
			Plan
			error
		}
		answers := make(chan answer, 1)
		go func() {
			p, err := b.kit.Step(context.Background(), key("demo"))
			answers <- answer{p, err}
		}()
		time.Sleep(time.Minute)
		select {
		case a := <-answers:
			t.Fatalf("answered before it was done: %+v", a)
		default:
		}
		begun := 0
		b.set(func(m *toy) { begun = m.begun })
		if begun == 0 {
			t.Fatal("the action was not begun")
		}
		if strings.Contains(b.log.String(), "acted") || b.actions() != 0 {
			t.Error("told before it was done")
		}
		b.set(func(m *toy) { m.done = true })
		hints <- key("demo")
		a := <-answers
		if a.error != nil || a.Kind != "restore" || a.Target != "backup" {
			t.Errorf("step: %+v", a)
		}
		time.Sleep(time.Minute)
		if n := len(b.names(configMaps)); n != 0 {
			t.Errorf("%d made: the step went on", n)
		}

		// A caller that gives up leaves nothing behind.
		b.set(func(m *toy) { m.done = false })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := b.kit.Step(ctx, key("demo")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("step given up: %v", err)
		}
		k := b.kit.(*kit[*v1alpha1.Cluster, toyWorld, toyAction])
		k.mu.Lock()
		defer k.mu.Unlock()
		if left := len(k.steps); left != 0 {
			t.Errorf("%d steps left behind", left)
		}
	})
}

// What only a change of status tells is told even when the action fails, and once.
func TestLossIsToldAlthoughTheActionFails(t *testing.T) {
	b := newBench()
	b.make(t, 1, nil)
	b.reconcile(t)
	b.reconcile(t)
	_ = b.Delete(context.Background(), configMaps, key("demo-0"), deleteOptions)
	b.toy.fail = errors.New("no room")
	for range 2 {
		if _, err := b.kit.Reconcile(context.Background(), key("demo")); err == nil {
			t.Fatal("no error")
		}
	}
	b.toy.fail = nil
	b.reconcile(t)
	if got, want := b.toy.told, []string{"Did create demo-0", "Lost 1 became 0", "Did create demo-0"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if len(b.events) != 3 {
		t.Errorf("%d Events", len(b.events))
	}
}

func TestRepairTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.make(t, 1, nil)
		b.reconcile(t)
		b.reconcile(t)
		if len(b.repairs) != 0 {
			t.Error("the first formation was counted as a repair")
		}
		_ = b.Delete(context.Background(), configMaps, key("demo-0"), deleteOptions)
		b.reconcile(t)
		time.Sleep(3 * time.Second)
		b.reconcile(t)
		if !slices.Equal(b.repairs, []time.Duration{3 * time.Second}) {
			t.Errorf("repairs %v", b.repairs)
		}
	})
}

// Over a restart the time since which the condition says that it isn't Ready counts.
func TestRepairTimeOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.make(t, 0, func(c *v1alpha1.Cluster) {
			c.Status.ReadyGeneration = 1
			c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-7 * time.Second))}}
		})
		b.reconcile(t)
		if !slices.Equal(b.repairs, []time.Duration{7 * time.Second}) {
			t.Errorf("repairs %v", b.repairs)
		}
	})
}

// S55: the views are half a second behind, and edits come in a burst. Nothing is made twice.
func TestS55ReadYourWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.make(t, 3, nil)
		b.lag = 500 * time.Millisecond
		r := newRuns()
		defer start(Options{
			For: clusters, Reconciler: b.kit, Source: b.world, Resync: -1, Workers: 4, Metrics: r.metrics(),
			Watches: []Watch{{Kind: configMaps, Map: func(Reader, Object) []Key { return []Key{key("demo")} }}},
		})()
		for i := range 50 {
			b.change(clusters, key("demo"), func(obj Object) { obj.SetLabels(map[string]string{"edit": fmt.Sprint(i)}) })
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := b.names(configMaps), []string{"demo-0", "demo-1", "demo-2"}; !slices.Equal(got, want) {
			t.Errorf("made %v", got)
		}
		for _, name := range b.names(configMaps) {
			if n := b.count("create " + name); n != 1 {
				t.Errorf("%s was made %d times", name, n)
			}
		}
		if n := r.result("error"); n != 0 {
			t.Errorf("%d errors: an action was tried twice", n)
		}
		if b.demo().Status.Members != 3 {
			t.Errorf("status %+v", b.demo().Status)
		}
	})
}

// One object that panics, fails or waits delays no other.
func TestOthersGoOnBesideBadOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld(), newRuns()
		defer start(Options{
			For: configMaps, Source: w, Workers: 2, Resync: -1,
			Reconciler: reconcileFunc(func(_ context.Context, key Key) (Result, error) {
				r.add(key.Name)
				switch key.Name {
				case "panics":
					panic("no")
				case "fails":
					return Result{}, errors.New("no")
				}
				return Result{}, nil
			}),
		})()
		_ = w.Create(context.Background(), configMap("panics"))
		_ = w.Create(context.Background(), configMap("fails"))
		time.Sleep(time.Second)
		for i := range 35 {
			_ = w.Create(context.Background(), configMap(fmt.Sprint("good-", i)))
		}
		begin := time.Now()
		synctest.Wait()
		for i := range 35 {
			if at := r.of(fmt.Sprint("good-", i)); len(at) != 1 {
				t.Errorf("good-%d ran %d times within %v", i, len(at), time.Since(begin))
			}
		}
	})
}

// Clients list the Events of one second by name: what was lost stands before what was done about it, also when that
// succeeds only at a second try, against the same status.
func TestEventsStandInTheOrderOfWhatHappened(t *testing.T) {
	for _, failing := range []bool{false, true} {
		b := newBench()
		b.make(t, 1, nil)
		b.reconcile(t)
		b.reconcile(t)
		for n := range 20 { // names end in a hash: one order may be luck
			_ = b.Delete(context.Background(), configMaps, key("demo-0"), deleteOptions)
			if failing {
				b.toy.fail = fmt.Errorf("no room %d", n)
				_, _ = b.kit.Reconcile(context.Background(), key("demo"))
				b.toy.fail = nil
			}
			b.reconcile(t)
			b.reconcile(t)
		}
		slices.SortFunc(b.events, func(a, b *corev1.Event) int { return strings.Compare(a.Name, b.Name) })
		var told []string
		for _, e := range b.events {
			told = append(told, e.Reason)
		}
		if want := append([]string{"Did"}, slices.Repeat([]string{"Lost", "Did"}, 20)...); !slices.Equal(told, want) {
			t.Errorf("failing at first %t: listed as %v", failing, told)
		}
	}
}
