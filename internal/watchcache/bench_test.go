package watchcache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"operatord.io/operatord/internal/watchcache"
)

// BenchmarkFanOut is one event to every watch of a kind, encoded for each.
func BenchmarkFanOut(b *testing.B) {
	for _, watches := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(watches, " watches"), func(b *testing.B) {
			f := newFixture(b)
			v := f.widget.Versions[0]
			var running sync.WaitGroup
			var got sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			for range watches {
				w, err := f.cache.Watch(ctx, f.widget, watchcache.ListOptions{})
				if err != nil {
					b.Fatal(err)
				}
				running.Go(func() {
					defer w.Close()
					for {
						events, err := w.Next(ctx)
						if err != nil {
							return
						}
						for _, e := range events {
							if _, err := e.Object.JSON(v); err != nil {
								b.Error(err)
							}
							got.Done()
						}
					}
				})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				got.Add(watches)
				f.put(f.widget, thing{name: "a", color: fmt.Sprint(i)})
				got.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(watches), "ns/delivery")
			cancel()
			running.Wait()
		})
	}
}
