package informer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	"operatord.io/operatord/internal/resource/crd"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

var (
	configMaps = schema.GroupKind{Kind: "ConfigMap"}
	widgets    = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	ctx        = context.Background()
)

// world is a set over the real store, watch cache and verbs.
type world struct {
	*rest.Local[informer.Object, informer.Key]
	t     *testing.T
	store storage.Store
	reg   *resource.Registry
	cache *watchcache.Cache
	set   *informer.Set
}

// newWorld makes all but runs nothing.
func newWorld(t *testing.T, dir string, cacheOptions watchcache.Options) *world {
	t.Helper()
	w := &world{t: t, reg: resource.NewRegistry(builtin.Kinds(), crd.Compile)}
	setCRD := func(kv *storage.KV) {
		value, err := resource.ParseValue(kv.Value)
		if err == nil {
			err = w.reg.SetCRD(value.AppendJSON(nil, uint64(kv.Rev)))
		}
		if err != nil {
			t.Error(err)
		}
	}
	const prefix = "/apiextensions.k8s.io/customresourcedefinitions/"
	store, err := bolt.Open(ctx, bolt.Options{Dir: dir, Publishing: func(events []storage.Event) {
		for _, e := range events {
			if name, ok := strings.CutPrefix(e.Key(), prefix); ok && e.New == nil {
				w.reg.RemoveCRD(name)
			} else if ok {
				setCRD(e.New)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w.store = store
	view, err := store.View(ctx, storage.Latest())
	if err != nil {
		t.Fatal(err)
	}
	for kv := range view.Range(prefix, "") {
		setCRD(kv)
	}
	w.cache = watchcache.New(store, w.reg, cacheOptions)
	t.Cleanup(w.cache.Close)
	scheme := builtin.NewScheme()
	w.Local = rest.NewLocal[informer.Object, informer.Key](rest.New(rest.Config{Store: store, Registry: w.reg, Cache: w.cache}), scheme, "test")
	w.set = informer.New(w.cache, w.reg, scheme, slog.New(slog.DiscardHandler))
	return w
}

// run fills the views and keeps them until the test ends, or the returned func is called.
func (w *world) run() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = w.set.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	if err := w.set.WaitForSync(ctx); err != nil {
		w.t.Fatal(err)
	}
	return stop
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until the views hold all that was written.
func (w *world) settled() {
	w.t.Helper()
	w.do(w.set.AtLeast(ctx, ""))
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{},
	}}
}

// widgetCRD is established, with a default for spec.size if there is one.
func (w *world) installWidgets(defaultSize string) {
	w.t.Helper()
	size := `{"type": "integer"}`
	if defaultSize != "" {
		size = fmt.Sprintf(`{"type": "integer", "default": %s}`, defaultSize)
	}
	var d apiextensionsv1.CustomResourceDefinition
	w.do(json.Unmarshal([]byte(`{
		"metadata": {"name": "widgets.example.com"},
		"spec": {"group": "example.com", "scope": "Namespaced",
			"names": {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
			"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
				"properties": {"spec": {"type": "object", "properties": {"size": `+size+`}}}}}}]}}`), &d))
	gk := schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}
	w.settled()
	if obj, err := w.set.Get(gk, informer.Key{Name: d.Name}); err == nil {
		next := obj.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
		next.Spec = d.Spec
		w.do(w.Update(ctx, next))
		return
	}
	w.do(w.Create(ctx, &d))
	d.Status.AcceptedNames = d.Spec.Names
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	w.do(w.Update(ctx, &d, "status"))
	w.do(w.set.Synced(ctx, widgets))
}

// told is what a subscriber heard.
type told struct {
	mu   sync.Mutex
	what []string
	more chan struct{}
}

func newTold() *told { return &told{more: make(chan struct{}, 1)} }

func (h *told) hear(old, new informer.Object) {
	describe := func(obj informer.Object) string {
		if obj == nil {
			return "-"
		}
		return obj.GetName() + "@" + obj.GetAnnotations()["n"]
	}
	h.mu.Lock()
	h.what = append(h.what, describe(old)+" → "+describe(new))
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

func (h *told) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.what...)
}

// wait waits until n changes were heard.
func (h *told) wait(t *testing.T, n int) []string {
	t.Helper()
	for {
		if all := h.all(); len(all) >= n {
			return all
		}
		select {
		case <-h.more:
		case <-t.Context().Done():
			t.Fatalf("heard %v", h.all())
		}
	}
}

func numbered(obj *corev1.ConfigMap, n int) *corev1.ConfigMap {
	obj.Annotations = map[string]string{"n": fmt.Sprint(n)}
	return obj
}

func key(ns, name string) informer.Key { return informer.Key{Namespace: ns, Name: name} }
