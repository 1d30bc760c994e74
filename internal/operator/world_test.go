// Package operator holds the operators, one package each. The tests here run Kubernetes' own three (crd,
// namespace, garbagecollector) over the real store, watch cache, verbs and informers.
package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api"
	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/operator/garbagecollector"
	"operatord.io/operatord/internal/operator/namespace"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	resourcecrd "operatord.io/operatord/internal/resource/crd"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

var (
	ctx        = context.Background()
	configMaps = schema.GroupKind{Kind: "ConfigMap"}
	pods       = schema.GroupKind{Kind: "Pod"}
	events     = schema.GroupKind{Kind: "Event"}
	widgets    = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	quiet      = slog.New(slog.DiscardHandler)
)

// world is the server without HTTP and with the operators that a test turns on.
type world struct {
	*rest.Local[controller.Object, controller.Key]
	t     *testing.T
	store storage.Store
	reg   *resource.Registry
	cache *watchcache.Cache
	verbs *rest.Verbs
	set   *informer.Set
	stop  func()

	mu      sync.Mutex
	changed chan struct{}
	runs    map[string]int // reconciles by operator
	results map[string]int
}

// open starts everything over a directory, which may hold an earlier world's data.
func open(t *testing.T, dir string, operators ...string) *world {
	t.Helper()
	w := &world{t: t, reg: resource.NewRegistry(builtin.Kinds(), resourcecrd.Compile), changed: make(chan struct{}), runs: map[string]int{}, results: map[string]int{}}
	const prefix = "/apiextensions.k8s.io/customresourcedefinitions/"
	setCRD := func(kv *storage.KV) {
		value, err := resource.ParseValue(kv.Value)
		if err == nil {
			err = w.reg.SetCRD(value.AppendJSON(nil, uint64(kv.Rev)))
		}
		var unservable *resourcecrd.Unservable
		if err != nil && !errors.As(err, &unservable) {
			t.Error(err)
		}
	}
	store, err := bolt.Open(ctx, bolt.Options{Dir: dir, Publishing: func(batch []storage.Event) {
		for _, e := range batch {
			if name, ok := strings.CutPrefix(e.Key(), prefix); ok && e.New == nil {
				w.reg.RemoveCRD(name)
			} else if ok {
				setCRD(e.New)
			}
		}
	}})
	w.do(err)
	w.store = store
	view, err := store.View(ctx, storage.Latest())
	w.do(err)
	for kv := range view.Range(prefix, "") {
		setCRD(kv)
	}
	w.cache = watchcache.New(store, w.reg, watchcache.Options{})
	scheme := builtin.NewScheme()
	w.verbs = rest.New(rest.Config{Store: store, Registry: w.reg, Cache: w.cache})
	writer := func(name string) *rest.Local[controller.Object, controller.Key] {
		return rest.NewLocal[controller.Object, controller.Key](w.verbs, scheme, name)
	}
	w.Local = writer("test")
	w.set = informer.New(w.cache, w.reg, scheme, quiet)
	metrics := controller.Metrics{Reconciled: func(name, result string, _ time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs[name]++
		w.results[name+" "+result]++
		w.wake()
	}}
	w.set.Metadata().Subscribe(func(_, _ *informer.Item) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake()
	})

	var run []func(context.Context) error
	for _, name := range operators {
		tracked := controller.Tracked(writer(name))
		o := controller.Options{Name: name, Source: w.set, Resync: -1, Metrics: metrics, Log: quiet}
		switch name {
		case crd.Name:
			own, err := crd.Definitions(api.CRDs)
			w.do(err)
			op := crd.New(crd.Options{Reader: w.set, Metadata: w.set.Metadata(), Writer: tracked, Builtin: w.reg.Builtin(), Own: own, Log: quiet})
			o.For, o.Reconciler, o.Watches, o.Workers = crd.Kind(), op, op.Watches(), 1
			run = append(run, controller.New(o).Run)
		case namespace.Name:
			o.For, o.Reconciler = namespace.Kind(), namespace.New(namespace.Options{Reader: w.set, Metadata: w.set.Metadata(), Writer: tracked, Log: quiet})
			run = append(run, controller.New(o).Run)
		case garbagecollector.Name:
			gc := garbagecollector.New(garbagecollector.Options{Set: w.set, Registry: w.reg, Writer: tracked, Metrics: metrics, Log: quiet})
			run = append(run, gc.Run)
		case "widget":
			o.For, o.Reconciler = widgets, nothing{}
			run = append(run, controller.New(o).Run)
		default:
			t.Fatalf("no operator %s", name)
		}
	}
	running, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, run := range append(run, w.set.Run) {
		group.Go(func() { _ = run(running) })
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		w.cache.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	w.do(w.set.WaitForSync(ctx))
	w.do(crd.EnsureNamespaces(ctx, w.Local))
	return w
}

// nothing is an operator with nothing to do.
type nothing struct{}

func (nothing) Reconcile(context.Context, controller.Key) (controller.Result, error) {
	return controller.Result{}, nil
}

func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// until waits for a condition, looked at again after each change and each reconcile.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func (w *world) ran(operator string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[operator]
}

// there tells whether the store has an object now.
func (w *world) there(gk schema.GroupKind, namespace, name string) bool {
	w.t.Helper()
	return w.item(gk, namespace, name) != nil
}

func (w *world) item(gk schema.GroupKind, namespace, name string) *informer.Item {
	w.t.Helper()
	w.do(w.set.AtLeast(ctx, ""))
	item, _ := w.set.Metadata().Get(gk, key(namespace, name))
	return item
}

func (w *world) get(gk schema.GroupKind, namespace, name string) controller.Object {
	w.t.Helper()
	w.do(w.set.AtLeast(ctx, ""))
	obj, err := w.set.Get(gk, key(namespace, name))
	w.do(err)
	return obj
}

// merge patches an object.
func (w *world) merge(gk schema.GroupKind, namespace, name, patch string) {
	w.t.Helper()
	w.do(w.Patch(ctx, gk, key(namespace, name), types.MergePatchType, []byte(patch), ""))
}

func (w *world) delete(gk schema.GroupKind, namespace, name string, policy ...metav1.DeletionPropagation) {
	w.t.Helper()
	var opts metav1.DeleteOptions
	if len(policy) > 0 {
		opts.PropagationPolicy = &policy[0]
	}
	w.do(w.Delete(ctx, gk, key(namespace, name), opts))
}

func key(namespace, name string) controller.Key {
	return controller.Key{Namespace: namespace, Name: name}
}

func ns(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func widget(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// definition makes a CRD of a kind in example.com; edit may be nil.
func definition(kind string, edit func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	var d apiextensionsv1.CustomResourceDefinition
	err := json.Unmarshal(fmt.Appendf(nil, `{
		"metadata": {"name": "%s.example.com"},
		"spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "%s", "kind": "%s"},
			"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`,
		plural, plural, kind), &d)
	if err != nil {
		panic(err)
	}
	if edit != nil {
		edit(&d)
	}
	return &d
}

// installWidgets makes the kind Widget and waits until it is served.
func (w *world) installWidgets() {
	w.t.Helper()
	w.do(w.Create(ctx, definition("Widget", nil)))
	w.do(w.set.Synced(ctx, widgets))
}

// conditions are type=status/reason of an object, in their order.
func conditions[C any](all []C, read func(C) (string, string, string, string)) (out []string) {
	for _, c := range all {
		t, status, reason, message := read(c)
		out = append(out, t+"="+status+"/"+reason+": "+message)
	}
	return out
}

func (w *world) crdConditions(name string) []string {
	w.t.Helper()
	d := w.get(crd.Kind(), "", name).(*apiextensionsv1.CustomResourceDefinition)
	return conditions(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) (string, string, string, string) {
		return string(c.Type), string(c.Status), c.Reason, c.Message
	})
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
