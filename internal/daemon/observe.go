package daemon

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/apiserver"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/metrics"
	"operatord.io/operatord/internal/process"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

var (
	clusterKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster"}
	backupKind  = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Backup"}
	podKind     = schema.GroupKind{Kind: "Pod"}
)

// observe declares what is counted by kind, and counts objects by phase.
func (s *server) observe() {
	var phases []string
	for _, p := range v1alpha1.Phases() {
		phases = append(phases, string(p))
	}
	s.metrics.Kind(clusterKind.Kind, phases, []string{"restore", "create", "elect", "remove"})
	s.metrics.Kind(podKind.Kind, []string{
		string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodFailed), string(corev1.PodUnknown),
	}, nil)
	s.countResources(nil)
	for _, gk := range []schema.GroupKind{clusterKind, podKind} {
		s.informers.Subscribe(gk, func(old, new controller.Object) {
			s.metrics.PhaseMoved(gk.Kind, phaseOf(old), phaseOf(new))
		})
	}
}

// phaseOf is an object's phase; nil for no object, or one that can't be read.
func phaseOf(obj controller.Object) *string {
	var phase string
	switch o := obj.(type) {
	case *v1alpha1.Cluster:
		phase = string(o.Status.Phase)
	case *corev1.Pod:
		phase = string(o.Status.Phase)
	default:
		return nil
	}
	return &phase
}

// follow keeps the series of resources to what is served, until ctx ends.
func (s *server) follow(ctx context.Context) error {
	counted := map[string]bool{}
	for {
		changed := s.registry.Changed()
		counted = s.countResources(counted)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// countResources makes and drops series so that they are those of what is served, and returns that.
func (s *server) countResources(before map[string]bool) map[string]bool {
	now := map[string]bool{}
	for _, k := range s.registry.Kinds() {
		name := metrics.ResourceName(k.Group, k.Plural)
		now[name] = true
		if !before[name] {
			s.metrics.Resource(name)
		}
	}
	for name := range before {
		if !now[name] {
			s.metrics.Forget(name)
		}
	}
	return now
}

// apiListener has the API's requests counted.
func (s *server) apiListener() apiserver.Listener {
	return apiserver.Listener{
		Request: func(verb, resource string, code int, d time.Duration) {
			s.metrics.Request(verb, resource, strconv.Itoa(code), d)
		},
		Events:      s.metrics.EventsSent,
		WatchCutOff: s.metrics.WatchCutOff,
	}
}

// cacheListener has watches counted.
func (s *server) cacheListener() watchcache.Listener {
	return watchcache.Listener{
		Watches: func(k *resource.Kind, open int) { s.metrics.Watchers(metrics.ResourceName(k.Group, k.Plural), open) },
		CutOff:  func(k *resource.Kind) { s.metrics.WatchCutOff(metrics.ResourceName(k.Group, k.Plural)) },
	}
}

// processListener has processes counted.
func (s *server) processListener() process.Listener {
	return process.Listener{
		Running:   s.metrics.ProcessesRunning,
		Adopted:   s.metrics.ProcessesAdopted,
		Restarted: func(process.ID) { s.metrics.ProcessRestarted() },
	}
}

// controllerMetrics has reconciles, actions and repairs counted.
func (s *server) controllerMetrics() controller.Metrics {
	return controller.Metrics{
		Reconciled: s.metrics.Reconcile,
		Acted:      s.metrics.Action,
		Repaired:   s.metrics.Repair,
	}
}
