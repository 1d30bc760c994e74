package rest_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/controller"
)

var _ controller.Writer = (*rest.Local[controller.Object, controller.Key])(nil)

func TestLocal(t *testing.T) {
	s := newServer(t)
	s.declare("")
	ctx := t.Context()
	l := rest.NewLocal[controller.Object, controller.Key](s.verbs, clientscheme.Scheme, "tester")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "v"}}
	if err := l.Create(ctx, cm); err != nil {
		t.Fatal(err)
	}
	if cm.UID == "" || cm.ResourceVersion == "" || cm.ManagedFields[0].Manager != "tester" {
		t.Fatalf("the answer isn't in the object: %+v", cm.ObjectMeta)
	}
	stale := cm.DeepCopy()
	cm.Data["k"] = "w"
	if err := l.Update(ctx, cm); err != nil {
		t.Fatal(err)
	}
	stale.Data["k"] = "x"
	err := l.Update(ctx, stale)
	var present interface{ PresentRevision() string }
	if !apierrors.IsConflict(err) || !errors.As(err, &present) || present.PresentRevision() != cm.ResourceVersion {
		t.Fatalf("got %v, want a conflict at %s", err, cm.ResourceVersion)
	}
	applied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "applied"}}
	if err := l.Apply(ctx, applied); err != nil {
		t.Fatal(err)
	}
	if applied.Data["k"] != "applied" || applied.UID != cm.UID {
		t.Fatalf("applied %+v", applied)
	}
	gk, key := schema.GroupKind{Kind: "ConfigMap"}, controller.Key{Namespace: "default", Name: "a"}
	if err := l.Patch(ctx, gk, key, types.MergePatchType, []byte(`{"data":{"p":"q"}}`), ""); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(ctx, gk, key, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(ctx, gk, key, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v, want 404", err)
	}

	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.io/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": "w"}, "spec": map[string]any{"n": int64(1)}}}
	if err := l.Create(ctx, w); err != nil {
		t.Fatal(err)
	}
	w.Object["status"] = map[string]any{"ready": true}
	if err := l.Update(ctx, w, "status"); err != nil {
		t.Fatal(err)
	}
	if got := s.must(s.get(widgets, "default", "w")); got.Object["status"] == nil || got.GetResourceVersion() != w.GetResourceVersion() {
		t.Fatalf("stored %v", got.Object)
	}
	if err := l.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "no.io/v1", "kind": "None", "metadata": map[string]any{"name": "x"}}}); !apierrors.IsNotFound(err) {
		t.Fatalf("got %v, want 404", err)
	}
}
