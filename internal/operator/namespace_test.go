package operator_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/operator/namespace"
)

func pod(ns, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "host"}}},
	}
}

func (w *world) nsConditions(name string) []string {
	w.t.Helper()
	return conditions(w.get(namespace.Kind(), "", name).(*corev1.Namespace).Status.Conditions, func(c corev1.NamespaceCondition) (string, string, string, string) {
		return string(c.Type), string(c.Status), c.Reason, c.Message
	})
}

func TestS44NamespaceIsEmptiedAndCanBeMadeAgain(t *testing.T) {
	w := open(t, t.TempDir(), crd.Name, namespace.Name)
	w.installWidgets()
	for round := range 2 {
		w.do(w.Create(ctx, ns("test")))
		for i := range 20 {
			w.do(w.Create(ctx, widget("test", fmt.Sprint("w-", i))))
		}
		for i := range 5 {
			w.do(w.Create(ctx, configMap("test", fmt.Sprint("c-", i))))
		}
		held := configMap("test", "held")
		held.Finalizers = []string{"example.com/hold"}
		w.do(w.Create(ctx, held))
		w.do(w.Create(ctx, configMap("default", fmt.Sprint("bystander-", round))))

		w.delete(namespace.Kind(), "", "test")
		w.until("the conditions", func() bool {
			return slices.Equal(w.nsConditions("test"), []string{
				"NamespaceDeletionDiscoveryFailure=False/ResourcesDiscovered: All resources successfully discovered",
				"NamespaceDeletionGroupVersionParsingFailure=False/ParsedGroupVersions: All legacy kube types successfully parsed",
				"NamespaceDeletionContentFailure=False/ContentDeleted: All content successfully deleted, may be waiting on finalization",
				"NamespaceContentRemaining=True/SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
				"NamespaceFinalizersRemaining=True/SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
			})
		})
		begin := time.Now()
		w.merge(configMaps, "test", "held", `{"metadata":{"finalizers":null}}`)
		w.until("the namespace to go", func() bool { return !w.there(namespace.Kind(), "", "test") })
		if d := time.Since(begin); d > time.Second {
			t.Errorf("gone %v after its last finalizer", d)
		}
		for range w.set.Metadata().InNamespace("test") {
			t.Error("something is left in a namespace that is gone")
		}
	}
	if !w.there(configMaps, "default", "bystander-1") {
		t.Error("another namespace was emptied")
	}
}

// Pods go before anything else.
func TestPodsGoFirst(t *testing.T) {
	w := open(t, t.TempDir(), namespace.Name)
	w.do(w.Create(ctx, ns("test")))
	p := pod("test", "p")
	p.Finalizers = []string{"example.com/hold"}
	w.do(w.Create(ctx, p))
	w.do(w.Create(ctx, configMap("test", "c")))
	w.delete(namespace.Kind(), "", "test")
	w.until("the Pod to be deleted", func() bool { i := w.item(pods, "test", "p"); return i != nil && i.Deleting() })
	w.until("the condition", func() bool {
		return slices.Contains(w.nsConditions("test"), "NamespaceFinalizersRemaining=True/SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances")
	})
	if i := w.item(configMaps, "test", "c"); i == nil || i.Deleting() {
		t.Error("a ConfigMap was deleted while a Pod is there")
	}
	w.merge(pods, "test", "p", `{"metadata":{"finalizers":null}}`)
	w.until("the namespace to go", func() bool { return !w.there(namespace.Kind(), "", "test") })
}

// S46: writers that refill a namespace get a 403 with its cause, and don't keep it.
func TestS46Refilled(t *testing.T) {
	w := open(t, t.TempDir(), namespace.Name)
	w.do(w.Create(ctx, ns("test")))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := w.Create(ctx, configMap("test", fmt.Sprintf("c-%d-%d", i, n)))
				if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !apierrors.IsNotFound(err) {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	w.until("some content", func() bool { return w.there(configMaps, "test", "c-0-3") })
	w.delete(namespace.Kind(), "", "test")
	w.until("the namespace to go", func() bool { return !w.there(namespace.Kind(), "", "test") })
	close(stop)
	writers.Wait()
	w.do(w.set.AtLeast(ctx, ""))
	for i := range w.set.Metadata().InNamespace("test") {
		t.Errorf("%v is in a namespace that is gone", i.Key)
	}
}

// A namespace with finalizers of its own stays when it is empty; a restart in between changes nothing.
func TestNamespaceAfterRestart(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, namespace.Name)
	n := ns("test")
	n.Finalizers = []string{"example.com/hold"}
	w.do(w.Create(ctx, n))
	held := configMap("test", "held")
	held.Finalizers = []string{"example.com/hold"}
	w.do(w.Create(ctx, held))
	w.delete(namespace.Kind(), "", "test")
	w.stop()

	w = open(t, dir, namespace.Name)
	w.until("the content to be deleted", func() bool { i := w.item(configMaps, "test", "held"); return i != nil && i.Deleting() })
	w.merge(configMaps, "test", "held", `{"metadata":{"finalizers":null}}`)
	w.until("the namespace to be let go", func() bool {
		return len(w.get(namespace.Kind(), "", "test").(*corev1.Namespace).Spec.Finalizers) == 0
	})
	w.merge(namespace.Kind(), "", "test", `{"metadata":{"finalizers":null}}`)
	w.until("the namespace to go", func() bool { return !w.there(namespace.Kind(), "", "test") })
}
