package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Verbs that Request tells apart; all else is "other".
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"}

type apiMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	watchers *prometheus.GaugeVec
	sent     *prometheus.CounterVec
	cutOff   *prometheus.CounterVec
}

func newAPIMetrics(r prometheus.Registerer) apiMetrics {
	resource := []string{"resource"}
	m := apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "api_requests_total",
			Help: "API requests answered, by verb, resource (with its group) and HTTP status code.",
		}, []string{"verb", "resource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "api_request_duration_seconds",
			Help:    "Time from a request's arrival to the end of its answer, by verb and resource; watches are not in it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"verb", "resource"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "api_requests_in_flight",
			Help: "API requests being answered now, watches among them.",
		}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "watchers",
			Help: "Open watches over the API, by resource.",
		}, resource),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "watch_events_sent_total",
			Help: "Events sent to watches over the API, bookmarks among them, by resource.",
		}, resource),
		cutOff: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "watch_cutoffs_total",
			Help: "Watches over the API that were ended because they were too slow, by resource.",
		}, resource),
	}
	r.MustRegister(m.requests, m.duration, m.inFlight, m.watchers, m.sent, m.cutOff)
	return m
}

// ResourceName is the label of a resource: "pods", "clusters.operatord.io".
func ResourceName(group, plural string) string {
	if group == "" {
		return plural
	}
	return plural + "." + group
}

// Resource makes the series of a resource that is now served, at zero.
func (s *Set) Resource(resource string) {
	for _, verb := range verbs {
		code := "200"
		if verb == "create" {
			code = "201"
		}
		s.api.requests.WithLabelValues(verb, resource, code)
	}
	s.api.watchers.WithLabelValues(resource)
	s.api.sent.WithLabelValues(resource)
	s.api.cutOff.WithLabelValues(resource)
}

// Forget drops the series of a resource that is no longer served.
func (s *Set) Forget(resource string) {
	labels := prometheus.Labels{"resource": resource}
	s.api.requests.DeletePartialMatch(labels)
	s.api.duration.DeletePartialMatch(labels)
	s.api.watchers.DeletePartialMatch(labels)
	s.api.sent.DeletePartialMatch(labels)
	s.api.cutOff.DeletePartialMatch(labels)
}

// RequestStarted counts a request as in flight until RequestDone.
func (s *Set) RequestStarted() { s.api.inFlight.Inc() }

// RequestDone ends what RequestStarted began.
func (s *Set) RequestDone() { s.api.inFlight.Dec() }

// Request counts one answered request. resource is a ResourceName of something served, or "" where the
// path names none; it must never come from the client unchecked. d is ignored for watches.
func (s *Set) Request(verb, resource, code string, d time.Duration) {
	if !slices.Contains(verbs, verb) {
		verb = other
	}
	s.api.requests.WithLabelValues(verb, resource, code).Inc()
	if verb != "watch" {
		s.api.duration.WithLabelValues(verb, resource).Observe(d.Seconds())
	}
}

// WatchOpened counts a watch of a resource as open until WatchClosed.
func (s *Set) WatchOpened(resource string) { s.api.watchers.WithLabelValues(resource).Inc() }

// WatchClosed ends what WatchOpened began.
func (s *Set) WatchClosed(resource string) { s.api.watchers.WithLabelValues(resource).Dec() }

// EventsSent counts n events sent to a watch of a resource.
func (s *Set) EventsSent(resource string, n int) {
	s.api.sent.WithLabelValues(resource).Add(float64(n))
}

// WatchCutOff counts a watch of a resource that was ended because it was too slow.
func (s *Set) WatchCutOff(resource string) { s.api.cutOff.WithLabelValues(resource).Inc() }
