package rest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// Nothing is created in a namespace at a later revision than its deletion began, and editing the
// namespace's labels refuses nobody.
func TestNothingIsCreatedBehindANamespacesDeletion(t *testing.T) {
	s := newServer(t)
	s.must(s.create("v1/namespaces", "", `{"metadata":{"name":"x"}}`))
	var created atomic.Int64
	enough := make(chan struct{})
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for n := 0; ; n++ {
				body := s.body(configMaps, fmt.Sprintf(`{"metadata":{"name":"c%d-%d"}}`, i, n))
				_, err := s.verbs.Create(context.Background(), s.on(configMaps, "x", ""), body, metav1.CreateOptions{})
				if apierrors.IsForbidden(err) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if created.Add(1) == 50 {
					close(enough)
				}
			}
		})
	}
	running.Go(func() {
		for n := range 30 {
			patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n)
			if _, err := s.verbs.Patch(context.Background(), s.on("v1/namespaces", "", "x"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	<-enough
	ns := s.must(s.delete("v1/namespaces", "", "x"))
	running.Wait()
	l, err := s.verbs.List(t.Context(), s.on(configMaps, "x", ""), watchcache.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var marked uint64
	fmt.Sscan(ns.GetResourceVersion(), &marked)
	for _, o := range l.Objects {
		if o.Rev() > marked {
			t.Errorf("%s was created at %d, after the deletion began at %d", o.Name(), o.Rev(), marked)
		}
	}
	if int64(len(l.Objects)) != created.Load() {
		t.Errorf("%d are there, %d were acknowledged", len(l.Objects), created.Load())
	}
}

// S13, S14: watches of a kind end when its CRD changes or goes, after everything before that; those of
// other kinds go on.
func TestS13S14WatchesEndWithTheirCRD(t *testing.T) {
	s := newServer(t)
	s.declare("")
	a := s.must(s.create(widgets, "default", `{"metadata":{"name":"a"}}`))
	other := s.events(configMaps)

	edited := s.events(widgets)
	s.must(s.patch(crdPath, "", "widgets.test.io", types.JSONPatchType,
		`[{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"X","type":"string","jsonPath":".spec.x"}]}]`))
	s.must(s.patch(widgets, "default", "a", types.MergePatchType, `{"spec":{"x":"y"}}`))
	if ev := edited.next(); ev != nil {
		if ev.Type != watchcache.Modified {
			t.Fatalf("got %s", ev.Type)
		}
		if ev := edited.next(); ev != nil {
			t.Fatalf("the watch of the old kind goes on with %s", ev.Type)
		}
	}

	e := s.events(widgets)
	marked := s.must(s.delete(crdPath, "", "widgets.test.io"))
	res, err := s.create(widgets, "default", `{"metadata":{"name":"b"}}`)
	s.refused(res, err, 403, metav1.StatusReasonForbidden, "create not allowed while custom resource definition is terminating")
	if _, err := s.delete(widgets, "default", a.GetName()); err != nil {
		t.Fatal(err)
	}
	s.must(s.patch(crdPath, "", "widgets.test.io", types.MergePatchType, `{"metadata":{"finalizers":null}}`))
	e.expect("DELETED a")
	if ev := e.next(); ev != nil {
		t.Fatalf("the watch goes on with %s after its CRD is gone (marked at %s)", ev.Type, marked.GetResourceVersion())
	}

	s.must(s.create(configMaps, "default", `{"metadata":{"name":"c"}}`))
	other.expect("ADDED c")
}

// S35: writes go on while the CRD changes, each by the schema that holds when it lands.
func TestS35WritesWhileTheCRDChanges(t *testing.T) {
	s := newServer(t)
	s.declare("")
	stop := make(chan struct{})
	var running sync.WaitGroup
	var writes atomic.Int64
	for i := range 4 {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", i, n)
				if _, err := s.verbs.Create(context.Background(), s.on(widgets, "default", ""), s.body(widgets, `{"metadata":{"name":"`+name+`"}}`), metav1.CreateOptions{}); err != nil {
					t.Errorf("create: %v", err)
				}
				if _, err := s.verbs.Patch(context.Background(), s.on(widgets, "default", name), types.MergePatchType, []byte(`{"spec":{"x":1}}`), metav1.PatchOptions{}); err != nil {
					t.Errorf("patch: %v", err)
				}
				writes.Add(2)
			}
		})
	}
	for n := range 15 {
		s.must(s.patch(crdPath, "", "widgets.test.io", types.JSONPatchType, fmt.Sprintf(
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/f%d","value":{"type":"string","default":"d"}}]`, n)))
	}
	close(stop)
	running.Wait()
	if writes.Load() == 0 {
		t.Fatal("nothing was written")
	}
	// Every object that was created after the last field came in has it.
	last := s.must(s.create(widgets, "default", `{"metadata":{"name":"last"}}`))
	if last.Object["f14"] != "d" {
		t.Errorf("the new field's default is missing: %v", last.Object)
	}
	// And those from before show it when they are read.
	old := s.must(s.get(widgets, "default", "w0-0"))
	if old.Object["f14"] != "d" {
		t.Errorf("an old object is read without the new default: %v", old.Object)
	}
}

// A write whose CRD changes between validation and commit is validated again by the new schema.
func TestValidationIsByTheSchemaAtCommit(t *testing.T) {
	var between func()
	s := newServer(t, func(c *rest.Config) { c.Store = hooked{c.Store, &between} })
	s.declare("")
	between = func() {
		between = nil
		s.must(s.patch(crdPath, "", "widgets.test.io", types.JSONPatchType,
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/required","value":["must"]}]`))
	}
	res, err := s.create(widgets, "default", `{"metadata":{"name":"a"},"spec":{}}`)
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "spec.must: Required value")

	s.must(s.create(widgets, "default", `{"metadata":{"name":"b"},"spec":{"must":1}}`))
	between = func() {
		between = nil
		s.must(s.patch(crdPath, "", "widgets.test.io", types.JSONPatchType,
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/required","value":["must","more"]}]`))
	}
	res, err = s.patch(widgets, "default", "b", types.MergePatchType, `{"spec":{"x":1}}`)
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "spec.more: Required value")
}

// hooked is a store that runs something before the next write.
type hooked struct {
	storage.Store
	before *func()
}

func (h hooked) Commit(ctx context.Context, w storage.Write) (*storage.KV, error) {
	if f := *h.before; f != nil {
		f()
	}
	return h.Store.Commit(ctx, w)
}
