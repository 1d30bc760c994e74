// Package cluster is the operator of the kind Cluster: so many members, one leader, and a backup's data from
// the start.
//
// A reconcile observes the world (Pods with a member's name, the proof of a restore, the clock), decides what
// the one gap to fill is, writes a status that is true meanwhile, and does that one thing. Decide is the
// runbook: a flat run of ifs, pure, with a table test that reads like it. Nothing that a decision needs lives
// in memory: what can't be undone is checked against the world (a directory, a label, a Pod), and what the
// world forgets (who led, who died how often) is in the status before it is acted upon. So a kill at any
// instruction only repeats the same decision.
//
// docs/cluster.md is the contract in the words of its users.
package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// Kinds that the operator reads.
var (
	clusterKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster"}
	backupKind  = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Backup"}
	podKind     = schema.GroupKind{Kind: "Pod"}
)

const (
	backupAgain    = 10 * time.Second // between two looks at a backup that can't be had
	unreadyLeader  = 6 * time.Second  // 5 s, and one because Kubernetes' times are whole seconds
	stableAfter    = 10 * time.Minute // a member that lived this long has not crashed before
	firstBackOff   = 10 * time.Second // after the second death in a row; then twice as long each time
	longestBackOff = 300 * time.Second
)

// Options make an Operator. DataDir and Binary are required.
type Options struct {
	DataDir string           // the daemon's data directory; members' data is in DataDir/clusters/UID
	Binary  string           // absolute path of operatord, which default members run
	Now     func() time.Time // nil: time.Now
	// Without gives the fields of a member's Pod that it is to be started without, though its template doesn't say so; nil:
	// always none.
	Without func(*v1alpha1.Cluster, *corev1.PodSpec) []string
	Log     *slog.Logger // nil: slog.Default
}

// Operator is the state machine of Clusters. Its methods are safe for concurrent use by several workers as
// long as each Cluster is with one at a time.
type Operator struct {
	dir     string // DataDir/clusters
	binary  string
	now     func() time.Time
	without func(*v1alpha1.Cluster, *corev1.PodSpec) []string
	log     *slog.Logger
	disk    disk
	homes   sync.Mutex // of names in dir, against jobs that were cancelled and still go on
	jobs    *jobs
	lanes   lanes
	looks   *looks
	root    bool // the daemon may give files away
	failed  troubles
}

var (
	_ controller.Machine[*v1alpha1.Cluster, Observation, Action] = (*Operator)(nil)
	_ controller.Subject                                         = (*v1alpha1.Cluster)(nil)
)

// New makes the operator. Close it when its controller has ended.
func New(o Options) *Operator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return newOperator(o, osDisk{}, nil, os.Geteuid() == 0)
}

// newOperator also says how what waits for the disk is run; nil: beside the workers.
func newOperator(o Options, d disk, launch func(func()), root bool) *Operator {
	if o.Without == nil {
		o.Without = func(*v1alpha1.Cluster, *corev1.PodSpec) []string { return nil }
	}
	outside := newOutside(o.Now, launch)
	op := &Operator{
		dir:     filepath.Join(o.DataDir, "clusters"),
		binary:  o.Binary,
		now:     o.Now,
		without: o.Without,
		log:     o.Log,
		disk:    d,
		jobs:    newJobs(outside),
		lanes:   newLanes(),
		root:    root,
		failed:  troubles{byKey: map[controller.Key]trouble{}},
	}
	op.looks = newLooks(outside, op.lookAt)
	op.begin()
	return op
}

// For is the kind whose objects are reconciled.
func (op *Operator) For() schema.GroupKind { return clusterKind }

// Hints are the Clusters for which something outside the workers has ended, or hangs.
func (op *Operator) Hints() <-chan controller.Key { return op.jobs.hints }

// Close ends all that goes on outside the workers and waits for it, a few seconds for what hangs. What it left is
// emptied, or removed, when it is begun again.
func (op *Operator) Close() { op.jobs.close() }

// home is where everything of one Cluster is.
func (op *Operator) home(uid types.UID) string { return filepath.Join(op.dir, string(uid)) }

// restored is the directory whose existence proves that the backup has been restored.
func (op *Operator) restored(uid types.UID) string { return filepath.Join(op.home(uid), "restored") }
