package metrics

import "github.com/prometheus/client_golang/prometheus"

type connectionMetrics struct {
	open    *prometheus.GaugeVec
	closed  *prometheus.CounterVec
	trouble *prometheus.CounterVec
}

func newConnectionMetrics(r prometheus.Registerer) connectionMetrics {
	listener := []string{"listener"}
	m := connectionMetrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "connections_open",
			Help: "Connections that are open, by listener.",
		}, listener),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "connections_closed_total",
			Help: "Connections that were closed to make room for others, by listener.",
		}, listener),
		trouble: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "connection_errors_total",
			Help: "What went wrong with connections before or after a request, by listener.",
		}, listener),
	}
	r.MustRegister(m.open, m.closed, m.trouble)
	return m
}

// Listener declares a listener, so that its series are there.
func (s *Set) Listener(name string) {
	s.connections.open.WithLabelValues(name)
	s.connections.closed.WithLabelValues(name)
	s.connections.trouble.WithLabelValues(name)
}

// Connections counts connections that were opened, or with a negative number ended.
func (s *Set) Connections(listener string, delta int) {
	s.connections.open.WithLabelValues(listener).Add(float64(delta))
}

// ConnectionClosed counts a connection that was closed to make room.
func (s *Set) ConnectionClosed(listener string) {
	s.connections.closed.WithLabelValues(listener).Inc()
}

// ConnectionError counts something that went wrong with a connection.
func (s *Set) ConnectionError(listener string) {
	s.connections.trouble.WithLabelValues(listener).Inc()
}
