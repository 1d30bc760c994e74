package watchcache_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// follower rebuilds a selection from a watch, which is cut and resumed at random.
type follower struct {
	opts  watchcache.ListOptions
	state map[string]uint64 // by name, the revision
	rev   uint64
	w     *watchcache.Watch
}

// read takes what there is up to rev, and checks each event against what is known.
func (fl *follower) read(f *fixture, rev uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if fl.w == nil {
		opts := fl.opts
		opts.ResourceVersion = strconv.FormatUint(fl.rev, 10)
		w, err := f.cache.Watch(ctx, f.widget, opts)
		if err != nil {
			return err
		}
		fl.w = w
	}
	fl.w.Progress(rev)
	for fl.rev < rev {
		events, err := fl.w.Next(ctx)
		if err != nil {
			return fmt.Errorf("at %d, waiting for %d: %w", fl.rev, rev, err)
		}
		for _, e := range events {
			if e.Rev <= fl.rev && e.Type != watchcache.Bookmark || e.Rev < fl.rev {
				return fmt.Errorf("%s after %d", text(e), fl.rev)
			}
			fl.rev = e.Rev
			if e.Object == nil {
				continue
			}
			name := e.Object.Name()
			_, known := fl.state[name]
			if known != (e.Type != watchcache.Added) {
				return fmt.Errorf("%s of one that was known: %v", text(e), known)
			}
			if e.Type == watchcache.Deleted {
				delete(fl.state, name)
			} else {
				fl.state[name] = e.Rev
			}
		}
	}
	return nil
}

func (fl *follower) cut() {
	if fl.w != nil {
		fl.w.Close()
		fl.w = nil
	}
}

// Whatever is written, and wherever a watch is cut and resumed, it adds up to what a list gives.
func TestWatchesAddUpToLists(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.cacheOf.RingSize = 7 })
	rapid.Check(t, func(rt *rapid.T) {
		selections := map[string]watchcache.ListOptions{
			"all":   {},
			"label": {Label: labels.SelectorFromSet(labels.Set{"l": "1"})},
			"field": {Field: fields.OneTermEqualSelector("spec.color", "1")},
			"name":  {Namespace: "default", Field: fields.OneTermEqualSelector("metadata.name", "n1")},
			"none":  {Namespace: "elsewhere"},
		}
		followers := map[string]*follower{}
		for name, opts := range selections {
			l, err := f.cache.List(context.Background(), f.widget, opts)
			if err != nil {
				rt.Fatal(err)
			}
			fl := &follower{opts: opts, rev: l.Rev, state: map[string]uint64{}}
			for _, o := range l.Objects {
				fl.state[o.Name()] = o.Rev()
			}
			followers[name] = fl
			defer fl.cut()
		}
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			var last storage.Rev
			for range rapid.IntRange(1, 12).Draw(rt, "writes") {
				k := f.widget
				if rapid.IntRange(0, 4).Draw(rt, "other kind") == 0 {
					k = f.gadget
				}
				name := rapid.SampledFrom([]string{"n0", "n1", "n2", "n3"}).Draw(rt, "name")
				if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 && f.exists(k.Plural, name) {
					last = f.delete(k, name)
					continue
				}
				last = f.put(k, thing{name: name,
					labels: map[string]string{"l": rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "label")},
					color:  rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "color")})
			}
			for name, fl := range followers {
				switch rapid.IntRange(0, 3).Draw(rt, name) {
				case 0:
					continue // falls behind
				case 1:
					fl.cut()
				}
				if err := fl.read(f, uint64(last)); err != nil {
					rt.Fatalf("%s: %v", name, err)
				}
			}
		}
		now := uint64(f.store.Status().Rev)
		for name, fl := range followers {
			if err := fl.read(f, now); err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			l, err := f.cache.List(context.Background(), f.widget, selections[name])
			if err != nil {
				rt.Fatal(err)
			}
			want := map[string]uint64{}
			for _, o := range l.Objects {
				want[o.Name()] = o.Rev()
			}
			// A watch says when an object came into the selection or changed, which is its revision.
			if !maps.Equal(fl.state, want) {
				rt.Fatalf("%s: the watch adds up to %v, the list is %v", name, fl.state, want)
			}
		}
	})
}

func (f *fixture) exists(plural, name string) bool {
	return f.at("/test.io/"+plural+"/default/"+name) != 0
}

// When the feed itself loses its place in the store, watches miss nothing.
func TestFeedLosesItsPlace(t *testing.T) {
	f := newFixture(t)
	f.cache.Close()
	broken := &losing{Store: f.store, lose: make(chan struct{})}
	f.cache = watchcache.New(broken, f.reg, watchcache.Options{})
	start := f.put(f.widget, thing{name: "start"})
	s := f.watch(f.widget, watchcache.ListOptions{ResourceVersion: rev(start)})
	s.quiet(start)
	var want []string
	for i := range 20 {
		name := fmt.Sprint("w", i)
		r := f.put(f.widget, thing{name: name})
		want = append(want, at(watchcache.Added, name, r))
		if i == 10 {
			close(broken.lose)
		}
	}
	s.expect(want...)
}

// losing is a store whose first watch of everything is cut off on demand.
type losing struct {
	storage.Store
	once sync.Once
	lose chan struct{}
}

func (l *losing) Watch(ctx context.Context, prefix string, after storage.Rev) (storage.Watcher, error) {
	w, err := l.Store.Watch(ctx, prefix, after)
	if err == nil && prefix == "" {
		l.once.Do(func() { w = &cutOff{Watcher: w, lose: l.lose} })
	}
	return w, err
}

type cutOff struct {
	storage.Watcher
	lose chan struct{}
}

func (c *cutOff) Next(ctx context.Context) ([]storage.Event, error) {
	select {
	case <-c.lose:
		return nil, storage.ErrCompacted
	default:
		return c.Watcher.Next(ctx)
	}
}
