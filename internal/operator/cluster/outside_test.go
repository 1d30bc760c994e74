package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// hanging is a disk of which some calls hang until they are let go on.
type hanging struct {
	*memory
	hangs func(op, path string) bool
	goOn  chan struct{}
}

func (d *hanging) wait(op, path string) {
	if d.hangs(op, path) {
		<-d.goOn
	}
}

func (d *hanging) ReadDir(path string) ([]fs.DirEntry, error) {
	d.wait("readdir", path)
	return d.memory.ReadDir(path)
}

func (d *hanging) Resolve(path string) (string, error) {
	d.wait("resolve", path)
	return d.memory.Resolve(path)
}

func (d *hanging) Copy(step func() error, from, to string, mode fs.FileMode) error {
	d.wait("copy", from)
	return d.memory.Copy(step, from, to, mode)
}

func (d *hanging) Mkdir(path string, mode fs.FileMode) error {
	d.wait("mkdir", path)
	return d.memory.Mkdir(path, mode)
}

func (d *hanging) Sync(path string) error {
	d.wait("sync", path)
	return d.memory.Sync(path)
}

func (d *hanging) RemoveAll(path string) error {
	d.wait("remove", path)
	return d.memory.RemoveAll(path)
}

// worker is the only one there is: what holds it holds everybody, and ends the test, for nothing moves any more.
type worker struct {
	*testing.T
	op  *Operator
	did []string
}

// newWorker has an operator on a disk of which the calls for which hangs holds hang.
func newWorker(t *testing.T, hangs func(op, path string) bool) (*worker, *hanging) {
	d := &hanging{memory: newMemory(), hangs: hangs, goOn: make(chan struct{})}
	op := newOperator(Options{DataDir: "/data", Binary: "/bin/operatord", Now: time.Now, Log: discard}, d, nil, false)
	t.Cleanup(op.Close)
	return &worker{T: t, op: op}, d
}

// turn is one reconcile's decision and action; then everything outside goes as far as it can.
func (w *worker) turn(r controller.Reader, cl *v1alpha1.Cluster) (a Action, status *v1alpha1.Cluster, err error) {
	w.Helper()
	o, err := w.op.Observe(w.Context(), r, cl)
	if err != nil {
		w.Fatal(err)
	}
	a = w.op.Decide(cl, o)
	status = w.op.Status(cl, o, a, "")
	err = w.op.Act(w.Context(), notes{w: w}, cl, a)
	synctest.Wait()
	for len(w.op.Hints()) > 0 {
		<-w.op.Hints()
	}
	return a, status, err
}

// notes is a writer that takes every write and notes it.
type notes struct {
	controller.Writer
	w *worker
}

func (n notes) Create(_ context.Context, obj controller.Object) error {
	n.w.did = append(n.w.did, "create "+obj.GetName())
	return nil
}

func (n notes) Update(_ context.Context, obj controller.Object, _ ...string) error {
	n.w.did = append(n.w.did, "update "+obj.GetName())
	return nil
}

func (n notes) Patch(_ context.Context, _ schema.GroupKind, key controller.Key, _ types.PatchType, _ []byte, _ string) error {
	n.w.did = append(n.w.did, "patch "+key.Name)
	return nil
}

// named is a Cluster of its own.
func named(name string, members int, options ...func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	cl := demo(members, options...)
	cl.Name, cl.UID = name, types.UID(name+"-uid")
	return cl
}

func message(cl *v1alpha1.Cluster, typ string) string {
	for _, c := range cl.Status.Conditions {
		if c.Type == typ {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// TestNobodyWaitsForARemoval: while the disk is busy with four Clusters' data, another's leader is replaced and its
// member created; each Cluster's finalizer stays until its data is gone.
func TestNobodyWaitsForARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorker(t, func(op, path string) bool { return op == "remove" && strings.HasSuffix(path, removedSuffix) })
		var going []*v1alpha1.Cluster
		for n := range 4 {
			cl := named(fmt.Sprint("going-", n), 3, deleting)
			d.seed("/data/clusters/"+string(cl.UID)+"/0/file", "x")
			going = append(going, cl)
			if _, _, err := w.turn(backups{}, cl); !errors.Is(err, controller.ErrRunning) {
				t.Fatalf("%v", err)
			}
		}
		lost := demo(2, ledByGone)
		o := world(member(1))
		if err := w.op.Act(t.Context(), notes{w: w}, lost, w.op.Decide(lost, o)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _, _ = w.turn(backups{}, named("other", 1))
		}
		if want := []string{"update demo-1", "create other-0"}; !slices.Equal(w.did, want) {
			t.Errorf("while data is removed: %v, want %v", w.did, want)
		}
		told := 0
		for _, cl := range going {
			_, status, err := w.turn(backups{}, cl)
			if !errors.Is(err, controller.ErrRunning) {
				t.Errorf("%s: %v", cl.Name, err)
			}
			if strings.Contains(message(status, "Progressing"), "2 removals go on at once") {
				told++
			}
		}
		if told != 2 {
			t.Errorf("%d say that they wait for others", told)
		}
		close(d.goOn)
		synctest.Wait()
		for _, cl := range going {
			if _, _, err := w.turn(backups{}, cl); err != nil {
				t.Error(err)
			}
		}
		if len(w.did) != 6 || len(d.tree("/data/clusters/")) != 0 {
			t.Errorf("at last: %v, left %v", w.did, d.tree("/data/clusters"))
		}
	})
}

// TestWhatWasBeingRemovedIsRemovedAtTheNextStart, although its Cluster is gone; and nothing else is.
func TestWhatWasBeingRemovedIsRemovedAtTheNextStart(t *testing.T) {
	d := newMemory()
	d.seed("/data/clusters/u1"+removedSuffix+"/0/file", "x")
	d.seed("/data/clusters/u2/0/file", "y")
	op := newOperator(Options{DataDir: "/data", Now: time.Now, Log: discard}, d, atOnce, false)
	defer op.Close()
	if left := d.tree("/data/clusters"); len(left) != 1 || left["u2/0/file"] != "y" {
		t.Errorf("left %v", left)
	}
}

// TestBackupsThatHang: more of them than there are workers or places hold up nobody, their status says what is waited
// for, and they go on by themselves.
func TestBackupsThatHang(t *testing.T) {
	for _, at := range []string{"readdir", "resolve", "copy"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, d := newWorker(t, func(op, path string) bool { return op == at && strings.HasPrefix(path, "/hung") })
				var hung []*v1alpha1.Cluster
				r := map[string]backups{}
				for n := range 8 {
					path := fmt.Sprint("/hung/", n)
					d.seed(path+"/a", "1")
					cl := named(fmt.Sprint("hung-", n), 1, from("b"))
					r[cl.Name] = backupOf(v1alpha1.BackupSpec{Path: path})
					hung = append(hung, cl)
					for range 2 {
						_, _, _ = w.turn(r[cl.Name], cl)
					}
				}
				d.seed("/good/a", "1")
				files := backupOf(v1alpha1.BackupSpec{Data: map[string]string{"a": "1"}})
				for range 3 { // without a copy to wait for: at once; again in each turn that doesn't show the Pod yet
					_, _, _ = w.turn(backups{}, named("empty", 1))
					_, _, _ = w.turn(files, named("files", 0, from("b")))
				}
				if want := []string{"create empty-0"}; !slices.Equal(slices.Compact(w.did), want) || !d.exists("/data/clusters/files-uid/restored") {
					t.Errorf("while backups hang: %v, want %v", w.did, want)
				}
				good := named("good", 1, from("b"))
				for range 3 { // behind eight that hang in the middle of a copy: a place is lent after each ten seconds
					for range 3 {
						_, _, _ = w.turn(backupOf(v1alpha1.BackupSpec{Path: "/good"}), good)
					}
					time.Sleep(stallAfter)
				}
				for range 3 {
					_, _, _ = w.turn(backupOf(v1alpha1.BackupSpec{Path: "/good"}), good)
				}
				if !slices.Contains(w.did, "create good-0") {
					t.Errorf("behind backups that hang: %v", w.did)
				}
				for _, cl := range hung {
					_, status, _ := w.turn(r[cl.Name], cl)
					if why := message(status, "Progressing"); !strings.Contains(why, "has not answered for 10s") {
						t.Errorf("%s says %q", cl.Name, why)
					}
					if degraded := message(status, "Degraded"); at != "copy" && !strings.HasPrefix(degraded, "BackupNotFound") {
						t.Errorf("%s says %q", cl.Name, degraded)
					}
				}
				// One is deleted: nobody waits for what hangs.
				gone := hung[0].DeepCopy()
				gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				for range 2 {
					_, _, _ = w.turn(r[gone.Name], gone)
				}
				if last := w.did[len(w.did)-1]; last != "patch hung-0" {
					t.Errorf("deleted while its backup hangs: %s", last)
				}
				close(d.goOn)
				for range 8 {
					for _, cl := range hung[1:] {
						_, _, _ = w.turn(r[cl.Name], cl)
					}
				}
				for _, cl := range hung[1:] {
					if !slices.Contains(w.did, "create "+cl.Name+"-0") {
						t.Errorf("%s doesn't go on: %v", cl.Name, w.did)
					}
				}
				if d.exists("/data/clusters/hung-0-uid") {
					t.Error("what hung makes the deleted Cluster's data again")
				}
			})
		})
	}
}

// TestOneLookForAll: Clusters that start from one directory share the look at it.
func TestOneLookForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		w, d := newWorker(t, func(op, path string) bool {
			if op == "readdir" && path == "/hung" {
				looked++
				return true
			}
			return false
		})
		for n := range 2 * looksAtOnce {
			_, _, _ = w.turn(backupOf(v1alpha1.BackupSpec{Path: "/hung"}), named(fmt.Sprint("c", n), 1, from("b")))
		}
		if looked != 1 {
			t.Errorf("%d looks", looked)
		}
		close(d.goOn)
	})
}

// TestAnEmptyDirectoryWaitsForNobody, not even while its own disk is busy syncing four copies.
func TestAnEmptyDirectoryWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorker(t, func(op, path string) bool { return op == "sync" && strings.Contains(path, "restoring") })
		d.seed("/backup/a", "1")
		r := backupOf(v1alpha1.BackupSpec{Path: "/backup"})
		for n := range 6 {
			for range 2 {
				_, _, _ = w.turn(r, named(fmt.Sprint("restoring-", n), 1, from("b")))
			}
		}
		_, status, _ := w.turn(r, named("restoring-5", 1, from("b")))
		if why := message(status, "Progressing"); !strings.Contains(why, "waits for others: 4 copies go on at once") {
			t.Errorf("the last one says %q", why)
		}
		for range 2 {
			_, _, _ = w.turn(r, named("plain", 1))
		}
		if want := []string{"create plain-0"}; !slices.Equal(w.did, want) {
			t.Errorf("got %v, want %v", w.did, want)
		}
		close(d.goOn)
	})
}

// TestRoomAgainMeansGoOn: while there is no room the status says so and what helps, and what failed is an error that is
// tried again soon; with room it is done.
func TestRoomAgainMeansGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorker(t, func(string, string) bool { return false })
		cl := named("demo", 1)
		d.fill(true)
		failed := false
		for range 2 { // begun, and told how it ended
			_, _, err := w.turn(backups{}, cl)
			failed = failed || controller.Passes(err)
		}
		if !failed {
			t.Error("no error that is tried again soon")
		}
		for range 2 {
			_, status, _ := w.turn(backups{}, cl)
			why := message(status, "Progressing")
			for _, want := range []string{"ActionFailed: create demo-0: ", "no space left on device", "make room on the file system of operatord's data directory"} {
				if !strings.Contains(why, want) {
					t.Errorf("it says %q, not %q", why, want)
				}
			}
		}
		d.fill(false)
		for range 3 {
			_, _, _ = w.turn(backups{}, cl)
		}
		if want := []string{"create demo-0"}; !slices.Equal(w.did, want) {
			t.Errorf("did %v, want %v", w.did, want)
		}
	})
}
