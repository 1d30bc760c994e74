package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// model is a world around the real operator in the real kit: an API with conflicts, finalizers and graceful
// deletion, views that lag, a disk that forgets, a kubelet, and people. The operator may be killed between any
// two things it does. What it must never do is checked when it does it, and fails the test after the reconcile.
type model struct {
	fatal  func(format string, args ...any)
	broken string // the first promise that was broken

	clock time.Time
	disk  *memory
	fuse  *fuse // the running daemon's; API and disk are out of reach once it has burnt down
	op    *Operator
	kit   controller.Kit

	rev     int
	uids    int
	cluster *v1alpha1.Cluster // nil: deleted
	backup  *v1alpha1.Backup
	pods    map[string]*corev1.Pod

	// What the operator sees: the world as it was at a revision not below what it wrote itself.
	seen  *model
	floor int

	fromBackup bool                // the Cluster names one
	launch     func(func())        // what the operator does with what waits for the disk; nil: it goes on beside it
	reachable  bool                // the state grew from nothing, so the promises about restores hold from the start
	backups    []map[string]string // what the directory of the backup has ever held
	proofLost  bool                // somebody removed what was restored
	orphaned   bool                // it was deleted with its members and data to be left
	restores   int
	created    bool           // a member was ever created, for the present Cluster
	lives      map[string]int // by ordinal: how often a member has written its data
	acts       []string       // what the operator did in this reconcile
	writes     int            // what it wrote since this was last set to zero
	events     map[string]int // by reason
	acted      map[string]int // by action, as the metric counts it
	did        map[string]int // by reason, how often an Event of it may have been written
}

var start = time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)

const home = "/data/clusters/cluster-uid"

var backupFiles = map[string]string{"a": "1", "b": "2"}

func newModel(fatal func(string, ...any), options ...func(*model)) *model {
	w := &model{
		fatal: fatal, clock: start, disk: newMemory(), pods: map[string]*corev1.Pod{}, reachable: true, launch: atOnce,
		lives: map[string]int{}, events: map[string]int{}, did: map[string]int{}, acted: map[string]int{},
	}
	for _, o := range options {
		o(w)
	}
	w.boot()
	return w
}

func (w *model) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// boot starts the daemon, with nothing in memory and fresh views.
func (w *model) boot() {
	if w.op != nil {
		w.end()
	}
	w.fuse = newFuse()
	w.disk.fuse = w.fuse
	o := Options{DataDir: "/data", Binary: "/bin/operatord", Now: func() time.Time { return w.clock }, Log: discard}
	w.op = newOperator(o, w.disk, w.launch, true)
	w.kit = controller.NewMachine(controller.MachineOptions{
		Name: "cluster", For: clusterKind, Reader: (*view)(w), Writer: (*writer)(w), Now: o.Now, Log: discard,
		Metrics: controller.Metrics{Acted: func(_, action string) { w.acted[action]++ }},
	}, controller.Machine[*v1alpha1.Cluster, Observation, Action](w.op))
	w.look()
}

// end is the daemon's, with whatever it had begun.
func (w *model) end() {
	w.fuse.cut()
	w.op.Close()
}

// atOnce has what goes on outside the workers done at once.
func atOnce(f func()) { f() }

// look brings the views up to date.
func (w *model) look() {
	seen := &model{cluster: w.cluster, backup: w.backup, pods: maps.Clone(w.pods), rev: w.rev}
	w.seen, w.floor = seen, w.rev
}

// reconcile runs the kit once. It tells whether the daemon survived, and what the kit asked for.
func (w *model) reconcile() (alive bool, result controller.Result, err error) {
	if w.seen.rev < w.floor {
		w.look()
	}
	w.acts = nil
	created := w.created
	result, err = w.kit.Reconcile(context.Background(), controller.Key{Namespace: "default", Name: "demo"})
	if w.disk.turns != nil {
		synctest.Wait() // copies wait for their turn, or have ended
	}
	w.checkRenames(created)
	if len(w.acts) > 1 {
		w.fail("more than one action in one reconcile: %v", w.acts)
	}
	if w.acted["restore"] > w.restores {
		w.fail("%d restores are counted, there were %d", w.acted["restore"], w.restores)
	}
	if w.broken != "" {
		w.fatal("%s\n%s", w.broken, w.describe())
	}
	return w.fuse.alive(), result, err
}

// put stores an object under a new revision. Nothing that is stored is changed afterwards.
func (w *model) put(obj controller.Object) {
	w.rev++
	obj.SetResourceVersion(strconv.Itoa(w.rev))
	switch obj := obj.(type) {
	case *v1alpha1.Cluster:
		w.fromBackup = obj.Spec.RestoreFrom != ""
		// As the API stores it: whole seconds, microseconds, UTC.
		data, err := json.Marshal(obj)
		stored := &v1alpha1.Cluster{}
		if err == nil {
			err = json.Unmarshal(data, stored)
		}
		if err != nil {
			panic(err)
		}
		w.cluster = stored
		if stored.DeletionTimestamp != nil && len(stored.Finalizers) == 0 {
			w.cluster = nil
		}
	case *corev1.Pod:
		w.pods[obj.Name] = obj
	}
}

func (w *model) newUID() types.UID {
	w.uids++
	return types.UID("uid-" + strconv.Itoa(w.uids))
}

// change edits a Pod as the kubelet or a person does.
func (w *model) change(name string, edit func(*corev1.Pod)) {
	pod := w.pods[name].DeepCopy()
	edit(pod)
	w.put(pod)
}

// deletePod is what the API does for a DELETE: a Pod that runs is given time, others go.
func (w *model) deletePod(pod *corev1.Pod) {
	living := pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending
	if living && pod.Spec.NodeName != "" {
		if pod.DeletionTimestamp == nil {
			w.change(pod.Name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: w.clock} })
		}
		return
	}
	w.rev++
	delete(w.pods, pod.Name)
}

func (w *model) ours(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	return ref != nil && ref.UID == "cluster-uid"
}

func living(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func ready(pod *corev1.Pod) bool {
	return living(pod) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func labelled(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.RoleLabel] == v1alpha1.RoleLeader }

// leading are the living members that have the label.
func (w *model) leading() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[name]; w.ours(pod) && living(pod) && labelled(pod) {
			out = append(out, name)
		}
	}
	return out
}

func (w *model) members() []*corev1.Pod {
	var out []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if w.ours(w.pods[name]) {
			out = append(out, w.pods[name])
		}
	}
	return out
}

func setReady(p *corev1.Pod, status corev1.ConditionStatus, at time.Time) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: seconds(at)})
}

// run is the kubelet starting a Pod: bound, running, its member writing into its data directory.
func (w *model) run(name string) {
	w.change(name, func(p *corev1.Pod) {
		p.Spec.NodeName = "here"
		p.Status.Phase = corev1.PodRunning
		at := seconds(w.clock)
		p.Status.StartTime = &at
		setReady(p, corev1.ConditionFalse, w.clock)
	})
	pod := w.pods[name]
	if data := pod.Annotations[v1alpha1.DataAnnotation]; data != "" {
		w.lives[data]++
		if !w.disk.put(data, "lives", strconv.Itoa(w.lives[data])) {
			w.fail("%s runs without its data directory %s", name, data)
		}
	}
}

// die is the end of a Pod's last process.
func (w *model) die(name string) {
	w.change(name, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		setReady(p, corev1.ConditionFalse, w.clock)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "member", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: seconds(w.clock)},
		}}}
	})
}

// checkRenames looks at the two that count: of a restore, and of a member's data. created: a member was created
// before.
func (w *model) checkRenames(created bool) {
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	for _, r := range w.disk.renames {
		want := backupFiles
		if member := w.disk.list(home + "/restored"); path.Base(r.to) != "restored" && len(member) > 0 {
			want = member
		}
		if slices.ContainsFunc(w.backups, func(held map[string]string) bool { return maps.Equal(held, r.files) }) {
			want = r.files
		}
		switch {
		case strings.HasSuffix(r.to, removedSuffix):
			if w.cluster != nil && w.cluster.DeletionTimestamp == nil || len(w.members()) > 0 {
				w.fail("%s is renamed to %s before its time", r.from, r.to)
			}
			continue
		case path.Base(r.to) == "restored":
			if w.restores++; w.reachable && created && !w.proofLost {
				w.fail("a restore over a cluster that has members")
			}
		case !w.fromBackup:
			want = map[string]string{}
		}
		switch {
		case r.over:
			w.fail("%s is renamed over %s", r.from, r.to)
		case w.reachable && !maps.Equal(r.files, want):
			w.fail("%s becomes %s with %v, want %v", r.from, r.to, r.files, want)
		case !r.durable:
			w.fail("%s becomes %s before it is synced", r.from, r.to)
		}
	}
	w.disk.renames = nil
}

// view is the reader: the world as the operator sees it.
type view model

func (v *view) Get(gk schema.GroupKind, key controller.Key) (controller.Object, error) {
	switch {
	case gk == clusterKind && v.seen.cluster != nil:
		return v.seen.cluster, nil
	case gk == backupKind && v.seen.backup != nil && key.Name == v.seen.backup.Name:
		return v.seen.backup, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)
}

func (v *view) List(gk schema.GroupKind, _ controller.Query) iter.Seq[controller.Object] {
	return func(yield func(controller.Object) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.seen.pods)) {
			if gk == podKind && !yield(v.seen.pods[name]) {
				return
			}
		}
	}
}

func (v *view) AtLeast(context.Context, string) error { return nil }

// writer is the API as the operator writes to it. Each call is a place to be killed before; after it is before
// the next.
type writer model

func (wr *writer) begin(what string) (*model, error) {
	w := (*model)(wr)
	if err := w.fuse.burn(); err != nil {
		return w, err
	}
	if what != "Event" {
		w.writes++
	}
	return w, nil
}

var podResource = schema.GroupResource{Resource: "pods"}

func (wr *writer) Create(_ context.Context, obj controller.Object) error {
	if e, ok := obj.(*corev1.Event); ok {
		w, err := wr.begin("Event")
		if err != nil {
			return err
		}
		if w.events[e.Reason]++; w.did[e.Reason] < w.events[e.Reason] {
			if _, counted := w.did[e.Reason]; counted || isAction(e.Reason) {
				w.fail("Event %s %d times, done %d times: %s", e.Reason, w.events[e.Reason], w.did[e.Reason], e.Message)
			}
		}
		return nil
	}
	w, err := wr.begin("create")
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod).DeepCopy()
	if w.pods[pod.Name] != nil {
		w.floor = w.rev
		return apierrors.NewAlreadyExists(podResource, pod.Name)
	}
	w.acts = append(w.acts, "create "+pod.Name)
	w.checkCreate(pod)
	pod.UID, pod.CreationTimestamp = w.newUID(), seconds(w.clock)
	w.put(pod)
	w.floor = w.rev
	w.created = true
	w.did["MemberCreated"]++
	return nil
}

func isAction(reason string) bool {
	return slices.Contains([]string{"MemberCreated", "MemberRemoved", "LeaderElected", "Restored"}, reason)
}

func (w *model) checkCreate(pod *corev1.Pod) {
	_, isMember := ordinalOf("demo", pod.Name)
	data := pod.Annotations[v1alpha1.DataAnnotation]
	switch {
	case !isMember || !w.ours(pod) || labelled(pod):
		w.fail("a member is created that isn't one: %v", pod.ObjectMeta)
	case w.cluster != nil && !slices.Contains(w.cluster.Finalizers, v1alpha1.ClusterFinalizer):
		w.fail("%s is created without the finalizer", pod.Name)
	case !w.disk.exists(data):
		w.fail("%s is created without its data", pod.Name)
	case w.reachable && w.seen.cluster.Spec.RestoreFrom != "" && !w.disk.durable(home+"/restored"):
		w.fail("%s is created before a pending restore", pod.Name)
	case w.reachable && !w.disk.keeps("/data/clusters"):
		w.fail("%s is created on data that a power cut takes away", pod.Name)
	case w.seen.cluster.DeletionTimestamp != nil:
		w.fail("%s is created for a Cluster that is being deleted", pod.Name)
	case len(w.seen.members()) >= int(w.seen.cluster.Spec.Members):
		w.fail("%s is created beyond the number declared", pod.Name)
	}
	if w.lives[data] > 0 && w.disk.tree(data)["lives"] != strconv.Itoa(w.lives[data]) {
		w.fail("the data of %s was touched: %v", pod.Name, w.disk.tree(data))
	}
}

func (wr *writer) Update(_ context.Context, obj controller.Object, subresource ...string) error {
	w, err := wr.begin("update")
	if err != nil {
		return err
	}
	switch obj := obj.(type) {
	case *v1alpha1.Cluster:
		if w.cluster == nil || w.cluster.UID != obj.UID {
			w.floor = w.rev
			return apierrors.NewNotFound(v1alpha1.Resource("clusters"), obj.Name)
		}
		if obj.ResourceVersion != w.cluster.ResourceVersion {
			w.floor = w.rev
			return apierrors.NewConflict(v1alpha1.Resource("clusters"), obj.Name, fmt.Errorf("changed"))
		}
		if !slices.Equal(subresource, []string{"status"}) {
			w.fail("the Cluster itself is updated")
		}
		w.checkStatus(obj)
		stored := w.cluster.DeepCopy()
		stored.Status = *obj.Status.DeepCopy()
		w.put(stored)
		w.floor = w.rev
		obj.ResourceVersion = w.cluster.ResourceVersion
		obj.Status = *w.cluster.Status.DeepCopy()
	case *corev1.Pod:
		pod := w.pods[obj.Name]
		if pod == nil || pod.UID != obj.UID {
			w.floor = w.rev
			return apierrors.NewNotFound(podResource, obj.Name)
		}
		if pod.ResourceVersion != obj.ResourceVersion {
			w.floor = w.rev
			return apierrors.NewConflict(podResource, obj.Name, fmt.Errorf("changed"))
		}
		w.checkLabels(pod, obj)
		w.put(obj.DeepCopy())
		w.floor = w.rev
	}
	return nil
}

// checkStatus: a status says what was observed.
func (w *model) checkStatus(cl *v1alpha1.Cluster) {
	n := int32(0)
	for _, pod := range w.seen.members() {
		if ready(pod) && pod.DeletionTimestamp == nil {
			n++
		}
	}
	s := cl.Status
	if s.Members != n {
		w.fail("status.members is %d with %d ready", s.Members, n)
	}
	if lead := w.seen.leading(); len(lead) == 0 && s.Leader != "" || len(lead) > 0 && !slices.Contains(lead, s.Leader) {
		w.fail("status.leader is %q, %v lead", s.Leader, lead)
	}
	if s.Phase == v1alpha1.PhaseReady && cl.DeletionTimestamp == nil && n != cl.Spec.Members {
		w.fail("Ready with %d of %d", n, cl.Spec.Members)
	}
	if s.Restored && !w.disk.exists(home+"/restored") {
		w.fail("restored, without the proof")
	}
	if s.Restored && !w.cluster.Status.Restored {
		w.did["Restored"]++
	}
}

// checkLabels: taken from the others before it is given, and only when nobody leads.
func (w *model) checkLabels(was, is *corev1.Pod) {
	if !w.ours(was) {
		w.fail("the stranger %s is touched", was.Name)
	}
	gives, takes := labelled(is) && !labelled(was), labelled(was) && !labelled(is)
	lead := w.leading()
	switch {
	case gives && len(lead) > 0:
		w.fail("%s is elected while %v lead", is.Name, lead)
	case gives && (is.DeletionTimestamp != nil || !ready(is)):
		w.fail("%s is elected and can't lead", is.Name)
	case takes && living(was) && len(w.seen.leading()) < 2:
		w.fail("%s loses the lead, although it lives and leads alone", is.Name)
	}
	if !slices.Contains(w.acts, "elect") {
		w.acts = append(w.acts, "elect")
		w.did["LeaderElected"]++
	}
	if !gives && !takes {
		w.fail("an update of %s that changes nothing", is.Name)
	}
}

func (wr *writer) Patch(_ context.Context, _ schema.GroupKind, key controller.Key, _ types.PatchType, data []byte, _ string) error {
	w, err := wr.begin("patch")
	if err != nil {
		return err
	}
	var patch struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Finalizers      []string
		}
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	w.floor = w.rev
	switch m := patch.Metadata; {
	case w.cluster == nil:
		return apierrors.NewNotFound(v1alpha1.Resource("clusters"), key.Name)
	case m.UID != w.cluster.UID || m.ResourceVersion != w.cluster.ResourceVersion:
		return apierrors.NewConflict(v1alpha1.Resource("clusters"), key.Name, fmt.Errorf("changed"))
	case w.cluster.DeletionTimestamp != nil && len(m.Finalizers) > len(w.cluster.Finalizers):
		w.fail("a finalizer is added to a Cluster that is being deleted")
	}
	was, is := w.cluster.Finalizers, patch.Metadata.Finalizers
	if !slices.Contains(is, v1alpha1.ClusterFinalizer) && !slices.Contains(was, "orphan") {
		if len(w.members()) > 0 || w.disk.exists(home) || w.disk.exists(home+removedSuffix) {
			w.fail("the finalizer goes before members and data")
		}
	}
	stored := w.cluster.DeepCopy()
	stored.Finalizers = is
	w.put(stored)
	w.floor = w.rev
	return nil
}

func (wr *writer) Delete(_ context.Context, gk schema.GroupKind, key controller.Key, opts metav1.DeleteOptions) error {
	w, err := wr.begin("delete")
	if err != nil {
		return err
	}
	w.floor = w.rev
	pod := w.pods[key.Name]
	switch p := opts.Preconditions; {
	case gk != podKind || p == nil || p.UID == nil:
		w.fail("a %s is deleted without its uid", gk.Kind)
	case pod == nil:
		return apierrors.NewNotFound(podResource, key.Name)
	case *p.UID != pod.UID || p.ResourceVersion != nil && *p.ResourceVersion != pod.ResourceVersion:
		return apierrors.NewConflict(podResource, key.Name, fmt.Errorf("changed"))
	case !w.ours(pod):
		w.fail("the stranger %s is deleted", pod.Name)
	case pod.DeletionTimestamp != nil:
		w.fail("%s is deleted twice", pod.Name)
	}
	if w.cluster != nil && w.cluster.DeletionTimestamp == nil && living(pod) && ready(pod) && labelled(pod) && len(w.seen.members()) > 1 {
		w.fail("the leader is removed while another can go")
	}
	w.acts = append(w.acts, "remove "+pod.Name)
	w.did["MemberRemoved"]++
	w.deletePod(pod)
	w.floor = w.rev
	return nil
}

func (wr *writer) Apply(context.Context, controller.Object) error { panic("nothing is applied") }

// describe prints the world for a failure.
func (w *model) describe() string {
	var b strings.Builder
	if w.cluster != nil {
		data, _ := json.Marshal(w.cluster)
		fmt.Fprintf(&b, "cluster %s\n", data)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		fmt.Fprintf(&b, "pod %s uid=%s ours=%t phase=%q ready=%t leaving=%t labelled=%t\n", name, p.UID, w.ours(p), p.Status.Phase, ready(p), p.DeletionTimestamp != nil, labelled(p))
	}
	fmt.Fprintf(&b, "now %s, files %v\n", w.clock, w.disk.tree("/data"))
	return b.String()
}
