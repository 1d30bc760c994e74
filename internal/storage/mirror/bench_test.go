package mirror

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// BenchmarkFanOut publishes batches of 16 events to watchers of one prefix.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			m := New(1, 0, nil, Options{})
			defer m.Close()
			const batch = 16
			last := storage.Rev(1 + b.N*batch)
			var wg sync.WaitGroup
			for range watchers {
				w, err := m.Watch(context.Background(), "/k/", 1)
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer w.Close()
					for at := storage.Rev(1); at < last; {
						events, err := w.Next(context.Background())
						if err != nil {
							return // cut off: the publisher does not wait
						}
						at = events[len(events)-1].Rev
					}
				})
			}
			b.ResetTimer()
			publish(m, b.N, batch, "/k/")
			wg.Wait()
			b.ReportMetric(float64(b.N*batch*watchers)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkPublish is what the committer pays with 10,000 watchers, of which a batch concerns none or
// all.
func BenchmarkPublish(b *testing.B) {
	for _, prefix := range []string{"/idle/", "/k/"} {
		b.Run("watched="+prefix, func(b *testing.B) {
			m := New(1, 0, nil, Options{})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range 10_000 {
				at := prefix
				if prefix == "/idle/" {
					at = fmt.Sprintf("/idle/%d/", i)
				}
				w, err := m.Watch(ctx, at, 1)
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer w.Close()
					for {
						if _, err := w.Next(ctx); err != nil {
							return
						}
					}
				})
			}
			b.ResetTimer()
			publish(m, b.N, 16, "/k/")
			b.StopTimer()
			cancel()
			m.Close()
			wg.Wait()
		})
	}
}

// publish makes n batches of events on a hundred keys.
func publish(m *Mirror, n, batch int, prefix string) {
	keys := make([]*storage.KV, 100)
	rev := m.Rev()
	for range n {
		events := make([]storage.Event, batch)
		for i := range events {
			rev++
			k := int(rev) % len(keys)
			kv := &storage.KV{Key: fmt.Sprintf("%s%d", prefix, k), Value: []byte("v"), Rev: rev, Created: rev}
			events[i] = storage.Event{Rev: rev, Old: keys[k], New: kv}
			keys[k] = kv
		}
		m.Publish(events)
	}
}

// BenchmarkView takes a view after each batch, as a reader under load does.
func BenchmarkView(b *testing.B) {
	keys := make([]*storage.KV, 100_000)
	for i := range keys {
		keys[i] = &storage.KV{Key: fmt.Sprintf("/k/%06d", i), Value: make([]byte, 100), Rev: 1, Created: 1}
	}
	for _, viewed := range []bool{false, true} {
		b.Run(fmt.Sprintf("viewed=%v", viewed), func(b *testing.B) {
			m := New(1, 0, keys, Options{})
			defer m.Close()
			rev := storage.Rev(1)
			for b.Loop() {
				rev++
				old, _ := m.Get(keys[int(rev)*7919%len(keys)].Key)
				kv := &storage.KV{Key: old.Key, Value: old.Value, Rev: rev, Created: 1}
				m.Publish([]storage.Event{{Rev: rev, Old: old, New: kv}})
				if viewed {
					if _, err := m.View(context.Background(), storage.Latest()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
