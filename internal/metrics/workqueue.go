package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueMetrics are client-go's, under the names that every Kubernetes component uses, so that existing
// dashboards and alerts fit.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newQueueMetrics(r prometheus.Registerer) queueMetrics {
	label := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-5, 4, 12),
		}, label)
	}
	m := queueMetrics{
		depth:      gauge("depth", "Keys that wait in the queue, by controller."),
		unfinished: gauge("unfinished_work_seconds", "Seconds of work in progress that has not been counted in work_duration_seconds, by controller."),
		longest:    gauge("longest_running_processor_seconds", "Seconds the longest running worker has been at its key, by controller."),
		adds:       counter("adds_total", "Keys added to the queue, by controller."),
		retries:    counter("retries_total", "Keys added again after a failure or for a later look, by controller."),
		latency:    histogram("queue_duration_seconds", "Time a key waited in the queue, by controller."),
		work:       histogram("work_duration_seconds", "Time a worker was at a key, by controller."),
	}
	r.MustRegister(m.depth, m.unfinished, m.longest, m.adds, m.retries, m.latency, m.work)
	return m
}

// Workqueue is the metrics provider of the controllers' queues. A queue's name is its controller's.
func (s *Set) Workqueue() workqueue.MetricsProvider { return &s.queue }

var _ workqueue.MetricsProvider = (*queueMetrics)(nil)

func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.work.WithLabelValues(name)
}

func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
