package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of one reconcile, as Reconcile takes them.
const (
	ResultSuccess  = "success"  // done until something changes
	ResultRequeue  = "requeue"  // done, and asked to look again later
	ResultConflict = "conflict" // somebody else wrote first; looked at again at once
	ResultError    = "error"    // failed; retried with back-off
	ResultTerminal = "terminal" // failed in a way that a retry cannot mend
	ResultPanic    = "panic"    // caught; retried with back-off
)

var results = []string{ResultSuccess, ResultRequeue, ResultConflict, ResultError, ResultTerminal, ResultPanic}

type reconcileMetrics struct {
	total    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newReconcileMetrics(r prometheus.Registerer) reconcileMetrics {
	m := reconcileMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "reconcile_total",
			Help: "Reconciles by controller and result (success, requeue, conflict, error, terminal, panic).",
		}, []string{"controller", "result"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "reconcile_errors_total",
			Help: "Reconciles that failed, by controller and result (error, terminal, panic).",
		}, []string{"controller", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "reconcile_duration_seconds",
			Help:    "Time one reconcile took, by controller.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"controller"}),
	}
	r.MustRegister(m.total, m.errors, m.duration)
	return m
}

func failed(result string) bool {
	return result == ResultError || result == ResultTerminal || result == ResultPanic
}

// Controller makes the series of one controller, at zero.
func (s *Set) Controller(name string) {
	for _, result := range results {
		s.reconcile.total.WithLabelValues(name, result)
		if failed(result) {
			s.reconcile.errors.WithLabelValues(name, result)
		}
	}
	s.reconcile.duration.WithLabelValues(name)
}

// Reconcile counts one reconcile that took d and ended in one of the Result constants.
func (s *Set) Reconcile(controller, result string, d time.Duration) {
	if !slices.Contains(results, result) {
		result = other
	}
	s.reconcile.total.WithLabelValues(controller, result).Inc()
	if failed(result) {
		s.reconcile.errors.WithLabelValues(controller, result).Inc()
	}
	s.reconcile.duration.WithLabelValues(controller).Observe(d.Seconds())
}
