package watchcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
	"operatord.io/operatord/internal/watchcache"
)

// fixture is a cache over a real store, with two kinds that know nothing.
type fixture struct {
	testing.TB
	dir     string
	opts    bolt.Options
	cacheOf watchcache.Options
	store   storage.Store
	reg     *resource.Registry
	cache   *watchcache.Cache
	widget  *resource.Kind
	gadget  *resource.Kind
}

func newFixture(t testing.TB, configure ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{TB: t, dir: t.TempDir()}
	for _, c := range configure {
		c(f)
	}
	f.widget, f.gadget = plainKind("widgets", "Widget"), plainKind("gadgets", "Gadget")
	f.reg = resource.NewRegistry([]*resource.Kind{f.widget, f.gadget}, nil)
	f.open()
	t.Cleanup(f.close)
	return f
}

func (f *fixture) open() {
	f.Helper()
	f.opts.Dir = f.dir
	store, err := bolt.Open(f.Context(), f.opts)
	if err != nil {
		f.Fatal(err)
	}
	f.store = store
	f.cache = watchcache.New(store, f.reg, f.cacheOf)
}

func (f *fixture) close() {
	f.cache.Close()
	if err := f.store.Close(); err != nil {
		f.Error(err)
	}
}

// restart closes the store and opens it again.
func (f *fixture) restart() {
	f.Helper()
	f.close()
	f.open()
}

func plainKind(plural, kind string) *resource.Kind {
	v := &resource.Version{
		Name:   "v1",
		GVK:    schema.GroupVersionKind{Group: "test.io", Version: "v1", Kind: kind},
		Served: true,
		Codec:  plainCodec{},
		Fields: resource.FieldSelectors{Names: []string{"spec.color"}, Values: func(data []byte) (fields.Set, error) {
			var o struct{ Spec struct{ Color string } }
			err := json.Unmarshal(data, &o)
			return fields.Set{"spec.color": o.Spec.Color}, err
		}},
	}
	return &resource.Kind{
		GroupKind: schema.GroupKind{Group: "test.io", Kind: kind}, Plural: plural, Namespaced: true,
		Versions: []*resource.Version{v}, Stored: v,
	}
}

type plainCodec struct{}

func (plainCodec) New() resource.Object { return &unstructured.Unstructured{} }
func (plainCodec) Decode(data []byte, _ resource.DecodeOptions) (resource.Object, []string, error) {
	u := &unstructured.Unstructured{}
	return u, nil, u.UnmarshalJSON(data)
}
func (plainCodec) DecodeStored(data []byte) (resource.Object, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(data)
}
func (plainCodec) Default(resource.Object) error            { return nil }
func (plainCodec) Encode(o resource.Object) ([]byte, error) { return json.Marshal(o) }
func (plainCodec) Convert(stored []byte) ([]byte, error)    { return stored, nil }
func (plainCodec) Protobuf(resource.Object) ([]byte, error) { return nil, errors.New("none") }

// thing describes an object to write.
type thing struct {
	ns, name string
	labels   map[string]string
	color    string
}

// put writes a thing, whatever is there, and returns its revision.
func (f *fixture) put(k *resource.Kind, th thing) storage.Rev {
	f.Helper()
	if th.ns == "" {
		th.ns = "default"
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.io/v1", "kind": k.Kind,
		"metadata": map[string]any{"name": th.name, "namespace": th.ns, "uid": "uid-" + th.name},
		"spec":     map[string]any{"color": th.color},
	}}
	u.SetLabels(th.labels)
	data, err := json.Marshal(u)
	if err != nil {
		f.Fatal(err)
	}
	key := resource.Key(k, th.ns, th.name)
	kv, err := f.store.Commit(f.Context(), storage.Write{
		Key: key, Value: resource.EncodeValue(data, resource.MetaOf(u)), If: f.at(key),
	})
	if err != nil {
		f.Fatal(err)
	}
	return kv.Rev
}

func (f *fixture) delete(k *resource.Kind, name string) storage.Rev {
	f.Helper()
	key := resource.Key(k, "default", name)
	kv, err := f.store.Commit(f.Context(), storage.Write{Key: key, If: f.at(key)})
	if err != nil {
		f.Fatal(err)
	}
	return kv.Rev
}

func (f *fixture) at(key string) storage.Rev {
	f.Helper()
	view, err := f.store.View(f.Context(), storage.Latest())
	if err != nil {
		f.Fatal(err)
	}
	if kv, ok := view.Get(key); ok {
		return kv.Rev
	}
	return 0
}

func (f *fixture) list(k *resource.Kind, opts watchcache.ListOptions) *watchcache.List {
	f.Helper()
	l, err := f.cache.List(f.Context(), k, opts)
	if err != nil {
		f.Fatal(err)
	}
	return l
}

// stream is an open watch in a test.
type stream struct {
	testing.TB
	*watchcache.Watch
	events []watchcache.Event
}

func (f *fixture) watch(k *resource.Kind, opts watchcache.ListOptions) *stream {
	f.Helper()
	w, err := f.cache.Watch(f.Context(), k, opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(w.Close)
	return &stream{TB: f.TB, Watch: w}
}

// next is the next event, in a few seconds.
func (s *stream) next() watchcache.Event {
	s.Helper()
	if len(s.events) == 0 {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		events, err := s.Next(ctx)
		if err != nil {
			s.Fatalf("no event: %v", err)
		}
		s.events = append(s.events, events...)
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e
}

// expect compares the next events, each written TYPE name@rev.
func (s *stream) expect(want ...string) {
	s.Helper()
	for _, w := range want {
		if got := text(s.next()); got != w {
			s.Fatalf("got %s, want %s", got, w)
		}
	}
}

// quiet sees to it that nothing comes before rev, by asking for a bookmark there.
func (s *stream) quiet(rev storage.Rev) {
	s.Helper()
	s.Progress(uint64(rev))
	if e := s.next(); e.Type != watchcache.Bookmark || e.Rev < uint64(rev) {
		s.Fatalf("got %s, want nothing but a bookmark at %d or later", text(e), rev)
	}
}

// failure is the error that ends the stream, with nothing before it.
func (s *stream) failure() error {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	events, err := s.Next(ctx)
	if err == nil {
		s.Fatalf("got %s, want an error", text(events[0]))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		s.Fatal("the stream neither goes on nor ends")
	}
	if _, again := s.Next(s.Context()); !errors.Is(again, io.EOF) {
		s.Fatalf("after an error the stream says %v, want io.EOF", again)
	}
	return err
}

func text(e watchcache.Event) string {
	if e.Object == nil {
		return fmt.Sprintf("%s @%d", e.Type, e.Rev)
	}
	return fmt.Sprintf("%s %s@%d", e.Type, e.Object.Name(), e.Rev)
}

func at(typ watchcache.EventType, name string, rev storage.Rev) string {
	return fmt.Sprintf("%s %s@%d", typ, name, rev)
}

func names(l *watchcache.List) []string {
	out := []string{}
	for _, o := range l.Objects {
		out = append(out, o.Name())
	}
	return out
}
