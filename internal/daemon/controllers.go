package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"operatord.io/operatord/api"
	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/operator/cluster"
	"operatord.io/operatord/internal/operator/crd"
	"operatord.io/operatord/internal/operator/event"
	"operatord.io/operatord/internal/operator/garbagecollector"
	"operatord.io/operatord/internal/operator/namespace"
	"operatord.io/operatord/internal/operator/pod"
	"operatord.io/operatord/internal/process"
	"operatord.io/operatord/internal/resource/builtin"
)

// operator is one that runs in this daemon.
type operator struct {
	name  string
	run   func(context.Context) error
	close func() // after run has returned; nil: nothing to do
	kind  schema.GroupKind
	kit   controller.Kit // nil: not a state machine, so nothing to plan
}

// maker makes one operator, before the informers run.
type maker struct {
	name  string
	make  func(*server, parts) (*operator, error)
	crds  fs.FS              // what it installs; nil for nothing
	kinds []schema.GroupKind // that these declare
}

// parts are what each operator gets for itself.
type parts struct {
	name   string
	writer controller.Writer
	log    *slog.Logger
}

// makers lists the operators in the order in which they start. crd is not among those that can be chosen.
func makers() []maker {
	return []maker{
		{name: namespace.Name, make: makeNamespace},
		{name: garbagecollector.Name, make: makeGarbageCollector},
		{name: event.Name, make: makeEvent},
		{name: "cluster", make: makeCluster, crds: api.CRDs, kinds: []schema.GroupKind{clusterKind, backupKind}},
		{name: "pod", make: makePod},
	}
}

// OperatorNames are those that --operators knows, in the order in which they start.
func OperatorNames() []string {
	var names []string
	for _, m := range makers() {
		names = append(names, m.name)
	}
	return names
}

// newScheme knows the Go types that operators work with.
func newScheme() *runtime.Scheme {
	scheme := builtin.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(fmt.Sprintf("daemon: register operatord.io types: %v", err)) // two types of one name: a bug in api
	}
	return scheme
}

// writer writes as an operator's own user.
func (s *server) writer(name string) controller.Writer {
	return controller.Tracked(rest.NewLocal[controller.Object, controller.Key](s.verbs, s.scheme, name))
}

func (s *server) openProcesses() error {
	processes, err := process.Open(s.dir.file(runDir), process.Options{Log: s.cfg.Log, Listener: s.processListener()})
	if err != nil {
		return fmt.Errorf("daemon: open the run directory: %w", err)
	}
	s.processes = processes
	return nil
}

// makeOperators makes crd and whatever else is on.
func (s *server) makeOperators() error {
	for _, m := range append([]maker{{name: alwaysOn, make: makeCRD}}, makers()...) {
		if m.name != alwaysOn && !s.on[m.name] {
			continue
		}
		s.metrics.Controller(m.name)
		o, err := m.make(s, parts{name: m.name, writer: s.writer(m.name), log: s.cfg.Log.With("operator", m.name)})
		if err != nil {
			return fmt.Errorf("daemon: operator %s: %w", m.name, err)
		}
		o.name = m.name
		s.operators = append(s.operators, o)
	}
	return nil
}

// closeOperators is called when all have returned, or none was started.
func (s *server) closeOperators() {
	for _, o := range s.operators {
		if o.close != nil {
			o.close()
		}
	}
}

// controllerOptions are what all controllers have in common.
func (s *server) controllerOptions(p parts) controller.Options {
	return controller.Options{
		Name:    p.name,
		Source:  s.informers,
		Workers: s.cfg.Workers,
		Resync:  s.cfg.Resync,
		Metrics: s.controllerMetrics(),
		Queue:   s.metrics.Workqueue(),
		Log:     p.log,
	}
}

func makeCRD(s *server, p parts) (*operator, error) {
	own, err := crd.Definitions(api.CRDs)
	if err != nil {
		return nil, err
	}
	op := crd.New(crd.Options{
		Reader: s.informers, Metadata: s.informers.Metadata(), Writer: p.writer, Builtin: s.registry.Builtin(), Own: own, Log: p.log,
	})
	o := s.controllerOptions(p)
	o.For, o.Reconciler, o.Watches, o.Workers = crd.Kind(), op, op.Watches(), 1
	return &operator{run: controller.New(o).Run}, nil
}

func makeNamespace(s *server, p parts) (*operator, error) {
	op := namespace.New(namespace.Options{Reader: s.informers, Metadata: s.informers.Metadata(), Writer: p.writer, Log: p.log})
	o := s.controllerOptions(p)
	o.For, o.Reconciler = namespace.Kind(), op
	return &operator{run: controller.New(o).Run}, nil
}

func makeGarbageCollector(s *server, p parts) (*operator, error) {
	op := garbagecollector.New(garbagecollector.Options{
		Set: s.informers, Registry: s.registry, Writer: p.writer, Workers: s.cfg.Workers,
		Metrics: s.controllerMetrics(), Queue: s.metrics.Workqueue(), Log: p.log,
	})
	return &operator{run: op.Run}, nil
}

func makeEvent(s *server, p parts) (*operator, error) {
	o := s.controllerOptions(p)
	o.For, o.Reconciler = event.Kind(), event.New(event.Options{Reader: s.informers, Writer: p.writer, Log: p.log})
	return &operator{run: controller.New(o).Run}, nil
}

func makeCluster(s *server, p parts) (*operator, error) {
	binary, err := executable()
	if err != nil {
		return nil, err
	}
	op := cluster.New(cluster.Options{DataDir: s.cfg.DataDir, Binary: binary, Without: s.without, Log: p.log})
	kit := controller.NewMachine(controller.MachineOptions{
		Name: p.name, For: op.For(), Reader: s.informers, Writer: p.writer, Metrics: s.controllerMetrics(), Log: p.log,
	}, op)
	o := s.controllerOptions(p)
	o.For, o.Reconciler, o.Watches, o.Hints = op.For(), kit, op.Watches(), op.Hints()
	return &operator{run: controller.New(o).Run, close: op.Close, kind: op.For(), kit: kit}, nil
}

// without are the fields that members of a Cluster go without: those of Clusters that are older than the judging of Pods
// are replaced, whatever their template asks for.
func (s *server) without(cl *v1alpha1.Cluster, spec *corev1.PodSpec) []string {
	if s.processes == nil || !cl.CreationTimestamp.Time.Before(s.judgedSince.Truncate(time.Second)) {
		return nil
	}
	return pod.Demands(spec, s.processes)
}

// obeyStopSignals keeps the lifecycle.stopSignal of Pods, which Kubernetes drops until this feature is on by default.
// Without anybody who would obey it, it goes on being dropped.
func obeyStopSignals() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ContainerStopSignals): true})
}

func makePod(s *server, p parts) (*operator, error) {
	op, err := pod.New(pod.Options{
		Runtime: s.processes, Reader: s.informers, Writer: p.writer, Dir: s.dir.file(podsDir),
		HostImages: s.cfg.hostImages(), Version: s.cfg.Version, JudgedSince: s.judgedSince, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	o := s.controllerOptions(p)
	o.For, o.Reconciler, o.Watches, o.Hints = op.For(), op, op.Watches(), op.Hints()
	c := controller.New(o)
	return &operator{run: func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return c.Run(ctx) })
		group.Go(func() error { return op.Run(ctx) })
		return group.Wait()
	}}, nil
}
