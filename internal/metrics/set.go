// Package metrics holds every metric of operatord, by name, in one place.
//
// A Set owns a prometheus.Registry; nothing is registered on a global. Callers report through the typed
// methods of Set, or through the small structs of funcs (storage.Listener, process.Options) that the
// daemon fills with them. All methods may be called concurrently and never block.
//
// Labels are bounded: they name controllers, kinds, phases, verbs, resources and codes, never objects,
// users or paths. A value outside a declared set is counted as "other". Series of what is known at start
// exist at zero from the first scrape, so that rates and dashboards need no special case; series of a
// resource that is no longer served are dropped.
package metrics

import (
	"net/http"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace starts the name of every metric that is operatord's own.
const namespace = "operatord"

// other stands in for a label value outside its declared set.
const other = "other"

// Set is all metrics of one server.
type Set struct {
	registry *prometheus.Registry

	reconcile reconcileMetrics
	resources resourceMetrics
	queue     queueMetrics
	api       apiMetrics
	store     storeMetrics
	process   processMetrics

	connections connectionMetrics
}

// New makes a Set with every metric registered, among them those of the Go runtime and of the process
// (process_start_time_seconds is the start time). version is operatord's own.
func New(version string) *Set {
	s := &Set{registry: prometheus.NewPedanticRegistry()}
	s.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{
			Matcher: regexp.MustCompile(`^/(gc/heap/live|sched/latencies|gc/pauses):.*`),
		})),
	)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Constant 1, labelled with the version that runs.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	s.registry.MustRegister(build)

	s.reconcile = newReconcileMetrics(s.registry)
	s.resources = newResourceMetrics(s.registry)
	s.queue = newQueueMetrics(s.registry)
	s.api = newAPIMetrics(s.registry)
	s.store = newStoreMetrics(s.registry)
	s.process = newProcessMetrics(s.registry)
	s.connections = newConnectionMetrics(s.registry)
	return s
}

// Handler serves the metrics in the Prometheus text format.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})
}

// Gatherer gives the present values, for tests.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }
