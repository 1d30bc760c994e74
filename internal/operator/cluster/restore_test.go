package cluster

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// onDisk is an operator on the machine's own disk, with a private data directory as the daemon makes it.
func onDisk(t *testing.T) (op *Operator, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	op = newOperator(Options{DataDir: dir, Binary: "/bin/operatord", Now: time.Now, Log: discard}, osDisk{}, atOnce, os.Geteuid() == 0)
	t.Cleanup(op.Close)
	return op, dir
}

// backups is a reader that has one Backup, and no Pods.
type backups struct{ *v1alpha1.Backup }

func (b backups) Get(gk schema.GroupKind, key controller.Key) (controller.Object, error) {
	if b.Backup == nil || gk != backupKind || key.Name != b.Name {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("backups"), key.Name)
	}
	return b.Backup, nil
}

func (b backups) List(schema.GroupKind, controller.Query) iter.Seq[controller.Object] {
	return func(func(controller.Object) bool) {}
}

func (b backups) AtLeast(context.Context, string) error { return nil }

// sink takes every write.
type sink struct{ controller.Writer }

func (sink) Create(context.Context, controller.Object) error { return nil }

func backupOf(spec v1alpha1.BackupSpec) backups {
	return backups{&v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Spec: spec}}
}

// turn is one observation, decision and action.
func turn(t *testing.T, op *Operator, r controller.Reader, cl *v1alpha1.Cluster) (Action, error) {
	t.Helper()
	o, err := op.Observe(t.Context(), r, cl)
	if err != nil {
		t.Fatal(err)
	}
	a := op.Decide(cl, o)
	return a, op.Act(t.Context(), sink{}, cl, a)
}

func mustWrite(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestRestoresADirectory(t *testing.T) {
	op, dir := onDisk(t)
	src := t.TempDir()
	mustWrite(t, filepath.Join(src, "a"), "one", 0o640)
	mustWrite(t, filepath.Join(src, "sub/run"), "two", 0o755)
	for link, target := range map[string]string{"rel": "sub/run", "abs": "/etc/hostname", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(src, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(src, "sub/empty"), 0o555); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789abcdef", 4<<20/16)
	mustWrite(t, filepath.Join(src, "big"), big, 0o600)

	cl := demo(1, from("b"))
	if a, err := turn(t, op, backupOf(v1alpha1.BackupSpec{Path: src}), cl); err != nil || a.Kind() != "restore" {
		t.Fatalf("%s: %v", a.Kind(), err)
	}
	// The backup is gone and another one has its name: that changes nothing.
	a, err := turn(t, op, backupOf(v1alpha1.BackupSpec{Data: map[string]string{"a": "other"}}), cl)
	if err != nil || a.Kind() != "create" {
		t.Fatalf("%s: %v", a.Kind(), err)
	}
	data := filepath.Join(dir, "clusters/cluster-uid/0")
	for name, want := range map[string]struct {
		content string
		mode    fs.FileMode
	}{"a": {"one", 0o640}, "sub/run": {"two", 0o755}, "big": {big, 0o600}} {
		got, err := os.ReadFile(filepath.Join(data, name))
		info, statErr := os.Stat(filepath.Join(data, name))
		if err != nil || statErr != nil || string(got) != want.content || info.Mode() != want.mode {
			t.Errorf("%s: %d bytes, %v, %v", name, len(got), info, errors.Join(err, statErr))
		}
	}
	for link, want := range map[string]string{"rel": "sub/run", "abs": "/etc/hostname", "dangling": "nowhere"} {
		if got, err := os.Readlink(filepath.Join(data, link)); got != want {
			t.Errorf("%s -> %q, %v", link, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(data, "sub/empty")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("sub/empty: %v, %v: its owner may always write", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "clusters/cluster-uid/*.tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	// What the member has made of it is never touched again.
	mustWrite(t, filepath.Join(data, "a"), "mine", 0o600)
	if a, err := turn(t, op, backups{}, cl); err != nil || a.Kind() != "create" {
		t.Fatalf("%s: %v", a.Kind(), err)
	}
	if got, _ := os.ReadFile(filepath.Join(data, "a")); string(got) != "mine" {
		t.Errorf("a is %q", got)
	}
}

func TestRestoresFiles(t *testing.T) {
	op, dir := onDisk(t)
	r := backupOf(v1alpha1.BackupSpec{Data: map[string]string{"greeting": "hello\n", "empty": ""}, BinaryData: map[string][]byte{"raw": {0, 1, 255}}})
	if a, err := turn(t, op, r, demo(1, from("b"))); err != nil || a.Kind() != "restore" {
		t.Fatalf("%s: %v", a.Kind(), err)
	}
	for name, want := range map[string]string{"greeting": "hello\n", "empty": "", "raw": "\x00\x01\xff"} {
		if got, err := os.ReadFile(filepath.Join(dir, "clusters/cluster-uid/restored", name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestMembersOfAnotherUserReachTheirData(t *testing.T) {
	op, dir := onDisk(t)
	if !op.root {
		t.Skip("only root may give files away")
	}
	cl := demo(1, from("b"), func(cl *v1alpha1.Cluster) { cl.Spec.Template = raw(templateAs(65534)) })
	r := backupOf(v1alpha1.BackupSpec{Data: map[string]string{"a": "x"}})
	for range 2 {
		if _, err := turn(t, op, r, cl); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "clusters/cluster-uid")
	for path, want := range map[string]struct {
		uid  uint32
		mode fs.FileMode
	}{"0": {65534, 0o700}, "0/a": {65534, 0o600}, "restored": {0, 0o700}, ".": {0, 0o711}, "..": {0, 0o711}} {
		info, err := os.Lstat(filepath.Join(home, path))
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != want.uid || info.Mode().Perm() != want.mode {
			t.Errorf("%s belongs to %d and is %s, want %d and %s", path, uid, info.Mode().Perm(), want.uid, want.mode)
		}
	}
}

func TestBackupsThatCantBeHad(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(t *testing.T, dir string) backups
		why  string
	}{
		"there is none":     {func(*testing.T, string) backups { return backups{} }, `Backup "b" doesn't exist`},
		"no such directory": {func(t *testing.T, _ string) backups { return backupOf(v1alpha1.BackupSpec{Path: "/no/such/path"}) }, "/no/such/path"},
		"it is a file":      {func(t *testing.T, _ string) backups { return backupOf(v1alpha1.BackupSpec{Path: "/etc/passwd"}) }, "/etc/passwd"},
		"it holds itself":   {func(_ *testing.T, dir string) backups { return backupOf(v1alpha1.BackupSpec{Path: dir}) }, "own data directory"},
		"it is its own":     {func(t *testing.T, dir string) backups { return theClusters(t, dir, "cluster-uid", "0") }, "own data directory"},
		"it is itself":      {func(t *testing.T, dir string) backups { return theClusters(t, dir) }, "own data directory"},
		"it is everything":  {func(*testing.T, string) backups { return backupOf(v1alpha1.BackupSpec{Path: "/"}) }, "own data directory"},
		"it holds a pipe":   {func(t *testing.T, _ string) backups { return withPipe(t) }, "neither a file, a directory nor a link"},
		"a key that goes up": {func(*testing.T, string) backups {
			return backupOf(v1alpha1.BackupSpec{Data: map[string]string{"..": "x"}})
		}, "no name of a file"},
		"a key that is a way": {func(*testing.T, string) backups {
			return backupOf(v1alpha1.BackupSpec{Data: map[string]string{"a/b": "x"}})
		}, "no name of a file"},
	} {
		t.Run(name, func(t *testing.T) {
			op, dir := onDisk(t)
			cl, r := demo(1, from("b")), tc.make(t, dir)
			a, err := turn(t, op, r, cl)
			if name == "it holds a pipe" || strings.HasPrefix(name, "a key") { // seen while it was copied: the next look says so
				if err == nil {
					t.Fatalf("%s %q", a.Kind(), a.Why())
				}
				a, err = turn(t, op, r, cl)
			}
			if err != nil || !a.Noop() || a.reason != reasonBackupNotFound || a.After() != 10*time.Second || !strings.Contains(a.Why(), tc.why) {
				t.Fatalf("%s %q again in %s: %v", a.Kind(), a.Why(), a.After(), err)
			}
			if _, err := os.Lstat(op.restored(cl.UID)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is a proof: %v", err)
			}
			// It appears, and ten seconds later it is looked at again.
			op.now = func() time.Time { return time.Now().Add(10 * time.Second) }
			if a, err := turn(t, op, backupOf(v1alpha1.BackupSpec{Data: map[string]string{"a": "x"}}), cl); err != nil || a.Kind() != "restore" {
				t.Errorf("%s: %v", a.Kind(), err)
			}
		})
	}
}

func theClusters(t *testing.T, dir string, below ...string) backups {
	dir = filepath.Join(append([]string{dir, "clusters"}, below...)...)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return backupOf(v1alpha1.BackupSpec{Path: dir})
}

func withPipe(t *testing.T) backups {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return backupOf(v1alpha1.BackupSpec{Path: dir})
}

// TestDataGoes also removes what a member made unwritable for itself.
func TestDataGoes(t *testing.T) {
	op, dir := onDisk(t)
	locked := filepath.Join(dir, "clusters/cluster-uid/0/locked")
	mustWrite(t, filepath.Join(locked, "file"), "x", 0o400)
	if err := os.Chmod(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := op.clear(op.home("cluster-uid")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "clusters/cluster-uid")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
