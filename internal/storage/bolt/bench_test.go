package bolt

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// BenchmarkCommit is one update of 1 KiB, durable, with writers side by side on keys of their own.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := mustOpen(b, Options{Dir: b.TempDir()})
			value := bytes.Repeat([]byte("v"), 1024)
			var wg sync.WaitGroup
			b.SetBytes(1024)
			b.ResetTimer()
			for i := range writers {
				n := b.N / writers
				if i < b.N%writers {
					n++
				}
				wg.Go(func() {
					w := storage.Write{Key: fmt.Sprintf("/bench/%d", i), Value: value}
					for range n {
						kv, err := s.Commit(context.Background(), w)
						if err != nil {
							b.Error(err)
							return
						}
						w.If = kv.Rev
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

// BenchmarkCommitManyKeys spreads updates over 100,000 keys, so that checkpoints bound it.
func BenchmarkCommitManyKeys(b *testing.B) {
	const keys, writers = 100_000, 64
	s := mustOpen(b, Options{Dir: b.TempDir()})
	value := bytes.Repeat([]byte("v"), 1024)
	revs := make([]storage.Rev, keys)
	update := func(n int) {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for at := i; at < n; at += writers {
					// Each writer has its own keys, in an order that has nothing to do with theirs.
					k := (at/writers*7919*writers + i) % (keys / writers * writers)
					kv, err := s.Commit(context.Background(), storage.Write{Key: fmt.Sprintf("/bench/%06d", k), Value: value, If: revs[k]})
					if err != nil {
						b.Error(err)
						return
					}
					revs[k] = kv.Rev
				}
			})
		}
		wg.Wait()
	}
	update(keys)
	b.ResetTimer()
	update(b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkOpen opens a store of 100,000 keys.
func BenchmarkOpen(b *testing.B) {
	s := mustOpen(b, Options{Dir: b.TempDir()})
	var wg sync.WaitGroup
	value := bytes.Repeat([]byte("v"), 1024)
	for i := range 100 {
		wg.Go(func() {
			for n := range 1000 {
				if _, err := s.Commit(context.Background(), storage.Write{Key: fmt.Sprintf("/bench/%d/%d", i, n), Value: value}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.Close()
	for b.Loop() {
		s := mustOpen(b, Options{Dir: s.options.Dir})
		s.Close()
	}
}
