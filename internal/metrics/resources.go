package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// resourceMetrics are about the objects that operators tend.
type resourceMetrics struct {
	phase   *prometheus.GaugeVec
	actions *prometheus.CounterVec
	repair  *prometheus.HistogramVec

	known *kinds
}

// kinds remembers what was declared, so that labels stay inside it.
type kinds struct {
	mu      sync.RWMutex
	phases  map[string][]string
	actions map[string][]string
}

func newResourceMetrics(r prometheus.Registerer) resourceMetrics {
	m := resourceMetrics{
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "resources",
			Help: "Objects that exist, by kind and phase.",
		}, []string{"kind", "phase"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "actions_total",
			Help: "Actions that operators took, by kind of object and action; doing nothing is none.",
		}, []string{"kind", "action"}),
		repair: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "repair_duration_seconds",
			Help:    "Time from the moment a gap was first observed in an object that had been Ready until it was Ready again, by kind.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600},
		}, []string{"kind"}),
		known: &kinds{phases: map[string][]string{}, actions: map[string][]string{}},
	}
	r.MustRegister(m.phase, m.actions, m.repair)
	return m
}

// Kind declares a kind with its phases and, where an operator of ours tends it, its actions, and makes
// their series at zero. A phase or action that was not declared is counted as "other".
func (s *Set) Kind(kind string, phases, actions []string) {
	k := s.resources.known
	k.mu.Lock()
	k.phases[kind], k.actions[kind] = phases, actions
	k.mu.Unlock()
	for _, p := range phases {
		s.resources.phase.WithLabelValues(kind, p)
	}
	for _, a := range actions {
		s.resources.actions.WithLabelValues(kind, a)
	}
	if len(actions) > 0 {
		s.resources.repair.WithLabelValues(kind)
	}
}

func (k *kinds) within(set map[string][]string, kind, value string) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if slices.Contains(set[kind], value) {
		return value
	}
	return other
}

// PhaseMoved moves one object of a kind from one phase to another; nil for an object that did not exist,
// or no longer does.
func (s *Set) PhaseMoved(kind string, from, to *string) {
	if from != nil && to != nil && *from == *to {
		return
	}
	if from != nil {
		s.resources.phase.WithLabelValues(kind, s.resources.known.within(s.resources.known.phases, kind, *from)).Dec()
	}
	if to != nil {
		s.resources.phase.WithLabelValues(kind, s.resources.known.within(s.resources.known.phases, kind, *to)).Inc()
	}
}

// Action counts one action that an operator took on an object of a kind.
func (s *Set) Action(kind, action string) {
	s.resources.actions.WithLabelValues(kind, s.resources.known.within(s.resources.known.actions, kind, action)).Inc()
}

// Repair records how long an object of a kind was not what it had been declared to be.
func (s *Set) Repair(kind string, d time.Duration) {
	s.resources.repair.WithLabelValues(kind).Observe(d.Seconds())
}
