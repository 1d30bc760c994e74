package rest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// noting keeps the notes of writes.
type noting struct {
	storage.Store
	mu    sync.Mutex
	notes []string
}

func (n *noting) Commit(ctx context.Context, w storage.Write) (*storage.KV, error) {
	n.mu.Lock()
	n.notes = append(n.notes, w.Note)
	n.mu.Unlock()
	return n.Store.Commit(ctx, w)
}

// The store's history says who did what, and for which action.
func TestNotes(t *testing.T) {
	store := &noting{}
	type action struct{}
	s := newServer(t, func(c *rest.Config) {
		store.Store = c.Store
		c.Store = store
		c.Action = func(ctx context.Context) string {
			name, _ := ctx.Value(action{}).(string)
			return name
		}
	})
	s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	s.must(s.patch(configMaps, "default", "a", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`))
	a := s.on(configMaps, "default", "a")
	a.User = &user.DefaultInfo{Name: "system:operatord:" + strings.Repeat("ü", 200)}
	ctx := context.WithValue(t.Context(), action{}, "CreateMember")
	if _, err := s.verbs.Patch(ctx, s.on(configMaps, "default", "a"), types.MergePatchType, []byte(`{"data":{"k":"w"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.verbs.Delete(ctx, a, nil); err != nil {
		t.Fatal(err)
	}
	got := store.notes[1:]
	if want := "admin create|admin apply|admin patch CreateMember"; strings.Join(got[:3], "|") != want {
		t.Errorf("notes are %q, want %q", got[:3], want)
	}
	if last := got[3]; len(last) > storage.MaxNote || !utf8.ValidString(last) {
		t.Errorf("a long note is %d bytes: %q", len(last), last)
	}
}

// nosy is an admission that sets a label, refuses a name, and remembers what it was asked.
type nosy struct {
	mu    sync.Mutex
	asked []string
}

func (n *nosy) note(phase string, r *rest.AdmissionRequest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, fmt.Sprint(phase, " ", r.Operation, " ", r.Name, " ", r.Subresource, r.Old != nil, r.DryRun))
}

func (n *nosy) Mutate(_ context.Context, r *rest.AdmissionRequest) error {
	n.note("mutate", r)
	if cm, ok := r.Object.(*core.ConfigMap); ok {
		cm.Labels = map[string]string{"seen": "yes"}
		r.Changed = true
		r.Warnings = append(r.Warnings, "labelled")
	}
	return nil
}

func (n *nosy) Validate(_ context.Context, r *rest.AdmissionRequest) error {
	n.note("validate", r)
	if r.Name == "refused" {
		return apierrors.NewForbidden(r.Kind.GroupResource(), r.Name, errors.New("not that name"))
	}
	return nil
}

func TestAdmission(t *testing.T) {
	n := &nosy{}
	s := newServer(t, func(c *rest.Config) { c.Admission = n })
	n.asked = nil
	res, err := s.create(configMaps, "default", `{"metadata":{"name":"a"}}`)
	if o := s.must(res, err); o.GetLabels()["seen"] != "yes" || len(res.Warnings) != 1 || res.Warnings[0] != "labelled" {
		t.Errorf("it has %v, warnings %q", o.GetLabels(), res.Warnings)
	}
	s.must(s.patch(configMaps, "default", "a", types.MergePatchType, `{"data":{"k":"v"}}`))
	s.must(s.patch(configMaps, "default", "applied", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`))
	if _, err := s.delete(configMaps, "default", "a"); err != nil {
		t.Error(err)
	}
	want := []string{
		"mutate CREATE a false false", "validate CREATE a false false",
		"mutate UPDATE a true false", "validate UPDATE a true false",
		"mutate CREATE applied false false", "validate CREATE applied false false",
		"mutate DELETE a true false", "validate DELETE a true false",
	}
	if strings.Join(n.asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(n.asked, "\n"), strings.Join(want, "\n"))
	}
	now := s.store.Status().Rev
	res, err = s.create(configMaps, "default", `{"metadata":{"name":"refused"}}`)
	s.refused(res, err, 403, metav1.StatusReasonForbidden, "not that name")
	if res == nil || len(res.Warnings) != 1 {
		t.Error("the refused request's warnings are lost")
	}
	if s.store.Status().Rev != now {
		t.Error("something was written")
	}
}

func TestGetAtRevisions(t *testing.T) {
	s := newServer(t)
	o := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	a := s.on(configMaps, "default", "a")
	for _, rv := range []string{"", "0", "1", o.GetResourceVersion()} {
		s.must(s.verbs.Get(t.Context(), a, metav1.GetOptions{ResourceVersion: rv}))
	}
	res, err := s.verbs.Get(t.Context(), a, metav1.GetOptions{ResourceVersion: "100000"})
	s.refused(res, err, 504, metav1.StatusReasonTimeout, "Too large resource version: 100000, current: ")
	res, err = s.verbs.Get(t.Context(), a, metav1.GetOptions{ResourceVersion: "x"})
	s.refused(res, err, 500, "", `resourceVersion: Invalid value: "x"`)
}

func TestScale(t *testing.T) {
	s := newServer(t)
	s.declare(`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`)
	s.must(s.create(widgets, "default", `{"metadata":{"name":"a"},"spec":{"replicas":1}}`))
	a := s.on(widgets, "default", "a", "scale")
	scale := func(res *rest.Result, err error) *autoscalingv1.Scale {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return res.Body.(*autoscalingv1.Scale)
	}
	if got := scale(s.verbs.Get(t.Context(), a, metav1.GetOptions{})); got.Spec.Replicas != 1 {
		t.Errorf("it has %d", got.Spec.Replicas)
	}
	if got := scale(s.patch(widgets, "default", "a", types.MergePatchType, `{"spec":{"replicas":3}}`, "scale")); got.Spec.Replicas != 3 {
		t.Errorf("a patch answers %d", got.Spec.Replicas)
	}
	old := scale(s.verbs.Get(t.Context(), a, metav1.GetOptions{}))
	put := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default","resourceVersion":"` + old.ResourceVersion + `"},"spec":{"replicas":5}}`
	if got := scale(s.update(widgets, "default", "a", put, "scale")); got.Spec.Replicas != 5 {
		t.Errorf("an update answers %d", got.Spec.Replicas)
	}
	res, err := s.update(widgets, "default", "a", put, "scale")
	s.refused(res, err, 409, metav1.StatusReasonConflict, "the object has been modified")
	now := s.must(s.get(widgets, "default", "a"))
	if got, _, _ := nested(now.Object, "spec", "replicas"); got != int64(5) || now.GetGeneration() != 3 {
		t.Errorf("the object has %v, generation %d", got, now.GetGeneration())
	}
}

// A hundred writers of one object without a resourceVersion don't run each other's work again and again.
func TestManyPatchesOfOneObject(t *testing.T) {
	s := newServer(t)
	s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	var running sync.WaitGroup
	for i := range 100 {
		running.Go(func() {
			patch := fmt.Sprintf(`{"data":{"k%d":"v"}}`, i)
			if _, err := s.verbs.Patch(context.Background(), s.on(configMaps, "default", "a"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if data, _, _ := nested(s.must(s.get(configMaps, "default", "a")).Object, "data"); len(data.(map[string]any)) != 100 {
		t.Errorf("%d of 100 landed", len(data.(map[string]any)))
	}
}

// A patch whose context ends while it queues gives up.
func TestQueueingEndsWithTheContext(t *testing.T) {
	var block func()
	s := newServer(t, func(c *rest.Config) { c.Store = hooked{c.Store, &block} })
	s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"}}`))
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	block = func() {
		// Somebody is always faster.
		f := block
		block = nil
		n++
		s.must(s.patch(configMaps, "default", "a", types.MergePatchType, fmt.Sprintf(`{"data":{"n":"%d"}}`, n)))
		block = f
		if n == 5 {
			cancel()
		}
	}
	_, err := s.verbs.Patch(ctx, s.on(configMaps, "default", "a"), types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{})
	if !errors.Is(err, context.Canceled) || n != 5 {
		t.Errorf("got %v after %d attempts", err, n)
	}
}

// S19: one cluster-scoped object by its path.
func TestS19WatchOneNamespace(t *testing.T) {
	s := newServer(t)
	ns := s.must(s.create("v1/namespaces", "", `{"metadata":{"name":"x"}}`))
	for _, rv := range []string{"", "0", ns.GetResourceVersion()} {
		w, err := s.verbs.Watch(t.Context(), s.on("v1/namespaces", "x", "x"), watchcache.ListOptions{ResourceVersion: rv})
		if err != nil {
			t.Fatal(err)
		}
		e := &events{TB: t, watch: w}
		if rv == "" || rv == "0" {
			e.expect("ADDED x")
		}
		s.must(s.patch("v1/namespaces", "", "default", types.MergePatchType, `{"metadata":{"labels":{"rv":"a`+rv+`"}}}`))
		s.must(s.patch("v1/namespaces", "", "x", types.MergePatchType, `{"metadata":{"labels":{"rv":"a`+rv+`"}}}`))
		e.expect("MODIFIED x")
		w.Close()
	}
}
