package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

type reconcileFunc func(ctx context.Context, key Key) (Result, error)

func (f reconcileFunc) Reconcile(ctx context.Context, key Key) (Result, error) { return f(ctx, key) }

func start(o Options) (stop func()) {
	o.Name, o.Log = "test", quiet
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestKeysComeFromEventsHintsAndWatchedKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, hints := newWorld(), newRuns(), make(chan Key)
		stop := start(Options{
			For: configMaps, Source: w, Hints: hints, Resync: -1,
			Reconciler: reconcileFunc(func(_ context.Context, key Key) (Result, error) {
				r.add(key.Name)
				return Result{}, nil
			}),
			Watches: []Watch{{Kind: clusters, Map: func(_ Reader, obj Object) []Key { return []Key{key(obj.GetLabels()["about"])} }}},
		})
		defer stop()
		ctx := context.Background()
		_ = w.Create(ctx, configMap("a"))
		synctest.Wait()
		_ = w.Delete(ctx, configMaps, key("a"), deleteOptions)
		synctest.Wait()
		if n := len(r.of("a")); n != 2 {
			t.Errorf("%d runs for an object that came and went", n)
		}
		hints <- key("hinted")
		about := cluster("x")
		about.Labels = map[string]string{"about": "before"}
		_ = w.Create(ctx, about)
		synctest.Wait()
		w.change(clusters, key("x"), func(obj Object) { obj.SetLabels(map[string]string{"about": "after"}) })
		synctest.Wait()
		// A change of what an object is about concerns both.
		for name, want := range map[string]int{"hinted": 1, "before": 2, "after": 1} {
			if n := len(r.of(name)); n != want {
				t.Errorf("%s: %d runs, want %d", name, n, want)
			}
		}
	})
}

// A resync looks at every key, about once an interval, and not at all of them at one moment.
func TestResyncIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld(), newRuns()
		const keys = 100
		for i := range keys {
			_ = w.Create(context.Background(), configMap(fmt.Sprint("cm-", i)))
		}
		stop := start(Options{
			For: configMaps, Source: w, Resync: 5 * time.Minute,
			Reconciler: reconcileFunc(func(_ context.Context, key Key) (Result, error) {
				r.add(key.Name)
				return Result{}, nil
			}),
		})
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		moments := map[time.Duration]bool{}
		for i := range keys {
			at := r.of(fmt.Sprint("cm-", i))
			if len(at) < 11 || len(at) > 14 {
				t.Errorf("key %d was looked at %d times in an hour", i, len(at))
			}
			for _, d := range at {
				moments[d] = true
			}
		}
		if len(moments) < 5*keys {
			t.Errorf("%d resyncs fell on %d moments", 12*keys, len(moments))
		}
	})
}

// A Map that panics on one object hides no other.
func TestMapPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld(), newRuns()
		defer start(Options{
			For: configMaps, Source: w, Resync: -1, Metrics: r.metrics(),
			Reconciler: reconcileFunc(func(_ context.Context, key Key) (Result, error) {
				r.add(key.Name)
				return Result{}, nil
			}),
			Watches: []Watch{{Kind: clusters, Map: func(_ Reader, obj Object) []Key { return []Key{key(obj.GetAnnotations()["x"][1:])} }}},
		})()
		_ = w.Create(context.Background(), cluster("bad"))
		good := cluster("good")
		good.Annotations = map[string]string{"x": "-a"}
		_ = w.Create(context.Background(), good)
		synctest.Wait()
		if len(r.of("a")) != 1 || r.result("panic") != 1 {
			t.Errorf("runs %v, results %v", r.at, r.results)
		}
	})
}
