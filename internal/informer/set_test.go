package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

func TestReadsAndIndexes(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{})
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	w.do(w.Create(ctx, namespace("other")))
	owner := configMap("default", "owner")
	w.do(w.Create(ctx, owner))
	for i, ns := range []string{"other", "default", "default"} {
		c := configMap(ns, fmt.Sprint("c-", i))
		c.Labels = map[string]string{"tier": []string{"web", "web", "db"}[i]}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		w.do(w.Create(ctx, c))
	}
	w.settled()

	names := func(q informer.Query) (out []string) {
		for obj := range w.set.List(configMaps, q) {
			out = append(out, obj.GetNamespace()+"/"+obj.GetName())
		}
		return out
	}
	selector := func(s string) labels.Selector {
		parsed, err := labels.Parse(s)
		w.do(err)
		return parsed
	}
	for _, c := range []struct {
		name string
		q    informer.Query
		want []string
	}{
		{"all", informer.Query{}, []string{"default/c-1", "default/c-2", "default/owner", "other/c-0"}},
		{"namespace", informer.Query{Namespace: "default"}, []string{"default/c-1", "default/c-2", "default/owner"}},
		{"prefix", informer.Query{Namespace: "default", Prefix: "c-"}, []string{"default/c-1", "default/c-2"}},
		{"prefix in all namespaces", informer.Query{Prefix: "c-"}, []string{"default/c-1", "default/c-2", "other/c-0"}},
		{"prefix and label", informer.Query{Prefix: "c-1", Selector: selector("tier=web")}, []string{"default/c-1"}},
		{"label", informer.Query{Selector: selector("tier=web")}, []string{"default/c-1", "other/c-0"}},
		{"labels", informer.Query{Selector: selector("tier in (web,db),tier!=db")}, []string{"default/c-1", "other/c-0"}},
		{"no label", informer.Query{Selector: selector("!tier")}, []string{"default/owner"}},
		{"nothing", informer.Query{Selector: labels.Nothing()}, nil},
		{"owner", informer.Query{Owner: owner.UID}, []string{"default/c-1", "default/c-2", "other/c-0"}},
		{"owner, namespace and label", informer.Query{Owner: owner.UID, Namespace: "default", Selector: selector("tier=web")}, []string{"default/c-1"}},
	} {
		if got := names(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}

	// The index follows changes.
	obj, err := w.set.Get(configMaps, key("default", "c-1"))
	w.do(err)
	next := obj.DeepCopyObject().(*corev1.ConfigMap)
	next.Labels["tier"], next.OwnerReferences = "db", nil
	w.do(w.Update(ctx, next))
	w.do(w.Delete(ctx, configMaps, key("default", "c-2"), metav1.DeleteOptions{}))
	w.settled()
	if got := names(informer.Query{Selector: selector("tier=db")}); !slices.Equal(got, []string{"default/c-1"}) {
		t.Errorf("label after changes: %v", got)
	}
	if got := names(informer.Query{Owner: owner.UID}); !slices.Equal(got, []string{"other/c-0"}) {
		t.Errorf("owner after changes: %v", got)
	}

	first, err := w.set.Get(configMaps, key("default", "c-1"))
	w.do(err)
	second, _ := w.set.Get(configMaps, key("default", "c-1"))
	if first != second {
		t.Error("one revision was decoded twice")
	}
	if c := first.(*corev1.ConfigMap); c.APIVersion != "v1" || c.Kind != "ConfigMap" || c.ResourceVersion != next.ResourceVersion {
		t.Errorf("decoded %+v", c.TypeMeta)
	}
	if _, err := w.set.Get(configMaps, key("default", "none")); !apierrors.IsNotFound(err) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := w.set.Get(widgets, key("default", "none")); !apierrors.IsNotFound(err) {
		t.Errorf("a kind that isn't served: %v", err)
	}
}

func TestMetadata(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{})
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	w.installWidgets("")
	owner := widget("owner")
	w.do(w.Create(ctx, owner))
	child := configMap("default", "child")
	child.Finalizers = []string{"example.com/hold"}
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: owner.GetUID()}}
	w.do(w.Create(ctx, child))
	w.do(w.Delete(ctx, configMaps, key("default", "child"), metav1.DeleteOptions{}))
	w.settled()

	m := w.set.Metadata()
	item, ok := m.ByUID(child.UID)
	if !ok || item.Kind() != configMaps || item.Resource().Resource != "configmaps" || item.Key != key("default", "child") ||
		!item.Deleting() || !slices.Equal(item.Finalizers(), child.Finalizers) || len(item.Owners()) != 1 {
		t.Errorf("item %+v", item)
	}
	if same, ok := m.Get(configMaps, key("default", "child")); !ok || same != item {
		t.Errorf("by name %+v", same)
	}
	if d := m.Dependents(owner.GetUID()); len(d) != 1 || d[0] != item {
		t.Errorf("dependents %v", d)
	}
	var in []string
	for i := range m.InNamespace("default") {
		in = append(in, i.Kind().Kind+" "+i.Key.Name)
	}
	if !slices.Equal(in, []string{"ConfigMap child", "Widget owner"}) {
		t.Errorf("in the namespace: %v", in)
	}
	if of := slices.Collect(m.OfKind(widgets)); len(of) != 1 || of[0].UID() != owner.GetUID() {
		t.Errorf("of the kind: %v", of)
	}
	for range m.InNamespace("") {
		t.Error("something is in no namespace")
	}
}

// Waiting for a revision works for kinds of which nothing is ever written.
func TestWaitForWhileNothingOfAKindIsWritten(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{BookmarkEvery: time.Hour})
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	begin := time.Now()
	const n = 50
	for i := range n {
		c := configMap("default", fmt.Sprint("c-", i))
		w.do(w.Create(ctx, c))
		w.do(w.set.AtLeast(ctx, c.ResourceVersion)) // every kind
	}
	t.Logf("%v for a write and the wait for all views", time.Since(begin)/n)
	future, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := w.set.WaitFor(future, 1<<40); err == nil {
		t.Error("reached a revision that doesn't exist")
	}
	if err := w.set.AtLeast(ctx, "x"); err == nil {
		t.Error("x is a revision")
	}
}

// Between the moment at which a kind is served and the one at which its view is opened, the kind must not look as
// if it had no objects.
func TestWaitForAKindWithoutAView(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{})
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if err := w.set.AtLeastOf(impatient, "1", configMaps); !errors.Is(err, context.Canceled) {
		t.Errorf("one kind: got %v, want to wait", err)
	}
	if err := w.set.AtLeastOf(impatient, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("all kinds: got %v, want to wait", err)
	}
	w.do(w.set.AtLeastOf(impatient, "1", widgets)) // which nobody serves
	w.do(w.Create(ctx, namespace("default")))
	w.do(w.Create(ctx, configMap("default", "a")))
	running, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- w.set.Run(running) }()
	w.do(w.set.AtLeastOf(ctx, "", configMaps))
	if _, err := w.set.Get(configMaps, key("default", "a")); err != nil {
		t.Error(err)
	}
	stop()
	<-done
}

// S16: a feed that loses its place in history lists again; what went meanwhile is deleted with the last
// known state.
func TestS16DeletesAreMadeUpAfterLostHistory(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{RingSize: 4})
	heard, block := newTold(), make(chan struct{})
	var once sync.Once
	blocked := make(chan struct{})
	w.set.Subscribe(configMaps, func(old, new informer.Object) {
		if new != nil && new.GetName() == "block" {
			once.Do(func() { close(blocked) })
			<-block
		}
		heard.hear(old, new)
	})
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	for i := range 3 {
		w.do(w.Create(ctx, numbered(configMap("default", fmt.Sprint("c-", i)), i)))
	}
	w.do(w.Create(ctx, configMap("default", "block")))
	<-blocked
	w.do(w.Delete(ctx, configMaps, key("default", "c-0"), metav1.DeleteOptions{}))
	w.do(w.Delete(ctx, configMaps, key("default", "c-2"), metav1.DeleteOptions{}))
	w.do(w.Delete(ctx, configMaps, key("default", "c-1"), metav1.DeleteOptions{}))
	w.do(w.Create(ctx, numbered(configMap("default", "c-1"), 9))) // made anew: another object
	for i := range 20 {
		w.do(w.Create(ctx, configMap("default", fmt.Sprint("filler-", i))))
		w.do(w.Delete(ctx, configMaps, key("default", fmt.Sprint("filler-", i)), metav1.DeleteOptions{}))
	}
	w.do(w.store.Compact(ctx, w.store.Status().Rev))
	close(block)
	w.settled()
	got := heard.wait(t, 8)[4:]
	slices.Sort(got)
	if want := []string{"- → c-1@9", "c-0@0 → -", "c-1@1 → -", "c-2@2 → -"}; !slices.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
}

// A kind appears, changes and goes: its view follows without polling.
func TestKindsComeChangeAndGo(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{})
	heard := newTold()
	w.set.Subscribe(widgets, heard.hear)
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	w.installWidgets("")
	w.do(w.Create(ctx, widget("a")))
	w.settled()
	size := func() any {
		obj, err := w.set.Get(widgets, key("default", "a"))
		w.do(err)
		v, _, _ := unstructured.NestedFieldNoCopy(obj.(*unstructured.Unstructured).Object, "spec", "size")
		return v
	}
	if got := size(); got != nil {
		t.Errorf("size %v before it has a default", got)
	}
	w.installWidgets("7")
	deadline, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for size() != int64(7) {
		// The new kind's list has no event of its own to wait for: its next write has.
		w.do(deadline.Err())
		other := widget("other")
		w.do(w.Create(ctx, other))
		w.do(w.set.AtLeastOf(deadline, other.GetResourceVersion(), widgets))
		w.do(w.Delete(ctx, widgets, key("default", "other"), metav1.DeleteOptions{}))
	}

	w.reg.RemoveCRD("widgets.example.com")
	for {
		all := heard.all()
		if slices.Contains(all, "a@ → -") {
			break
		}
		heard.wait(t, len(all)+1)
	}
	if _, err := w.set.Get(widgets, key("default", "a")); !apierrors.IsNotFound(err) {
		t.Errorf("the object of a kind that has gone: %v", err)
	}
	w.settled() // a kind that isn't served holds up nobody
}

// S20: after a restart the first state that a reader sees is not older than any revision given out before.
func TestS20NoTimeTravelOverARestart(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir, watchcache.Options{})
	stop := w.run()
	w.do(w.Create(ctx, namespace("default")))
	w.installWidgets("3")
	c := numbered(configMap("default", "c"), 1)
	w.do(w.Create(ctx, c))
	numbered(c, 2)
	w.do(w.Update(ctx, c)) // acknowledged; whether anyone has seen it doesn't matter
	a := widget("a")
	w.do(w.Create(ctx, a))
	stop()
	w.cache.Close()
	w.do(w.store.Close())

	w = newWorld(t, dir, watchcache.Options{})
	w.run()
	obj, err := w.set.Get(configMaps, key("default", "c"))
	w.do(err)
	if obj.GetResourceVersion() != c.ResourceVersion {
		t.Errorf("revision %s first, %s was given out", obj.GetResourceVersion(), c.ResourceVersion)
	}
	if _, err := w.set.Get(widgets, key("default", "a")); err != nil {
		t.Error(err)
	}
	rev, _ := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	w.do(w.set.WaitFor(ctx, rev))
}

// Whatever is written, by whom and in what order: each view ends equal to the store, what a subscriber
// heard leads from nothing to that state in unbroken steps, and no revision ever goes back (S17).
func TestViewsEqualTheStore(t *testing.T) {
	w := newWorld(t, t.TempDir(), watchcache.Options{RingSize: 16})
	type state struct {
		mu      sync.Mutex
		rev     map[string]uint64
		present map[string]string
	}
	s := &state{rev: map[string]uint64{}, present: map[string]string{}}
	w.set.Subscribe(configMaps, func(old, new informer.Object) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := func(obj informer.Object) string {
			if obj == nil {
				return ""
			}
			return obj.GetResourceVersion()
		}
		name := ""
		for _, obj := range []informer.Object{old, new} {
			if obj != nil {
				name = obj.GetName()
			}
		}
		if at(old) != s.present[name] {
			t.Errorf("%s: heard %q → %q, but last was %q", name, at(old), at(new), s.present[name])
		}
		if new == nil {
			delete(s.present, name)
			return
		}
		rev, _ := strconv.ParseUint(at(new), 10, 64)
		if rev <= s.rev[name] {
			t.Errorf("%s went from revision %d to %d", name, s.rev[name], rev)
		}
		s.rev[name], s.present[name] = rev, at(new)
	})
	w.run()
	w.do(w.Create(ctx, namespace("default")))
	rapid.Check(t, func(r *rapid.T) {
		writers := rapid.IntRange(1, 4).Draw(r, "writers")
		var group sync.WaitGroup
		for range writers {
			ops := rapid.SliceOfN(rapid.IntRange(0, 8), 1, 12).Draw(r, "ops")
			group.Go(func() {
				for i, op := range ops {
					name := fmt.Sprint("c-", op%3)
					switch op / 3 {
					case 0:
						_ = w.Create(ctx, configMap("default", name))
					case 1:
						_ = w.Delete(ctx, configMaps, key("default", name), metav1.DeleteOptions{})
					case 2:
						_ = w.Patch(ctx, configMaps, key("default", name), "application/merge-patch+json", fmt.Appendf(nil, `{"data":{"k":"%d"}}`, i), "")
					}
				}
			})
		}
		group.Wait()
		if err := w.set.AtLeast(ctx, ""); err != nil {
			r.Fatal(err)
		}
		view, err := w.store.View(ctx, storage.Latest())
		if err != nil {
			r.Fatal(err)
		}
		want, got := map[string]string{}, map[string]string{}
		for kv := range view.Range("/core/configmaps/default/", "") {
			want[kv.Key[len("/core/configmaps/default/"):]] = fmt.Sprint(kv.Rev)
		}
		for obj := range w.set.List(configMaps, informer.Query{}) {
			got[obj.GetName()] = obj.GetResourceVersion()
		}
		if !maps.Equal(got, want) {
			r.Fatalf("view %v, store %v", got, want)
		}
	})
}
