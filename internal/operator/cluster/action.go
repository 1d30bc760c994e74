package cluster

import (
	"time"

	"operatord.io/operatord/api/v1alpha1"
)

// Kinds of actions.
const (
	actRestore = "restore" // target: the Backup
	actCreate  = "create"  // the member
	actElect   = "elect"   // the new leader
	actRemove  = "remove"  // a member's Pod, data, or finalizer
	actNoop    = "noop"    // nothing to do now
)

// Targets of remove that are no Pods.
const (
	targetData      = "data"
	targetFinalizer = "finalizer"
)

// Reasons of conditions: which gap is being filled, or waited for.
const (
	reasonDeleting           = "Deleting"
	reasonBackupNotFound     = "BackupNotFound"
	reasonRestoreFailed      = "RestoreFailed"
	reasonLookingAtBackup    = "LookingAtBackup"
	reasonRestoring          = "Restoring"
	reasonNameTaken          = "NameTaken"
	reasonTooManyMembers     = "TooManyMembers"
	reasonElecting           = "Electing"
	reasonLeaderUnready      = "LeaderUnready"
	reasonShrinking          = "Shrinking"
	reasonReplacing          = "Replacing"
	reasonCreating           = "Creating"
	reasonWaiting            = "Waiting"
	reasonActionFailed       = "ActionFailed"
	reasonComplete           = "Complete"
	reasonTemplateChanged    = "TemplateChanged"
	reasonPaused             = "Paused"
	reasonStepping           = "Stepping"
	reasonMemberCrashLooping = "MemberCrashLooping"
	reasonLeaderLost         = "LeaderLost"
	reasonMemberLost         = "MemberLost"
)

// Action is the one thing to do now, or why there is nothing to do. The zero Action is a noop.
type Action struct {
	kind, target, why string
	after             time.Duration
	reason            string // of conditions

	// What Act needs of what was observed.
	ordinal int
	pod     *Member   // to be removed or elected
	others  []*Member // that have the leader's label and lose it
	backup  *v1alpha1.Backup
}

// Kind is restore, create, elect, remove or noop.
func (a Action) Kind() string {
	if a.Noop() {
		return actNoop
	}
	return a.kind
}

// Target is what it is done to; empty for noop.
func (a Action) Target() string { return a.target }

// Why says it for people. It names no time that passes, so that a status that holds it stands still.
func (a Action) Why() string { return a.why }

// After is when to look again although nothing changed; zero: no need to.
func (a Action) After() time.Duration { return a.after }

// Noop tells that there is nothing to do now.
func (a Action) Noop() bool { return a.kind == actNoop || a.kind == "" }

// done tells that no gap is left: the only noop that means Ready.
func (a Action) done() bool { return a.kind == actNoop && a.reason == reasonComplete }
