package watchcache_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

func TestListSelects(t *testing.T) {
	f := newFixture(t)
	f.put(f.widget, thing{name: "a", color: "red", labels: map[string]string{"tier": "web"}})
	f.put(f.widget, thing{name: "b", color: "blue", labels: map[string]string{"tier": "web"}})
	f.put(f.widget, thing{name: "c", color: "red", ns: "other"})
	f.put(f.gadget, thing{name: "d"})
	for _, c := range []struct {
		name string
		opts watchcache.ListOptions
		want string
	}{
		{"everything", watchcache.ListOptions{}, "a b c"},
		{"a namespace", watchcache.ListOptions{Namespace: "default"}, "a b"},
		{"an unknown namespace", watchcache.ListOptions{Namespace: "defaul"}, ""},
		{"a label", watchcache.ListOptions{Label: labels.SelectorFromSet(labels.Set{"tier": "web"})}, "a b"},
		{"a field", watchcache.ListOptions{Field: fields.OneTermEqualSelector("spec.color", "red")}, "a c"},
		{"a field's opposite", watchcache.ListOptions{Field: fields.OneTermNotEqualSelector("spec.color", "red")}, "b"},
		{"a name", watchcache.ListOptions{Field: fields.OneTermEqualSelector("metadata.name", "c")}, "c"},
		{"a name in a namespace", watchcache.ListOptions{Namespace: "default", Field: fields.OneTermEqualSelector("metadata.name", "c")}, ""},
		{"a namespace by field", watchcache.ListOptions{Field: fields.OneTermEqualSelector("metadata.namespace", "other")}, "c"},
		{"two namespaces", watchcache.ListOptions{Namespace: "default", Field: fields.OneTermEqualSelector("metadata.namespace", "other")}, ""},
		{"a name that is a path", watchcache.ListOptions{Namespace: "default", Field: fields.OneTermEqualSelector("metadata.name", "a/b")}, ""},
	} {
		if got := strings.Join(names(f.list(f.widget, c.opts)), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// S37: a field that can't be selected by is refused, and doesn't match nothing.
func TestS37UnknownFieldIsRefused(t *testing.T) {
	f := newFixture(t)
	opts := watchcache.ListOptions{Field: fields.OneTermEqualSelector("spec.nope", "1")}
	if _, err := f.cache.List(t.Context(), f.widget, opts); !apierrors.IsBadRequest(err) {
		t.Errorf("List: got %v, want 400", err)
	}
	if _, err := f.cache.Watch(t.Context(), f.widget, opts); !apierrors.IsBadRequest(err) {
		t.Errorf("Watch: got %v, want 400", err)
	}
}

// Pages are all of one revision, whatever is written between them.
func TestListPages(t *testing.T) {
	f := newFixture(t)
	var want []string
	var at storage.Rev
	for i := range 10 {
		name := fmt.Sprintf("w%d", i)
		at = f.put(f.widget, thing{name: name})
		want = append(want, name)
	}
	var got []string
	opts := watchcache.ListOptions{Limit: 3, Namespace: "default"}
	for page := 0; ; page++ {
		l := f.list(f.widget, opts)
		if l.Rev != uint64(at) {
			t.Fatalf("page %d is at %d, want %d", page, l.Rev, at)
		}
		got = append(got, names(l)...)
		if l.Continue == "" {
			if l.Remaining != nil {
				t.Fatalf("the last page has %d remaining", *l.Remaining)
			}
			break
		}
		if want := int64(10 - len(got)); l.Remaining == nil || *l.Remaining != want {
			t.Fatalf("page %d says %v remain, want %d", page, l.Remaining, want)
		}
		opts.Continue = l.Continue
		f.put(f.widget, thing{name: fmt.Sprintf("w%d", 9-page), color: "new"})
		f.put(f.widget, thing{name: fmt.Sprintf("new%d", page)})
		f.delete(f.widget, fmt.Sprintf("w%d", page+5))
		f.put(f.widget, thing{name: fmt.Sprintf("w%d", page+5)})
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestListPageIsGone(t *testing.T) {
	f := newFixture(t)
	for i := range 4 {
		f.put(f.widget, thing{name: fmt.Sprintf("w%d", i)})
	}
	l := f.list(f.widget, watchcache.ListOptions{Limit: 2})
	f.put(f.widget, thing{name: "w9"})
	if err := f.store.Compact(t.Context(), f.store.Status().Rev); err != nil {
		t.Fatal(err)
	}
	_, err := f.cache.List(t.Context(), f.widget, watchcache.ListOptions{Limit: 2, Continue: l.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("got %v, want 410", err)
	}
	rest := err.(apierrors.APIStatus).Status().ListMeta.Continue
	l = f.list(f.widget, watchcache.ListOptions{Continue: rest})
	if got := strings.Join(names(l), " "); got != "w2 w3 w9" {
		t.Fatalf("the rest is %q, want w2 w3 w9", got)
	}
}

func TestListRevisions(t *testing.T) {
	f := newFixture(t)
	a := f.put(f.widget, thing{name: "a"})
	b := f.put(f.widget, thing{name: "b"})
	f.delete(f.widget, "a")
	for _, c := range []struct {
		name string
		opts watchcache.ListOptions
		want string
	}{
		{"exact", watchcache.ListOptions{ResourceVersion: rev(a), Match: "Exact"}, "a"},
		{"exact later", watchcache.ListOptions{ResourceVersion: rev(b), Match: "Exact"}, "a b"},
		{"legacy exact", watchcache.ListOptions{ResourceVersion: rev(b), Limit: 5}, "a b"},
		{"not older", watchcache.ListOptions{ResourceVersion: rev(a)}, "b"},
		{"not older with a limit", watchcache.ListOptions{ResourceVersion: rev(a), Match: "NotOlderThan", Limit: 5}, "b"},
		{"any ignores the limit", watchcache.ListOptions{ResourceVersion: "0", Limit: 1}, "b"},
	} {
		if got := strings.Join(names(f.list(f.widget, c.opts)), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if err := f.store.Compact(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	token := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		name string
		opts watchcache.ListOptions
		is   func(error) bool
	}{
		{"exact is gone", watchcache.ListOptions{ResourceVersion: rev(a), Match: "Exact"}, apierrors.IsResourceExpired},
		{"match without revision", watchcache.ListOptions{Match: "Exact"}, apierrors.IsInvalid},
		{"match at 0", watchcache.ListOptions{Match: "Exact", ResourceVersion: "0"}, apierrors.IsInvalid},
		{"a token of nobody", watchcache.ListOptions{Continue: "!"}, apierrors.IsBadRequest},
		{"a token that climbs", watchcache.ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","rv":2,"start":"../gadgets/a"}`)}, apierrors.IsBadRequest},
		{"a token without revision", watchcache.ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","start":"a"}`)}, apierrors.IsBadRequest},
		{"a token and a revision", watchcache.ListOptions{Continue: token(`{"v":"meta.k8s.io/v1","rv":2,"start":"a"}`), ResourceVersion: "2"}, apierrors.IsBadRequest},
		{"no number", watchcache.ListOptions{ResourceVersion: "x"}, func(err error) bool {
			return apierrors.IsBadRequest(err) && err.Error() == `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`
		}},
	} {
		if _, err := f.cache.List(t.Context(), f.widget, c.opts); err == nil || !c.is(err) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestObjectForms(t *testing.T) {
	f := newFixture(t)
	r := f.put(f.widget, thing{name: "a", color: "red"})
	o := f.list(f.widget, watchcache.ListOptions{}).Objects[0]
	v := f.widget.Versions[0]
	data, err := o.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"resourceVersion":"` + strconv.Itoa(int(r)) + `"`; !strings.Contains(string(data), want) {
		t.Fatalf("%s lacks %s", data, want)
	}
	appended, err := o.AppendJSON([]byte("x"), v)
	if err != nil || string(appended) != "x"+string(data) {
		t.Fatalf("AppendJSON gives %s, %v", appended, err)
	}
	hub, err := o.Hub(v)
	if err != nil || hub.GetResourceVersion() != rev(r) || hub.GetName() != "a" {
		t.Fatalf("Hub gives %v, %v", hub, err)
	}
	if again, _ := o.Hub(v); again != hub {
		t.Fatal("decoded twice")
	}
	if o.Name() != "a" || o.Namespace() != "default" || o.Meta().UID != "uid-a" {
		t.Fatalf("it is %s/%s, uid %s", o.Namespace(), o.Name(), o.Meta().UID)
	}
	dry := watchcache.NewObject(f.widget, o.KV(), 0)
	if data, err := dry.JSON(v); err != nil || strings.Contains(string(data), "resourceVersion") {
		t.Fatalf("an object that isn't stored is %s, %v", data, err)
	}
	broken := watchcache.NewObject(f.widget, &storage.KV{Key: "/test.io/widgets/default/x", Value: []byte("x")}, 1)
	if _, err := broken.JSON(v); !apierrors.IsInternalError(err) {
		t.Fatalf("a broken object gives %v, want 500", err)
	}
}
