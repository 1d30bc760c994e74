package rest_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/watchcache"
)

const pods = "v1/pods"

const podSpec = `"spec":{"terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"host"}]}`

func TestDeleteAnswers(t *testing.T) {
	s := newServer(t)
	cm := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	res, err := s.delete(configMaps, "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	status, ok := res.Body.(*metav1.Status)
	if !ok || status.Status != metav1.StatusSuccess || status.Details.UID != cm.GetUID() || status.Details.Kind != "configmaps" || status.Details.Name != "a" {
		t.Errorf("the answer is %+v", res.Body)
	}
	res, err = s.delete(configMaps, "default", "a")
	s.refused(res, err, 404, metav1.StatusReasonNotFound, `configmaps "a" not found`)
}

func TestDeletePreconditions(t *testing.T) {
	s := newServer(t)
	cm := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	uid, rev := types.UID("other"), "1"
	for _, p := range []metav1.Preconditions{{UID: &uid}, {ResourceVersion: &rev}} {
		res, err := s.delete(configMaps, "default", "a", metav1.DeleteOptions{Preconditions: &p})
		s.refused(res, err, 409, metav1.StatusReasonConflict, "in the precondition")
	}
	uid, rev = cm.GetUID(), cm.GetResourceVersion()
	if _, err := s.delete(configMaps, "default", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rev}}); err != nil {
		t.Error(err)
	}
}

// What becomes of dependents is written into finalizers, for the garbage collector.
func TestPropagation(t *testing.T) {
	s := newServer(t)
	yes, no := true, false
	policy := func(p metav1.DeletionPropagation) *metav1.DeletionPropagation { return &p }
	for i, c := range []struct {
		before string
		opts   metav1.DeleteOptions
		after  string // "gone" when nothing holds it
	}{
		{"", metav1.DeleteOptions{}, "gone"},
		{"", metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationBackground)}, "gone"},
		{"", metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationForeground)}, "foregroundDeletion"},
		{"", metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationOrphan)}, "orphan"},
		{"", metav1.DeleteOptions{OrphanDependents: &yes}, "orphan"},
		{"", metav1.DeleteOptions{OrphanDependents: &no}, "gone"},
		{`"orphan"`, metav1.DeleteOptions{}, "orphan"},
		{`"orphan"`, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationForeground)}, "foregroundDeletion"},
		{`"foregroundDeletion"`, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationBackground)}, "gone"},
		{`"test.io/x","foregroundDeletion"`, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationOrphan)}, "test.io/x orphan"},
		{`"test.io/x"`, metav1.DeleteOptions{OrphanDependents: &no}, "test.io/x"},
	} {
		name := fmt.Sprint("a", i)
		s.must(s.create(configMaps, "default", `{"metadata":{"name":"`+name+`","finalizers":[`+c.before+`]}}`))
		res, err := s.delete(configMaps, "default", name, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.get(configMaps, "default", name)
		if c.after == "gone" {
			if !apierrors.IsNotFound(err) || res.Body == nil {
				t.Errorf("case %d: it is still there", i)
			}
			continue
		}
		u := s.must(o, err)
		if got := strings.Join(u.GetFinalizers(), " "); got != c.after || u.GetDeletionTimestamp() == nil {
			t.Errorf("case %d: it has %q, want %q", i, got, c.after)
		}
		if want := c.opts.OrphanDependents != nil && !*c.opts.OrphanDependents; res.Accepted != want {
			t.Errorf("case %d: accepted %v, want %v", i, res.Accepted, want)
		}
	}
}

// A bound Pod gets its grace; it is shortened, never lengthened; one that is nowhere goes at once.
func TestGracefulDeletion(t *testing.T) {
	s := newServer(t)
	e := s.events(pods)
	s.must(s.create(pods, "default", `{"metadata":{"name":"nowhere"},`+podSpec+`}`))
	gone := s.must(s.delete(pods, "default", "nowhere"))
	e.expect("ADDED nowhere", "MODIFIED nowhere")
	if ev := e.next(); ev.Type != watchcache.Deleted || fmt.Sprint(ev.Rev) != gone.GetResourceVersion() {
		t.Errorf("got %s at %d, the answer was at %s", ev.Type, ev.Rev, gone.GetResourceVersion())
	}

	s.must(s.create(pods, "default", `{"metadata":{"name":"p"},`+podSpec+`}`))
	res, err := s.verbs.Create(t.Context(), s.on(pods, "default", "p", "binding"),
		s.body(pods, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"here"}}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status, ok := res.Body.(*metav1.Status); !ok || status.Status != metav1.StatusSuccess || !res.Created {
		t.Errorf("binding answers %+v", res)
	}
	grace := func(n int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &n} }
	first := s.must(s.delete(pods, "default", "p"))
	if g := first.GetDeletionGracePeriodSeconds(); g == nil || *g != 30 {
		t.Fatalf("grace is %v, want 30", g)
	}
	longer := s.must(s.delete(pods, "default", "p", grace(60)))
	if longer.GetResourceVersion() != first.GetResourceVersion() {
		t.Error("a longer grace wrote something")
	}
	shorter := s.must(s.delete(pods, "default", "p", grace(5)))
	if g := shorter.GetDeletionGracePeriodSeconds(); *g != 5 || shorter.GetGeneration() != first.GetGeneration() {
		t.Errorf("grace is %d, generation %d after %d", *g, shorter.GetGeneration(), first.GetGeneration())
	}
	s.must(s.delete(pods, "default", "p", grace(0)))
	res, err = s.get(pods, "default", "p")
	s.refused(res, err, 404, "", "")
}

// S41: a collection is deleted by selectors, and the answer lists it.
func TestS41DeleteCollection(t *testing.T) {
	s := newServer(t)
	s.declare("")
	for i := range 40 {
		s.must(s.create(widgets, "default", fmt.Sprintf(`{"metadata":{"name":"w%02d","labels":{"half":"%d"}}}`, i, i%2)))
	}
	half := watchcache.ListOptions{Label: labels.SelectorFromSet(labels.Set{"half": "1"})}
	now := s.store.Status().Rev
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if l, err := s.verbs.DeleteCollection(t.Context(), s.on(widgets, "default", ""), &dry, half); err != nil || len(l.Objects) != 20 || s.store.Status().Rev != now {
		t.Errorf("a dry run lists %v, %v, and writes %d", l, err, s.store.Status().Rev-now)
	}
	l, err := s.verbs.DeleteCollection(t.Context(), s.on(widgets, "default", ""), nil, half)
	if err != nil || len(l.Objects) != 20 {
		t.Fatalf("deleted %v, %v", l, err)
	}
	rest, err := s.verbs.List(t.Context(), s.on(widgets, "default", ""), watchcache.ListOptions{})
	if err != nil || len(rest.Objects) != 20 {
		t.Fatalf("%d are left, %v", len(rest.Objects), err)
	}
	foreground := metav1.DeletePropagationForeground
	if _, err := s.verbs.DeleteCollection(t.Context(), s.on(widgets, "default", ""), &metav1.DeleteOptions{PropagationPolicy: &foreground}, watchcache.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, o := range rest.Objects {
		u := s.must(s.get(widgets, "default", o.Name()))
		if f := u.GetFinalizers(); len(f) != 1 || f[0] != metav1.FinalizerDeleteDependents {
			t.Fatalf("%s has %v", o.Name(), f)
		}
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	s := newServer(t)
	const namespaces = "v1/namespaces"
	res, err := s.delete(namespaces, "", "default")
	s.refused(res, err, 403, metav1.StatusReasonForbidden, `namespaces "default" is forbidden: this namespace may not be deleted`)
	ns := s.must(s.create(namespaces, "", `{"metadata":{"name":"x"}}`))
	if got := fmt.Sprint(ns.Object["spec"]); got != "map[finalizers:[kubernetes]]" {
		t.Errorf("spec is %v", got)
	}
	uid := types.UID("other")
	res, err = s.delete(namespaces, "", "x", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	s.refused(res, err, 409, metav1.StatusReasonConflict, "Precondition failed: UID in precondition: other")
	first := s.must(s.delete(namespaces, "", "x"))
	if phase, _, _ := nested(first.Object, "status", "phase"); phase != "Terminating" || first.GetDeletionTimestamp() == nil {
		t.Errorf("it is %v, deleted at %v", phase, first.GetDeletionTimestamp())
	}
	if again := s.must(s.delete(namespaces, "", "x")); again.GetResourceVersion() != first.GetResourceVersion() {
		t.Error("a second deletion wrote something")
	}

	// S46: creates are refused for good, with the cause that says so.
	res, err = s.create(configMaps, "x", `{"metadata":{"name":"a"}}`)
	s.refused(res, err, 403, metav1.StatusReasonForbidden, `configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated`)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("%v has no cause NamespaceTerminating", err)
	}
	res, err = s.patch(configMaps, "x", "a", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	s.refused(res, err, 403, metav1.StatusReasonForbidden, "it is being terminated")

	e := s.events(namespaces)
	s.must(s.update(namespaces, "", "x", set(first, map[string]any{"spec.finalizers": nil}), "finalize"))
	e.expect("DELETED x")
	res, err = s.get(namespaces, "", "x")
	s.refused(res, err, 404, "", "")
}

func nested(m map[string]any, path ...string) (any, bool, error) {
	var v any = m
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false, nil
		}
		v = m[p]
	}
	return v, v != nil, nil
}
