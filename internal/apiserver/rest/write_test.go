package rest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

const configMaps = "v1/configmaps"

// S25: resourceVersions are compared wherever they are given.
func TestS25OptimisticLocking(t *testing.T) {
	s := newServer(t)
	s.declare("")
	cm := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"},"data":{"n":"0"}}`))
	w := s.must(s.create(widgets, "default", `{"metadata":{"name":"a"},"spec":{"n":0}}`))
	s.must(s.update(configMaps, "default", "a", set(cm, map[string]any{"data.n": "1"})))
	s.must(s.update(widgets, "default", "a", set(w, map[string]any{"spec.n": int64(1)})))

	const lock = "the object has been modified; please apply your changes to the latest version and try again"
	res, err := s.update(configMaps, "default", "a", set(cm, map[string]any{"data.n": "2"}))
	s.refused(res, err, 409, metav1.StatusReasonConflict, `Operation cannot be fulfilled on configmaps "a": `+lock)
	var present interface{ PresentRevision() string }
	if now := s.must(s.get(configMaps, "default", "a")); !errors.As(err, &present) || present.PresentRevision() != now.GetResourceVersion() {
		t.Errorf("the conflict doesn't say that the object is at %s", now.GetResourceVersion())
	}
	res, err = s.update(widgets, "default", "a", set(w, map[string]any{"spec.n": int64(2)}))
	s.refused(res, err, 409, metav1.StatusReasonConflict, lock)
	res, err = s.update(widgets, "default", "a", set(w, map[string]any{"metadata.resourceVersion": nil}))
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
	s.must(s.update(configMaps, "default", "a", set(cm, map[string]any{"metadata.resourceVersion": nil})))
	for _, pt := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		res, err = s.patch(configMaps, "default", "a", pt, `{"metadata":{"resourceVersion":"`+cm.GetResourceVersion()+`"},"data":{"x":"y"}}`)
		s.refused(res, err, 409, metav1.StatusReasonConflict, lock)
	}
	res, err = s.update(configMaps, "default", "a", set(cm, map[string]any{"metadata.resourceVersion": "x"}))
	s.refused(res, err, 500, "", `strconv.ParseUint: parsing "x": invalid syntax`)
}

// S25: parallel patches of different keys without a resourceVersion all land.
func TestS25ParallelPatchesAllLand(t *testing.T) {
	s := newServer(t)
	s.declare("")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		name := fmt.Sprint("p", n)
		kind := rapid.SampledFrom([]string{configMaps, widgets}).Draw(rt, "kind")
		content, start := "data", `{"metadata":{"name":"`+name+`"},"data":{"old":"1"}}`
		if kind == widgets {
			content, start = "spec", `{"metadata":{"name":"`+name+`"},"spec":{"old":"1"}}`
		}
		s.must(s.create(kind, "default", start))
		types := rapid.SliceOfN(rapid.SampledFrom([]types.PatchType{
			types.MergePatchType, types.JSONPatchType, types.ApplyPatchType,
		}), 2, 12).Draw(rt, "types")
		var running sync.WaitGroup
		errs := make([]error, len(types))
		for i, pt := range types {
			running.Go(func() { errs[i] = s.patchKey(kind, name, content, pt, i) })
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			rt.Fatal(err)
		}
		got, _, _ := unstructured.NestedMap(s.must(s.get(kind, "default", name)).Object, content)
		if len(got) != len(types)+1 {
			rt.Fatalf("%d of %d patches landed: %v", len(got)-1, len(types), got)
		}
	})
}

func (s *server) patchKey(kind, name, content string, pt types.PatchType, i int) error {
	opts := metav1.PatchOptions{}
	patch := fmt.Sprintf(`{%q:{"k%d":"v"}}`, content, i)
	switch pt {
	case types.JSONPatchType:
		patch = fmt.Sprintf(`[{"op":"add","path":"/%s/k%d","value":"v"}]`, content, i)
	case types.ApplyPatchType:
		opts.FieldManager = fmt.Sprint("manager", i)
		gvk := s.on(kind, "", "").Version.GVK
		patch = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%q:{"k%d":"v"}}`, gvk.GroupVersion(), gvk.Kind, name, content, i)
	}
	_, err := s.verbs.Patch(context.Background(), s.on(kind, "default", name), pt, []byte(patch), opts)
	return err
}

// What changes nothing isn't written.
func TestUnchangedIsNotWritten(t *testing.T) {
	s := newServer(t)
	s.declare("")
	for kind, object := range map[string]string{
		configMaps: `{"metadata":{"name":"a"},"data":{"k":"v"}}`,
		widgets:    `{"metadata":{"name":"a"},"spec":{"k":"v"}}`,
	} {
		content := strings.Split(object, `"`)[7]
		o := s.must(s.create(kind, "default", object))
		gvk := s.on(kind, "", "").Version.GVK
		apply := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a"},%q:{"k":"v"}}`, gvk.GroupVersion(), gvk.Kind, content)
		o = s.must(s.patch(kind, "default", "a", types.ApplyPatchType, apply))
		now := s.store.Status().Rev
		for name, write := range map[string]func() (*rest.Result, error){
			"update": func() (*rest.Result, error) { return s.update(kind, "default", "a", set(o, nil)) },
			"merge":  func() (*rest.Result, error) { return s.patch(kind, "default", "a", types.MergePatchType, `{}`) },
			"json":   func() (*rest.Result, error) { return s.patch(kind, "default", "a", types.JSONPatchType, `[]`) },
			"apply":  func() (*rest.Result, error) { return s.patch(kind, "default", "a", types.ApplyPatchType, apply) },
		} {
			if got := s.must(write()); got.GetResourceVersion() != o.GetResourceVersion() {
				t.Errorf("%s of %s: the answer is at %s, want %s", name, kind, got.GetResourceVersion(), o.GetResourceVersion())
			}
		}
		if got := s.store.Status().Rev; got != now {
			t.Errorf("%s: %d revisions were written", kind, got-now)
		}
	}
}

// S23: nothing may be added to the finalizers of an object that is being deleted.
func TestS23NoNewFinalizersOnceDeleted(t *testing.T) {
	s := newServer(t)
	s.declare("")
	for _, kind := range []string{configMaps, widgets} {
		s.must(s.create(kind, "default", `{"metadata":{"name":"a","finalizers":["test.io/one"]}}`))
		s.must(s.delete(kind, "default", "a"))
		res, err := s.patch(kind, "default", "a", types.MergePatchType, `{"metadata":{"finalizers":["test.io/one","test.io/two"]}}`)
		got := s.refused(res, err, 422, metav1.StatusReasonInvalid, "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")
		if got.Details.Causes[0].Field != "metadata.finalizers" {
			t.Errorf("the cause is at %s", got.Details.Causes[0].Field)
		}
	}
}

// S22: an object is released in the same way on each of the write paths.
func TestS22ReleasedOnEveryPath(t *testing.T) {
	apply := func(finalizers string) string {
		return `{"apiVersion":"test.io/v1","kind":"Widget","metadata":{"name":"a","finalizers":` + finalizers + `}}`
	}
	for name, release := range map[string]func(s *server, finalizers string) (*rest.Result, error){
		"update": func(s *server, finalizers string) (*rest.Result, error) {
			now := s.must(s.get(widgets, "default", "a"))
			now.SetFinalizers(nil)
			if finalizers != "[]" {
				now.SetFinalizers([]string{"test.io/two"})
			}
			return s.update(widgets, "default", "a", set(now, nil))
		},
		"merge patch": func(s *server, finalizers string) (*rest.Result, error) {
			return s.patch(widgets, "default", "a", types.MergePatchType, `{"metadata":{"finalizers":`+finalizers+`}}`)
		},
		"json patch": func(s *server, finalizers string) (*rest.Result, error) {
			return s.patch(widgets, "default", "a", types.JSONPatchType, `[{"op":"replace","path":"/metadata/finalizers","value":`+finalizers+`}]`)
		},
		"apply": func(s *server, finalizers string) (*rest.Result, error) {
			return s.patch(widgets, "default", "a", types.ApplyPatchType, apply(finalizers))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.declare("")
			created := s.must(s.patch(widgets, "default", "a", types.ApplyPatchType, apply(`["test.io/one","test.io/two"]`)))
			e := s.events(widgets)
			marked := s.must(s.delete(widgets, "default", "a"))
			if marked.GetDeletionTimestamp() == nil || marked.GetGeneration() != created.GetGeneration()+1 {
				t.Fatalf("deletion left generation %d, timestamp %v", marked.GetGeneration(), marked.GetDeletionTimestamp())
			}
			again := s.must(s.delete(widgets, "default", "a"))
			if again.GetResourceVersion() != marked.GetResourceVersion() {
				t.Fatal("a second deletion wrote something")
			}
			// The status doesn't let go of anything, and a patch doesn't undelete.
			status := marked.DeepCopy()
			status.SetFinalizers(nil)
			s.must(s.update(widgets, "default", "a", set(status, map[string]any{"status": map[string]any{"x": "y"}}), "status"))
			kept := s.must(s.patch(widgets, "default", "a", types.MergePatchType, `{"metadata":{"deletionTimestamp":null}}`))
			if kept.GetDeletionTimestamp() == nil || len(kept.GetFinalizers()) != 2 {
				t.Fatalf("kept %v, deleted at %v", kept.GetFinalizers(), kept.GetDeletionTimestamp())
			}
			half := s.must(release(s, `["test.io/two"]`))
			if f := half.GetFinalizers(); len(f) != 1 || f[0] != "test.io/two" {
				t.Fatalf("one released leaves %v", f)
			}
			last := s.must(release(s, `[]`))
			if last.GetResourceVersion() != half.GetResourceVersion() || len(last.GetFinalizers()) != 0 {
				t.Fatalf("the answer is at %s with %v, want %s and none", last.GetResourceVersion(), last.GetFinalizers(), half.GetResourceVersion())
			}
			res, err := s.get(widgets, "default", "a")
			s.refused(res, err, 404, metav1.StatusReasonNotFound, `widgets.test.io "a" not found`)
			e.expect("MODIFIED a", "MODIFIED a", "MODIFIED a")
			ev := e.next()
			if ev.Type != watchcache.Deleted || fmt.Sprint(ev.Rev) == half.GetResourceVersion() {
				t.Fatalf("got %s at %d, want DELETED at a new revision", ev.Type, ev.Rev)
			}
		})
	}
}

// S26: what raises the generation, with and without the status subresource.
func TestS26Generation(t *testing.T) {
	for _, with := range []bool{true, false} {
		t.Run(fmt.Sprint("status subresource ", with), func(t *testing.T) {
			s := newServer(t)
			if with {
				s.declare("")
			} else {
				s.declare(`"subresources":{}`)
			}
			o := s.must(s.create(widgets, "default", `{"metadata":{"name":"a","generation":7},"spec":{"n":0}}`))
			if o.GetGeneration() != 1 {
				t.Fatalf("born with generation %d", o.GetGeneration())
			}
			want := int64(1)
			for _, c := range []struct {
				patch string
				sub   []string
				bumps bool
			}{
				{patch: `{"metadata":{"labels":{"a":"b"}}}`},
				{patch: `{"metadata":{"generation":99}}`},
				{patch: `{"metadata":{"managedFields":[{}]}}`},
				{patch: `{"spec":{"n":1}}`, bumps: true},
				{patch: `{"spec":{"n":1}}`},
				{patch: `{"status":{"n":1}}`, bumps: !with},
				{patch: `{"status":{"n":2}}`, sub: []string{"status"}},
			} {
				if len(c.sub) > 0 && !with {
					continue
				}
				if c.bumps {
					want++
				}
				o := s.must(s.patch(widgets, "default", "a", types.MergePatchType, c.patch, c.sub...))
				if o.GetGeneration() != want {
					t.Errorf("%s %v: generation %d, want %d", c.patch, c.sub, o.GetGeneration(), want)
				}
			}
		})
	}
}

// S28: kinds of patches.
func TestS28PatchTypes(t *testing.T) {
	s := newServer(t)
	s.declare("")
	s.must(s.create(widgets, "default", `{"metadata":{"name":"a"}}`))
	res, err := s.patch(widgets, "default", "a", types.StrategicMergePatchType, `{}`)
	s.refused(res, err, 415, metav1.StatusReasonUnsupportedMediaType, "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
	s.must(s.create("apps/v1/deployments", "default", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"host"}]}}}}`))
	d := s.must(s.patch("apps/v1/deployments", "default", "d", types.StrategicMergePatchType,
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}},"spec":{"containers":[{"name":"c","env":[{"name":"X","value":"1"}]}]}}}}`))
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 || containers[0].(map[string]any)["image"] != "host" || d.GetGeneration() != 2 {
		t.Errorf("the patch made of it %v, generation %d", containers, d.GetGeneration())
	}
	res, err = s.patch(widgets, "default", "a", "application/none", `{}`)
	s.refused(res, err, 415, metav1.StatusReasonUnsupportedMediaType, "")
}

// S29: what fails in a JSON patch is the client's mistake, and nothing is changed.
func TestS29FailingJSONPatches(t *testing.T) {
	s := newServer(t)
	o := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"},"data":{"k":"v"}}`))
	op := `{"op":"test","path":"/data/k","value":"v"}`
	many := "[" + strings.Repeat(op+",", 10000) + op + "]"
	for patch, code := range map[string]int32{
		`[{"op":"test","path":"/data/k","value":"x"}]`: 422,
		`[{"op":"remove","path":"/data/none"}]`:        422,
		many:                                           413,
		`{}`:                                           400,
		`[`:                                            400,
	} {
		res, err := s.patch(configMaps, "default", "a", types.JSONPatchType, patch)
		s.refused(res, err, code, "", "")
	}
	if got := s.must(s.get(configMaps, "default", "a")); got.GetResourceVersion() != o.GetResourceVersion() {
		t.Error("something was written")
	}
}

// S32: integers stay integers.
func TestS32LargeIntegers(t *testing.T) {
	s := newServer(t)
	s.declare("")
	const big, small = int64(9007199254740993), int64(-9223372036854775808)
	check := func(o *unstructured.Unstructured) {
		t.Helper()
		if a, _, _ := unstructured.NestedInt64(o.Object, "spec", "big"); a != big {
			t.Errorf("%d became %d", big, a)
		}
		if b, _, _ := unstructured.NestedInt64(o.Object, "spec", "small"); b != small {
			t.Errorf("%d became %d", small, b)
		}
	}
	res, err := s.verbs.Create(t.Context(), s.on(widgets, "default", ""), rest.Body{MediaType: "application/json", Data: []byte(
		`{"apiVersion":"test.io/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"big":9007199254740993,"small":-9223372036854775808}}`)}, metav1.CreateOptions{})
	check(s.must(res, err))
	check(s.must(s.patch(widgets, "default", "a", types.MergePatchType, `{"spec":{"x":9007199254740993}}`)))
	apply := `{"apiVersion":"test.io/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"y":9007199254740993,"one":1}}`
	check(s.must(s.patch(widgets, "default", "a", types.ApplyPatchType, apply)))
	o := s.must(s.patch(widgets, "default", "a", types.ApplyPatchType, strings.Replace(apply, `"one":1`, `"one":1.0`, 1)))
	check(o)
	if y, _, _ := unstructured.NestedInt64(o.Object, "spec", "y"); y != big {
		t.Errorf("apply made %d of %d", y, big)
	}
}

func TestCreate(t *testing.T) {
	s := newServer(t)
	o := s.must(s.create(configMaps, "default", `{"metadata":{"generateName":"a-","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z"}}`))
	if !strings.HasPrefix(o.GetName(), "a-") || len(o.GetName()) != 7 || o.GetUID() == "mine" || o.GetCreationTimestamp().Year() == 2001 {
		t.Errorf("made %v", o.Object["metadata"])
	}
	res, err := s.create(configMaps, "default", `{"metadata":{"name":"`+o.GetName()+`"}}`)
	s.refused(res, err, 409, metav1.StatusReasonAlreadyExists, `configmaps "`+o.GetName()+`" already exists`)
	res, err = s.create(configMaps, "default", `{"metadata":{"name":"b","resourceVersion":"1"}}`)
	s.refused(res, err, 500, "", "resourceVersion should not be set on objects to be created")
	res, err = s.create(configMaps, "none", `{"metadata":{"name":"b"}}`)
	s.refused(res, err, 404, metav1.StatusReasonNotFound, `namespaces "none" not found`)
	res, err = s.create(configMaps, "default", `{"metadata":{"name":"b","namespace":"other"}}`)
	s.refused(res, err, 400, metav1.StatusReasonBadRequest, "the namespace of the provided object does not match the namespace sent on the request")
	s.must(s.create(configMaps, "default", `{"metadata":{"name":"c","finalizers":["test.io/x"]}}`))
	s.must(s.delete(configMaps, "default", "c"))
	res, err = s.create(configMaps, "default", `{"metadata":{"name":"c"}}`)
	s.refused(res, err, 409, metav1.StatusReasonAlreadyExists, `object is being deleted: configmaps "c" already exists`)
}

// A dry run answers as if, and writes nothing.
func TestDryRun(t *testing.T) {
	s := newServer(t)
	o := s.must(s.create(configMaps, "default", `{"metadata":{"name":"a"},"data":{"k":"v"}}`))
	now := s.store.Status().Rev
	all := []string{metav1.DryRunAll}
	res, err := s.verbs.Create(t.Context(), s.on(configMaps, "default", ""), s.body(configMaps, `{"metadata":{"name":"b"}}`), metav1.CreateOptions{DryRun: all})
	if b := s.must(res, err); b.GetUID() == "" || b.GetResourceVersion() != "" {
		t.Errorf("create answers %v", b.Object)
	}
	res, err = s.verbs.Create(t.Context(), s.on(configMaps, "default", ""), s.body(configMaps, `{"metadata":{"name":"a"}}`), metav1.CreateOptions{DryRun: all})
	s.refused(res, err, 409, metav1.StatusReasonAlreadyExists, "")
	res, err = s.verbs.Update(t.Context(), s.on(configMaps, "default", "a"), s.body(configMaps, set(o, map[string]any{"data.k": "w"})), metav1.UpdateOptions{DryRun: all})
	if got := s.must(res, err); got.GetResourceVersion() != o.GetResourceVersion() {
		t.Errorf("update answers at %s", got.GetResourceVersion())
	}
	if _, err := s.delete(configMaps, "default", "a", metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}
	res, err = s.verbs.Create(t.Context(), s.on(configMaps, "default", ""), s.body(configMaps, `{"metadata":{"name":"b"}}`), metav1.CreateOptions{DryRun: []string{"Some"}})
	s.refused(res, err, 422, metav1.StatusReasonInvalid, "dryRun")
	if got := s.store.Status().Rev; got != now {
		t.Errorf("%d revisions were written", got-now)
	}
}

// What the store refuses has its own status.
func TestStoreErrors(t *testing.T) {
	var fail error
	s := newServer(t, func(c *rest.Config) { c.Store = failing{c.Store, &fail} })
	for err, code := range map[error]int32{
		storage.ErrUnknown:     504,
		storage.ErrFull:        507,
		storage.ErrReadOnly:    503,
		storage.ErrTooLarge:    413,
		storage.ErrUnavailable: 503,
	} {
		fail = err
		res, err := s.create(configMaps, "default", `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
		s.refused(res, err, code, "", "")
	}
	fail = context.Canceled
	if _, err := s.create(configMaps, "default", `{"metadata":{"name":"a"}}`); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	fail = nil
}

// failing is a store whose writes fail on demand.
type failing struct {
	storage.Store
	err *error
}

func (f failing) Commit(ctx context.Context, w storage.Write) (*storage.KV, error) {
	if *f.err != nil {
		return nil, *f.err
	}
	return f.Store.Commit(ctx, w)
}

// Kinds that allow it are made by an update, if the user may.
func TestCreateOnUpdate(t *testing.T) {
	s := newServer(t)
	const leases = "coordination.k8s.io/v1/leases"
	lease := `{"metadata":{"name":"l"},"spec":{"holderIdentity":"x","leaseDurationSeconds":1}}`
	a := s.on(leases, "default", "l")
	a.MayCreate = func(context.Context) error {
		return apierrors.NewForbidden(a.Kind.GroupResource(), "l", errors.New("no"))
	}
	res, err := s.verbs.Update(t.Context(), a, s.body(leases, lease), metav1.UpdateOptions{})
	s.refused(res, err, 403, metav1.StatusReasonForbidden, "")
	res, err = s.update(leases, "default", "l", lease)
	if s.must(res, err); !res.Created {
		t.Error("not said to be created")
	}
	res, err = s.update(configMaps, "default", "l", `{"metadata":{"name":"l"}}`)
	s.refused(res, err, 404, metav1.StatusReasonNotFound, `configmaps "l" not found`)
}

// What a write remembers as an object's decoded form is what decoding the stored value gives.
func TestWrittenIsWhatIsDecoded(t *testing.T) {
	s := newServer(t)
	s.declare("")
	check := func(res *rest.Result, err error) {
		t.Helper()
		s.must(res, err)
		o, v := res.Object, s.on(widgets, "", "").Version
		kept, err := o.Hub(v)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := watchcache.NewObject(o.Kind(), o.KV(), o.Rev()).Hub(v)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(kept, decoded) {
			t.Errorf("kept    %#v\ndecoded %#v", kept, decoded)
		}
	}
	check(s.create(widgets, "default", `{"metadata":{"name":"a","labels":{"l":"1"},"finalizers":["test.io/x"],
		"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"spec":{"n":1,"f":1.0,"big":9007199254740993,"null":null,"list":[{}]}}`))
	check(s.patch(widgets, "default", "a", types.MergePatchType, `{"spec":{"f":2.0,"g":0.5,"x":{"y":[]}},"metadata":{"annotations":{"a":"b"}}}`))
	check(s.patch(widgets, "default", "a", types.MergePatchType, `{"spec":{"f":null,"g":null}}`))
	check(s.patch(widgets, "default", "a", types.MergePatchType, `{"status":{"ready":true}}`, "status"))
	check(s.patch(widgets, "default", "a", types.ApplyPatchType, `{"apiVersion":"test.io/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"z":1}}`))
	check(s.delete(widgets, "default", "a"))
}
