package cluster

import (
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"operatord.io/operatord/api/v1alpha1"
)

var discard = slog.New(slog.DiscardHandler)

// TestMain asks for so many walks that the race detector is through with them in seconds (make walks asks for
// thousands, without it), and for no files of failed ones (the seed it prints is enough); what is given on the
// command line wins.
func TestMain(m *testing.M) {
	flag.Parse()
	settings := map[string]string{"rapid.checks": "400", "rapid.nofailfile": "true"}
	if testing.Short() {
		settings["rapid.checks"] = "100"
	}
	flag.Visit(func(f *flag.Flag) { delete(settings, f.Name) })
	for name, value := range settings {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestConvergesFromNothing walks from an empty world: everything that can happen, in any order, with kills and
// power cuts between any two things that the operator does. What must never happen is checked all along; then
// the world calms down, and the declaration must come true and stay untouched.
func TestConvergesFromNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newModel(t.Fatalf)
		defer w.end()
		declare(t, w)
		walk(t, w, rapid.IntRange(0, 60).Draw(t, "steps"))
		settle(t, w)
	})
}

// TestConvergesFromAnything starts from states that no history explains: any Pods, any status, any files.
func TestConvergesFromAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newModel(t.Fatalf)
		defer w.end()
		w.reachable = false
		declare(t, w)
		scramble(t, w)
		w.look()
		walk(t, w, rapid.IntRange(0, 25).Draw(t, "steps"))
		settle(t, w)
	})
}

// TestConvergesWhileCopiesGoOn has each file's copy take its time, while everything else happens: kills, deletion, a
// backup that goes, steps. In a bubble, so that a turn given is a turn taken.
func TestConvergesWhileCopiesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(t *rapid.T) {
			w := newModel(t.Fatalf, slowly)
			defer w.end()
			declare(t, w)
			walk(t, w, rapid.IntRange(0, 60).Draw(t, "steps"))
			close(w.disk.turns)
			settle(t, w)
		})
	})
}

// slowly has each file's copy wait for its turn, and the operator go on meanwhile.
func slowly(w *model) {
	w.launch, w.disk.turns = nil, make(chan struct{})
	for name, content := range backupFiles {
		w.disk.seed("/backup/"+name, content)
	}
	w.backups = []map[string]string{backupFiles}
}

// bubble keeps rapid from asking for the test's deadline, which a bubble has none of.
type bubble struct{ *testing.T }

// declare is what a person submits.
func declare(t *rapid.T, w *model) {
	cl := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: "cluster-uid", Generation: 1, CreationTimestamp: seconds(w.clock)},
		Spec:       v1alpha1.ClusterSpec{Members: rapid.Int32Range(0, 4).Draw(t, "members")},
	}
	if rapid.Bool().Draw(t, "restoreFrom") {
		cl.Spec.RestoreFrom = "b"
	}
	w.put(cl)
	if rapid.Bool().Draw(t, "backup") {
		makeBackup(w)
	}
	w.look()
}

func makeBackup(w *model) {
	w.rev++
	w.backup = &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Spec: v1alpha1.BackupSpec{
		Data: map[string]string{"a": backupFiles["a"]}, BinaryData: map[string][]byte{"b": []byte(backupFiles["b"])},
	}}
	if w.disk.turns != nil {
		w.backup.Spec = v1alpha1.BackupSpec{Path: "/backup"}
	}
}

// scramble puts anything anywhere.
func scramble(t *rapid.T, w *model) {
	for n := range rapid.IntRange(0, 6).Draw(t, "pods") {
		ordinal := rapid.SampledFrom([]int{n, n, n, n + 3, 10}).Draw(t, "ordinal")
		name := memberName("demo", ordinal)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: w.newUID(), CreationTimestamp: seconds(w.clock)}}
		if rapid.IntRange(0, 9).Draw(t, "ours") > 0 {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.cluster, v1alpha1.GroupVersion.WithKind("Cluster"))}
		}
		if rapid.Bool().Draw(t, "labelled") {
			pod.Labels = map[string]string{v1alpha1.RoleLabel: v1alpha1.RoleLeader}
		}
		w.put(pod)
		if rapid.Bool().Draw(t, "running") {
			w.run(name)
			if rapid.Bool().Draw(t, "ready") {
				w.change(name, func(p *corev1.Pod) { setReady(p, corev1.ConditionTrue, w.clock) })
			}
			if rapid.Bool().Draw(t, "dead") {
				w.die(name)
			}
			if rapid.IntRange(0, 3).Draw(t, "leaving") == 0 {
				w.change(name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: w.clock} })
			}
		}
	}
	for _, file := range []string{"restored/a", "restore.tmp/junk", "0/mine", "0.tmp/junk", "1/mine", "2.tmp/junk", "../cluster-uid" + removedSuffix + "/junk"} {
		if rapid.IntRange(0, 3).Draw(t, file) == 0 {
			w.disk.seed(path.Join(home, file), "x")
		}
	}
	cl := w.cluster.DeepCopy()
	s := &cl.Status
	s.Phase = rapid.SampledFrom(append(v1alpha1.Phases(), "")).Draw(t, "phase")
	s.Members = rapid.Int32Range(0, 5).Draw(t, "status.members")
	s.Leader = rapid.SampledFrom([]string{"", "demo-0", "demo-1", "nobody"}).Draw(t, "leader")
	s.LeaderUID = types.UID(rapid.SampledFrom([]string{"", "uid-1", "uid-2", "uid-3", "gone"}).Draw(t, "leaderUID"))
	s.Restored = rapid.Bool().Draw(t, "status.restored")
	s.ReadyGeneration = rapid.Int64Range(0, 1).Draw(t, "readyGeneration")
	for _, name := range []string{"demo-0", "demo-1", "demo-7", "demo-01", "other"} {
		if rapid.IntRange(0, 2).Draw(t, "crash of "+name) == 0 {
			s.Crashes = append(s.Crashes, v1alpha1.Crash{
				Name: name, UID: types.UID(rapid.SampledFrom([]string{"", "uid-1", "uid-2", "gone"}).Draw(t, "crash.uid")),
				Count:     rapid.Int32Range(-1, 9).Draw(t, "count"),
				NotBefore: seconds(w.clock.Add(time.Duration(rapid.IntRange(-400, 4000).Draw(t, "notBefore")) * time.Second)),
			})
		}
	}
	if rapid.Bool().Draw(t, "finalizer") {
		cl.Finalizers = []string{v1alpha1.ClusterFinalizer}
	}
	w.put(cl)
}

// walk lets things happen.
func walk(t *rapid.T, w *model, steps int) {
	for range steps {
		happenings := []string{"reconcile", "reconcile", "reconcile", "kill", "kubelet", "kubelet", "kubelet", "look", "time", "pod", "person", "power", "turn"}
		switch rapid.SampledFrom(happenings).Draw(t, "happening") {
		case "reconcile":
			if alive, _, _ := w.reconcile(); !alive {
				t.Fatalf("dead without a kill")
			}
		case "kill":
			w.fuse.set(rapid.IntRange(0, 25).Draw(t, "ops until the kill"))
			for range 4 {
				if alive, _, _ := w.reconcile(); !alive {
					break
				}
			}
			w.boot()
		case "look":
			w.look()
		case "turn":
			select {
			case w.disk.turns <- struct{}{}:
				synctest.Wait()
			default: // nobody waits
			}
		case "time":
			w.clock = w.clock.Add(time.Duration(rapid.SampledFrom([]int{1, 3, 7, 30, 400, 700}).Draw(t, "seconds")) * time.Second)
		case "kubelet":
			if pod := somePod(t, w); pod != nil {
				kubelet(w, pod)
			}
		case "pod":
			if pod := somePod(t, w); pod != nil {
				accident(t, w, pod)
			}
		case "person":
			person(t, w)
		case "power":
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				powerCut(t, w)
			}
		}
	}
}

func somePod(t *rapid.T, w *model) *corev1.Pod {
	if len(w.pods) == 0 {
		return nil
	}
	return w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")]
}

// kubelet brings one Pod one step on.
func kubelet(w *model, pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil && living(pod) && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) == 0:
		w.die(pod.Name) // its processes end first
	case pod.DeletionTimestamp != nil:
		w.rev++
		delete(w.pods, pod.Name)
	case pod.Status.Phase == "":
		w.run(pod.Name)
	case living(pod) && !ready(pod):
		w.change(pod.Name, func(p *corev1.Pod) { setReady(p, corev1.ConditionTrue, w.clock) })
	}
}

// accident is what befalls a Pod.
func accident(t *rapid.T, w *model, pod *corev1.Pod) {
	switch rapid.SampledFrom([]string{"die", "die", "hang", "delete", "label", "strip"}).Draw(t, "accident") {
	case "die":
		if living(pod) && pod.Spec.NodeName != "" {
			w.die(pod.Name)
		}
	case "hang":
		if ready(pod) {
			w.change(pod.Name, func(p *corev1.Pod) { setReady(p, corev1.ConditionFalse, w.clock) })
		}
	case "delete":
		if pod.DeletionTimestamp == nil {
			w.deletePod(pod)
		}
	case "label":
		if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			w.change(pod.Name, func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.RoleLabel, v1alpha1.RoleLeader) })
			w.look() // against this no order of writes helps
		}
	case "strip":
		if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			w.change(pod.Name, func(p *corev1.Pod) { delete(p.Labels, v1alpha1.RoleLabel) })
			w.look()
		}
	}
}

// person edits the declaration, or makes and deletes things.
func person(t *rapid.T, w *model) {
	if w.cluster == nil {
		return
	}
	cl := w.cluster.DeepCopy()
	switch rapid.SampledFrom([]string{"scale", "scale", "pause", "step", "unstep", "backup", "no backup", "edit the backup", "edit the backup", "lose the proof", "fill the disk", "template", "stranger", "no stranger", "delete"}).Draw(t, "edit") {
	case "scale":
		cl.Spec.Members = rapid.Int32Range(0, 5).Draw(t, "members")
		cl.Generation++
	case "pause":
		cl.Spec.Paused = !cl.Spec.Paused
		cl.Generation++
	case "step":
		cl.Annotations = map[string]string{v1alpha1.StepAnnotation: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "value")}
	case "unstep":
		cl.Annotations = nil
	case "backup":
		makeBackup(w)
	case "no backup":
		w.rev++
		w.backup = nil
	case "edit the backup":
		if w.disk.turns != nil {
			for _, file := range []string{"a", "b"} { // what was copied of it between the two never was
				w.disk.put("/backup", file, strconv.Itoa(len(w.backups)))
				w.backups = append(w.backups, w.disk.tree("/backup"))
			}
		}
	case "template":
		templateOf(rapid.SampledFrom([]string{"", sleeper, strings.Replace(sleeper, "1000", "1", 1)}).Draw(t, "template"))(cl)
		cl.Generation++
	case "lose the proof":
		if w.disk.lose(home + "/restored") {
			w.proofLost = true
		}
	case "fill the disk":
		w.disk.fill(!w.disk.full)
	case "stranger":
		name := memberName("demo", rapid.IntRange(0, 6).Draw(t, "ordinal"))
		if w.pods[name] == nil {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: w.newUID(), CreationTimestamp: seconds(w.clock)}}
			if rapid.Bool().Draw(t, "of an earlier Cluster") {
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cl, v1alpha1.GroupVersion.WithKind("Cluster"))}
				pod.OwnerReferences[0].UID = "an-earlier-cluster"
			}
			w.put(pod)
			w.look()
		}
	case "no stranger":
		removeStrangers(w)
	case "delete":
		if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
			return
		}
		if cl.DeletionTimestamp == nil {
			cl.DeletionTimestamp = &metav1.Time{Time: w.clock}
			if rapid.IntRange(0, 3).Draw(t, "orphan") == 0 {
				cl.Finalizers = append(cl.Finalizers, metav1.FinalizerOrphanDependents)
				w.orphaned = true
			}
			cl.Generation++
		}
	}
	w.put(cl)
}

func removeStrangers(w *model) {
	for name, pod := range w.pods {
		if !w.ours(pod) {
			w.rev++
			delete(w.pods, name)
		}
	}
}

// powerCut takes what wasn't synced; then the machine starts again, and the Pods' processes with it.
func powerCut(t *rapid.T, w *model) {
	w.disk.cut(func() bool { return rapid.Bool().Draw(t, "lost") })
	for _, pod := range w.pods {
		if living(pod) && pod.Spec.NodeName != "" {
			w.change(pod.Name, func(p *corev1.Pod) { setReady(p, corev1.ConditionFalse, w.clock) })
		}
	}
	w.boot()
}

// settle calms the world down: people leave it alone, Pods start and get ready, nothing dies. Then the
// declaration comes true, and nothing more is ever written.
func settle(t *rapid.T, w *model) {
	defer func() {
		if t.Failed() {
			t.Log(w.describe())
		}
	}()
	removeStrangers(w)
	if w.backup == nil {
		makeBackup(w)
	}
	if cl := w.cluster; cl != nil {
		cl = cl.DeepCopy()
		if cl.Spec.Paused {
			cl.Spec.Paused = false
			cl.Generation++
		}
		cl.Annotations = nil
		w.put(cl)
	}
	w.disk.fill(false)
	w.look()
	failed := 0
	for round := 0; ; round++ {
		if round == 400 {
			t.Fatalf("no end in sight:\n%s", w.describe())
		}
		w.writes = 0
		before := w.rev
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			kubelet(w, w.pods[name])
		}
		if w.cluster != nil && w.cluster.DeletionTimestamp != nil && slices.Contains(w.cluster.Finalizers, "orphan") && !slices.Contains(w.cluster.Finalizers, v1alpha1.ClusterFinalizer) {
			cl := w.cluster.DeepCopy() // the garbage collector has let go of the dependents
			cl.Finalizers = slices.DeleteFunc(cl.Finalizers, func(f string) bool { return f == "orphan" })
			w.put(cl)
		}
		w.look()
		_, result, err := w.reconcile()
		if err != nil {
			failed++
		}
		if err != nil && (failed > 8 || !fromBefore(err)) { // each directory's last job has its say
			t.Fatalf("reconcile in a calm world: %v\n%s", err, w.describe())
		}
		if err == nil && w.rev == before && w.writes == 0 && result.RequeueAfter == 0 && !result.Again && !copied(w) {
			break
		}
		w.clock = w.clock.Add(max(result.RequeueAfter, time.Second))
	}
	settled(t, w)
	// Then nothing, for ever: resyncs write nothing and ask for nothing.
	before := w.rev
	for range 3 {
		w.clock = w.clock.Add(5 * time.Minute)
		w.writes = 0
		if _, result, err := w.reconcile(); err != nil || result.RequeueAfter != 0 || result.Again || w.writes > 0 || w.rev != before {
			t.Fatalf("a resync isn't idle: %+v, %v, %d writes\n%s", result, err, w.writes, w.describe())
		}
	}
}

// fromBefore tells whether an error may be that of a job which failed before the world was calm.
func fromBefore(err error) bool {
	var changed *changedError
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &changed)
}

// copied tells whether the operator was hinted that a copy has ended.
func copied(w *model) bool {
	if w.disk.turns == nil {
		return false
	}
	for hinted := false; ; hinted = true {
		select {
		case <-w.op.Hints():
		default:
			return hinted
		}
	}
}

// settled is the declaration come true.
func settled(t *rapid.T, w *model) {
	members, lead := w.members(), w.leading()
	if w.cluster == nil {
		if left := w.disk.tree("/data/clusters"); !w.orphaned && w.reachable && (len(left) > 0 || w.disk.exists(home) || w.disk.exists(home+removedSuffix)) {
			t.Fatalf("data is left behind: %v", left)
		}
		return
	}
	s := w.cluster.Status
	if s.Phase != v1alpha1.PhaseReady || len(members) != int(w.cluster.Spec.Members) || int(s.Members) != len(members) {
		t.Fatalf("not as declared: %s, %d members\n%s", s.Phase, len(members), w.describe())
	}
	for _, pod := range members {
		if !ready(pod) || pod.DeletionTimestamp != nil {
			t.Fatalf("%s isn't ready\n%s", pod.Name, w.describe())
		}
	}
	switch {
	case len(members) == 0 && (len(lead) > 0 || s.Leader != "" || s.LeaderUID != ""):
		t.Fatalf("%v leads nobody\n%s", lead, w.describe())
	case len(members) > 0 && (len(lead) != 1 || s.Leader != lead[0] || s.LeaderUID != w.pods[lead[0]].UID):
		t.Fatalf("%v lead, the status says %s\n%s", lead, s.Leader, w.describe())
	}
	if want := w.cluster.Spec.RestoreFrom != ""; s.Restored != want && w.reachable {
		t.Fatalf("restored is %t\n%s", s.Restored, w.describe())
	}
	for _, c := range s.Conditions {
		want := map[string]metav1.ConditionStatus{"Ready": "True", "Progressing": "False", "Degraded": "False", "UpToDate": w.upToDate(c.Status)}[c.Type]
		if c.Status != want || c.ObservedGeneration != w.cluster.Generation {
			t.Fatalf("condition %+v\n%s", c, w.describe())
		}
	}
}

// upToDate is whether the members' Pods were made from the present template; otherwise, if one doesn't tell.
func (w *model) upToDate(otherwise metav1.ConditionStatus) metav1.ConditionStatus {
	template, err := w.op.template(w.cluster)
	if err != nil {
		panic(err)
	}
	present, err := w.op.templateHash(w.cluster, template)
	if err != nil {
		panic(err)
	}
	for _, pod := range w.members() {
		switch hash, ok := pod.Annotations[v1alpha1.TemplateHashAnnotation]; {
		case !ok:
			return otherwise
		case hash != present:
			return metav1.ConditionFalse
		}
	}
	return metav1.ConditionTrue
}
