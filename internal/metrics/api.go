package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Verbs that Request tells apart; all else is "other".
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"}

type apiMetrics struct {
	served *served

	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	watchers *prometheus.GaugeVec
	sent     *prometheus.CounterVec
	cutOff   *prometheus.CounterVec
}

// served are the resources that may be labels.
type served struct {
	mu    sync.RWMutex
	names map[string]bool
}

// label is resource if it is served now, "" if the request was about none, and "other" for one that has
// gone meanwhile, or has only just come.
func (s *served) label(resource string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if resource == "" || s.names[resource] {
		return resource
	}
	return other
}

func (s *served) set(resource string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is {
		s.names[resource] = true
	} else {
		delete(s.names, resource)
	}
}

func newAPIMetrics(r prometheus.Registerer) apiMetrics {
	resource := []string{"resource"}
	m := apiMetrics{
		served: &served{names: map[string]bool{}},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "api_requests_total",
			Help: "API requests answered, by verb, resource (with its group) and HTTP status code.",
		}, []string{"verb", "resource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "api_request_duration_seconds",
			Help:    "Time from a request's arrival to the end of its answer, by verb and resource; watches are not in it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"verb", "resource"}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "watchers",
			Help: "Open watches, those of informers included, by resource.",
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
	r.MustRegister(m.requests, m.duration, m.watchers, m.sent, m.cutOff)
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
	s.api.served.set(resource, true)
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
	s.api.served.set(resource, false)
	labels := prometheus.Labels{"resource": resource}
	s.api.requests.DeletePartialMatch(labels)
	s.api.duration.DeletePartialMatch(labels)
	s.api.watchers.DeletePartialMatch(labels)
	s.api.sent.DeletePartialMatch(labels)
	s.api.cutOff.DeletePartialMatch(labels)
}

// Request counts one answered request. resource is a ResourceName, or "" where the path names none; one
// that isn't served is counted as "other". d is ignored for watches.
func (s *Set) Request(verb, resource, code string, d time.Duration) {
	if !slices.Contains(verbs, verb) {
		verb = other
	}
	resource = s.api.served.label(resource)
	s.api.requests.WithLabelValues(verb, resource, code).Inc()
	if verb != "watch" {
		s.api.duration.WithLabelValues(verb, resource).Observe(d.Seconds())
	}
}

// Watchers sets how many watches of a resource are open.
func (s *Set) Watchers(resource string, open int) {
	if resource = s.api.served.label(resource); resource != other {
		s.api.watchers.WithLabelValues(resource).Set(float64(open))
	}
}

// EventsSent counts n events sent to a watch of a resource.
func (s *Set) EventsSent(resource string, n int) {
	s.api.sent.WithLabelValues(s.api.served.label(resource)).Add(float64(n))
}

// WatchCutOff counts a watch of a resource that was ended because it was too slow.
func (s *Set) WatchCutOff(resource string) {
	s.api.cutOff.WithLabelValues(s.api.served.label(resource)).Inc()
}
