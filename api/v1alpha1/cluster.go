package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Names that the cluster operator puts on its objects.
const (
	// ClusterFinalizer keeps a Cluster until its members and their data are gone.
	ClusterFinalizer = "operatord.io/cluster"
	// ClusterLabel is on every member's Pod; its value is the Cluster's name.
	ClusterLabel = "operatord.io/cluster"
	// RoleLabel with the value RoleLeader on a living Pod makes that Pod the leader.
	RoleLabel  = "operatord.io/role"
	RoleLeader = "leader"
	// DataAnnotation on a member's Pod is the absolute path of its data directory; its processes find it in
	// $OPERATORD_DATA.
	DataAnnotation = "operatord.io/data"
	// TemplateHashAnnotation on a member's Pod tells which spec.template it was made from.
	TemplateHashAnnotation = "operatord.io/template-hash"
	// WithoutAnnotation on a Pod lists fields of it, with commas between them, that can't be obeyed on this machine and
	// that it is started without: spec.volumes,spec.containers[0].volumeMounts.
	WithoutAnnotation = "operatord.io/without"
	// StepAnnotation makes an operator act only when its value changes.
	StepAnnotation = "operatord.io/step"
)

// MaxMembers is how many members a Cluster may declare: as many Pods as the Node takes. What was stored above it,
// before there was a maximum, is read as it is and acted on as this many.
const MaxMembers = 4096

// Cluster declares a group of members, one of which leads. The operator makes it true and keeps it true: it
// restores the backup, creates members, elects a leader, replaces what dies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cl,categories={all,operatord}
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.members,statuspath=.status.members
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Up-To-Date",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="UpToDate")].status`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name must be at most 63 characters long: it is a label of the members"
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted. People write it.
	// +required
	Spec ClusterSpec `json:"spec"`
	// What is. The operator writes it; what is sent with the object itself is ignored.
	// +optional
	// +kubebuilder:default={phase: Pending}
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}

// ClusterSpec is what is wanted.
//
// +kubebuilder:validation:XValidation:rule="self.restoreFrom == oldSelf.restoreFrom",fieldPath=".restoreFrom",message="restoreFrom can't be set, changed or cleared after creation: a backup is never restored over a cluster that runs; make a new Cluster instead"
type ClusterSpec struct {
	// How many members there shall be. With 0 there is no member and no leader, and the data is kept.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	Members int32 `json:"members"`
	// The name of a Backup in the same namespace. The members start with its data; while it can't be had, none
	// is created. It can't be changed after creation.
	// +optional
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	RestoreFrom string `json:"restoreFrom"`
	// What a member's Pod is made of: a Pod template, with metadata and spec, as in a Deployment (kubectl explain
	// deployment.spec.template). Without it, a member is `operatord member`, which serves its health and its role
	// on $POD_IP:7481. The operator adds its label, an owner reference and the data directory; restartPolicy is
	// always Never, because the operator replaces what dies; without terminationGracePeriodSeconds it is 2. What is
	// wrong with a template shows, when a member is to be created, in the conditions.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
	// A person is working here: the operator observes and reports, and touches nothing. A deletion goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// Phase says how far the declaration has come true.
//
// +kubebuilder:validation:Enum=Pending;Creating;Restoring;Ready;Degraded
type Phase string

const (
	PhasePending   Phase = "Pending"   // nothing made yet, and nothing begun
	PhaseCreating  Phase = "Creating"  // becoming what is declared
	PhaseRestoring Phase = "Restoring" // the backup is being restored
	PhaseReady     Phase = "Ready"     // all members are ready and one leads
	PhaseDegraded  Phase = "Degraded"  // was Ready as declared now and collapsed, or the backup can't be had
)

// Phases lists them all, in the order in which a Cluster usually goes through them.
func Phases() []Phase {
	return []Phase{PhasePending, PhaseRestoring, PhaseCreating, PhaseReady, PhaseDegraded}
}

// Types of a Cluster's conditions.
const (
	ConditionReady       = "Ready"       // all members are ready and one leads
	ConditionProgressing = "Progressing" // a gap is left that the operator can fill or waits for
	ConditionUpToDate    = "UpToDate"    // no member runs an older template than the present one
	ConditionDegraded    = "Degraded"    // something is wrong that was right, or that a person must see to
)

// ClusterStatus is what is.
type ClusterStatus struct {
	// Pending, Restoring, Creating, Ready or Degraded.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// How many members are ready and not being deleted.
	// +optional
	Members int32 `json:"members"`
	// The name of the Pod that leads; empty when none does.
	// +optional
	Leader string `json:"leader,omitempty"`
	// The uid of the Pod that was elected last. It stays after that Pod's loss until the next election.
	// +optional
	LeaderUID types.UID `json:"leaderUID,omitempty"`
	// The backup has been restored; never undone.
	// +optional
	Restored bool `json:"restored,omitempty"`
	// The action that was begun last.
	// +optional
	LastAction *LastAction `json:"lastAction,omitempty"`
	// Members that died, until they are no longer wanted.
	// +optional
	// +listType=map
	// +listMapKey=name
	Crashes []Crash `json:"crashes,omitempty"`
	// The last generation that was Ready.
	// +optional
	ReadyGeneration int64 `json:"readyGeneration,omitempty"`
	// The last value of the annotation operatord.io/step that was seen, which may be empty; absent while there is no
	// such annotation.
	// +optional
	Step *string `json:"step,omitempty"`
	// The generation that this status was made for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Ready, Progressing, UpToDate and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// LastAction is an action that an operator began.
type LastAction struct {
	// restore, create, elect or remove.
	// +required
	Kind string `json:"kind"`
	// What it is done to: a Backup, a Pod, "data" or "finalizer".
	// +required
	Target string `json:"target"`
	// Why it is done.
	// +optional
	Why string `json:"why,omitempty"`
	// When it was begun. It moves only when kind, target or why does.
	// +required
	Time metav1.MicroTime `json:"time"`
}

// Crash is what is known about the deaths of one member.
type Crash struct {
	// The member's name.
	// +required
	Name string `json:"name"`
	// The uid of the Pod whose death was counted last.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// How many times in a row it died within ten minutes of life.
	// +required
	Count int32 `json:"count"`
	// The member is not created again before.
	// +required
	NotBefore metav1.Time `json:"notBefore"`
}
