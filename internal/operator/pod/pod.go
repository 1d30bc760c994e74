// Package pod is kubelet and scheduler of the machine that operatord runs on: a Pod's containers are local
// processes, run by internal/process under shims that outlive the daemon.
//
// A reconcile looks at everything again: the Pod as it is stored, the attempts in the run directory, what the
// probes say, the clock. From that, decide (pure) says what to start and stop, report (pure) what the Pod's
// status has to be; the status is written if it differs, then what was decided is done. Processes that end,
// probes that turn and configuration that appears only wake the key. So a killed daemon, a lost event or a
// reboot need no code of their own: what is declared and not there is started.
//
// Beside that it keeps the machine's Node and its Lease. docs/processes.md says how Pods become processes, and
// what of a Pod can't be honoured here.
package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/process"
)

// Kinds that the operator reads and writes.
var (
	podKind       = schema.GroupKind{Kind: "Pod"}
	nodeKind      = schema.GroupKind{Kind: "Node"}
	configMapKind = schema.GroupKind{Kind: "ConfigMap"}
	secretKind    = schema.GroupKind{Kind: "Secret"}
	leaseKind     = schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}
)

// sweepEvery is how often processes without a Pod are looked for although nothing changed.
const sweepEvery = 5 * time.Minute

// Options make an Operator. Runtime, Reader, Writer and Dir are required.
type Options struct {
	Runtime *process.Runtime
	Reader  controller.Reader
	Writer  controller.Writer // Tracked, so that each reconcile sees what the last one wrote
	Dir     string            // a directory of the operator's own, for the files that Pods are given, in the daemon's private one

	NodeName   string   // empty: the machine's name
	HostImages []string // image names, or patterns as of path.Match, that mean this machine's programs; nil: host
	Version    string   // operatord's own, for the Node

	// JudgedSince is when daemons began to keep Pods back that ask for what can't be obeyed. Older ones run as they always
	// have. Zero: there are none.
	JudgedSince time.Time

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: slog.Default
}

// Operator reconciles Pods. Several workers may do so at once, each with another Pod.
type Operator struct {
	Options
	recorder *controller.Recorder
	hints    chan controller.Key
	probes   *probers
	address  addresses
	labels   labelFiles
	roles    roles
	ledger   ledger

	// Only what can be found again or done again.
	mu      sync.Mutex
	here    map[controller.Key]map[types.UID]bool // Pods, past ones too, of which something is on this machine
	asked   map[process.ID]time.Time              // when this daemon sent them the stop signal
	refused map[process.ID]string                 // why the runtime could not start them
}

var _ controller.Reconciler = (*Operator)(nil)

// New makes the operator. It acts once its controller and Run run.
func New(o Options) (*Operator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.HostImages == nil {
		o.HostImages = []string{"host"}
	}
	for _, pattern := range o.HostImages {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("host image %q: %w (* and ? stand for anything but a slash)", pattern, err)
		}
	}
	if o.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the machine's name: %w", err)
		}
		o.NodeName = nodeName(name)
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the directory for Pods' files: %w", err)
	}
	op := &Operator{
		Options:  o,
		recorder: controller.NewRecorder(controller.RecorderOptions{Writer: o.Writer, Component: "pod", Now: o.Now, Log: o.Log}),
		hints:    make(chan controller.Key),
		labels:   labelFiles{dir: o.Dir},
		here:     map[controller.Key]map[types.UID]bool{},
		asked:    map[process.ID]time.Time{},
		refused:  map[process.ID]string{},
	}
	op.probes = newProbers(o.Runtime, op.hints, o.Now)
	return op, nil
}

// For is the kind whose objects are reconciled.
func (op *Operator) For() schema.GroupKind { return podKind }

// Hints are the Pods of which a process or a probe has news.
func (op *Operator) Hints() <-chan controller.Key { return op.hints }

// Watches are the other kinds that concern Pods.
func (op *Operator) Watches() []controller.Watch {
	return []controller.Watch{
		{Kind: configMapKind, Map: podsReferring(refersToConfigMap)},
		{Kind: secretKind, Map: podsReferring(refersToSecret)},
		{Kind: nodeKind, Map: podsOfNode},
		{Kind: podKind, Map: op.leadersBeside},
	}
}

// podsReferring gives the Pods that get environment from an object.
func podsReferring(refers func(*corev1.Pod, string) bool) func(controller.Reader, controller.Object) []controller.Key {
	return func(r controller.Reader, obj controller.Object) []controller.Key {
		var keys []controller.Key
		for found := range r.List(podKind, controller.Query{Namespace: obj.GetNamespace()}) {
			if pod, ok := found.(*corev1.Pod); ok && refers(pod, obj.GetName()) {
				keys = append(keys, controller.Key{Namespace: pod.Namespace, Name: pod.Name})
			}
		}
		return keys
	}
}

// Run passes on what processes do, looks for processes whose Pod is gone, and keeps the Node, until ctx ends.
// Processes go on then; probes end.
func (op *Operator) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	defer op.probes.close()
	wait.Go(func() { op.keepNode(ctx) })
	wait.Go(func() { op.sweepOften(ctx) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id, ok := <-op.Runtime.Changed():
			if !ok {
				<-ctx.Done()
				return ctx.Err()
			}
			p, err := op.Runtime.Get(id)
			if err != nil {
				if !errors.Is(err, process.ErrNotFound) {
					op.Log.Error("can't read a process's records", "process", id.String(), "error", err)
				}
				continue
			}
			if !send(ctx, op.hints, ownerKey(p)) {
				return ctx.Err()
			}
		}
	}
}

func send(ctx context.Context, keys chan<- controller.Key, key controller.Key) bool {
	select {
	case keys <- key:
		return true
	case <-ctx.Done():
		return false
	}
}

// ownerKey is the Pod that a process was started for.
func ownerKey(p process.Process) controller.Key {
	namespace, name, _ := strings.Cut(p.Owner, "/")
	return controller.Key{Namespace: namespace, Name: name}
}

// isHost tells whether an image name means this machine's programs.
func (op *Operator) isHost(image string) bool {
	// A tag or digest is matched too, and may be left out of the pattern.
	bare, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(bare, ':'); i > strings.LastIndexByte(bare, '/') {
		bare = bare[:i]
	}
	for _, pattern := range op.HostImages {
		for _, name := range []string{image, bare} {
			if ok, _ := path.Match(pattern, name); ok {
				return true
			}
		}
	}
	return false
}
