package metrics

import "github.com/prometheus/client_golang/prometheus"

// LogDropped has read asked, at each scrape, how many log lines have been dropped. Call it at most once.
func (s *Set) LogDropped(read func() int) {
	s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: "log_lines_dropped_total",
		Help: "Log lines that could not be written because nobody read them, or the reader was too slow.",
	}, func() float64 { return float64(read()) }))
}
