package metrics

import "github.com/prometheus/client_golang/prometheus"

type processMetrics struct {
	running   prometheus.Gauge
	adopted   prometheus.Counter
	restarted prometheus.Counter
}

func newProcessMetrics(r prometheus.Registerer) processMetrics {
	m := processMetrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "processes_running",
			Help: "Container processes that run now.",
		}),
		adopted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "processes_adopted_total",
			Help: "Container processes that ran before this daemon started and were taken over by it.",
		}),
		restarted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "processes_restarted_total",
			Help: "Container processes started in place of one that had ended.",
		}),
	}
	r.MustRegister(m.running, m.adopted, m.restarted)
	return m
}

// ProcessesRunning sets how many container processes run now.
func (s *Set) ProcessesRunning(n int) { s.process.running.Set(float64(n)) }

// ProcessesAdopted counts processes that were taken over at start.
func (s *Set) ProcessesAdopted(n int) { s.process.adopted.Add(float64(n)) }

// ProcessRestarted counts a process that was started in place of one that had ended.
func (s *Set) ProcessRestarted() { s.process.restarted.Inc() }
