package controller

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

// Options say what a controller watches and how it works. Name, For, Reconciler and Source are required.
type Options struct {
	Name       string           // the operator's name: metric label and log attribute
	For        schema.GroupKind // the kind whose objects are reconciled
	Reconciler Reconciler
	Source     Source // views and their changes; *informer.Set

	// Watches are other kinds whose changes concern keys of For.
	Watches []Watch
	// Hints are keys to look at for reasons outside the API (a process died, a copy ended). The sender
	// never blocks for long: the channel is drained into the queue, which deduplicates.
	Hints <-chan Key

	Workers int           // keys reconciled at once; 0: 4
	Resync  time.Duration // every key is looked at again after about this time (±10 %); 0: 5 min; < 0: never

	BackOff BackOff // after an error; the zero value has defaults
	Metrics Metrics // zero fields are skipped
	Queue   workqueue.MetricsProvider
	Log     *slog.Logger // nil: slog.Default
}

// Watch names a kind and says which keys an object of it concerns. A controller names every kind it reads:
// it starts, and looks at a key again after its own writes, when these views are there. Map nil: the kind is
// only read, and its changes wake nobody.
type Watch struct {
	Kind schema.GroupKind
	Map  func(Reader, Object) []Key
}

// Metrics are what a controller reports. Any may be nil; all may be called concurrently.
type Metrics struct {
	// Reconciled counts one reconcile: result is success, requeue, error, conflict, terminal or panic.
	Reconciled func(controller, result string, took time.Duration)
	// Acted counts one action of a state machine that isn't a noop: an object of kind had action done.
	Acted func(kind, action string)
	// Repaired is the time from the first sight of a gap to Ready again.
	Repaired func(kind string, took time.Duration)
}
