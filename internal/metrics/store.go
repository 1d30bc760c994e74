package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type storeMetrics struct {
	commits  prometheus.Counter
	batch    prometheus.Histogram
	sync     prometheus.Histogram
	register prometheus.Registerer
}

func newStoreMetrics(r prometheus.Registerer) storeMetrics {
	m := storeMetrics{
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_commits_total",
			Help: "Writes that the store has made durable.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "store_batch_writes",
			Help:    "Writes that shared one sync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "store_sync_duration_seconds",
			Help:    "Time to make one batch durable.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}),
		register: r,
	}
	r.MustRegister(m.commits, m.batch, m.sync)
	return m
}

// StoreCommitted records one batch of writes and how long its sync took.
func (s *Set) StoreCommitted(batch int, sync time.Duration) {
	s.store.commits.Add(float64(batch))
	s.store.batch.Observe(float64(batch))
	s.store.sync.Observe(sync.Seconds())
}

// StoreState is what the store says about itself at a scrape.
type StoreState struct {
	Revision, Compacted uint64
	Keys                int
	DiskBytes           int64
	Writable            bool
}

// StoreStatus registers gauges that ask the store at each scrape. It is called once.
func (s *Set) StoreStatus(status func() StoreState) {
	gauge := func(name, help string, value func(StoreState) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return value(status()) })
	}
	s.store.register.MustRegister(
		gauge("store_revision", "The newest revision.", func(st StoreState) float64 { return float64(st.Revision) }),
		gauge("store_compacted_revision", "History at or below this revision is gone.", func(st StoreState) float64 { return float64(st.Compacted) }),
		gauge("store_keys", "Keys in the store.", func(st StoreState) float64 { return float64(st.Keys) }),
		gauge("store_disk_bytes", "Bytes on disk, all files of the store.", func(st StoreState) float64 { return float64(st.DiskBytes) }),
		gauge("store_writable", "1 while the store takes writes, else 0.", func(st StoreState) float64 {
			if st.Writable {
				return 1
			}
			return 0
		}),
	)
}
