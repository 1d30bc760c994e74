package cluster

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"operatord.io/operatord/api/v1alpha1"
)

// meddling is the machine's disk, on which something happens once, in the middle of the copy of a file or behind it.
type meddling struct {
	osDisk
	file           string
	within, behind func()
}

func (d *meddling) Copy(step func() error, from, to string, mode fs.FileMode) error {
	if filepath.Base(from) != d.file {
		return d.osDisk.Copy(step, from, to, mode)
	}
	err := d.osDisk.Copy(func() error {
		if d.within != nil {
			d.within()
			d.within = nil
		}
		return step()
	}, from, to, mode)
	if d.behind != nil {
		d.behind()
		d.behind = nil
	}
	return err
}

// TestABackupThatChangesIsNotRestored: whatever changes in it while it is copied, before it was copied or after, there is
// no proof, the condition names it, and the copy is begun again.
func TestABackupThatChangesIsNotRestored(t *testing.T) {
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	// Files are copied by name: a, big, sub/mid, z. What happens, happens within or behind big.
	for name, tc := range map[string]struct {
		happens func(dir string)
		behind  bool
		named   string
	}{
		"a file is cut while it is copied": {func(dir string) { must(os.Truncate(dir+"/big", 3<<20)) }, false, "/big"},
		"a file is emptied":                {func(dir string) { must(os.Truncate(dir+"/big", 0)) }, false, "/big"},
		"a file grows":                     {func(dir string) { appendTo(t, dir+"/big", "x") }, false, "/big"},
		"a file is cut when it was copied": {func(dir string) { must(os.Truncate(dir+"/big", 3<<20)) }, true, "/big"},
		"one that was copied before":       {func(dir string) { appendTo(t, dir+"/a", "x") }, false, "/a"},
		"one that is copied later":         {func(dir string) { appendTo(t, dir+"/z", "x") }, false, "/z"},
		"one with its times put back": {func(dir string) {
			info, err := os.Stat(dir + "/a")
			must(err, os.WriteFile(dir+"/a", []byte("ONE"), 0o600), os.Chtimes(dir+"/a", time.Time{}, info.ModTime()))
		}, false, "/a"},
		"one is replaced": {func(dir string) {
			must(os.WriteFile(dir+"/.new", []byte("ONE"), 0o600), os.Rename(dir+"/.new", dir+"/a"))
		}, false, "/a"},
		"one is replaced while it is copied": {func(dir string) {
			must(os.WriteFile(dir+"/.new", make([]byte, 5<<20), 0o600), os.Rename(dir+"/.new", dir+"/big"))
		}, false, "/big"},
		"one's permissions change":     {func(dir string) { must(os.Chmod(dir+"/a", 0o640)) }, false, "/a"},
		"one appears":                  {func(dir string) { must(os.WriteFile(dir+"/sub/new", nil, 0o600)) }, false, "/sub/new"},
		"one appears where all is old": {func(dir string) { must(os.WriteFile(dir+"/0", nil, 0o600)) }, false, "/0"},
		"one goes before it is copied": {func(dir string) { must(os.Remove(dir + "/z")) }, false, "/z"},
		"one goes when it was copied":  {func(dir string) { must(os.Remove(dir + "/a")) }, false, ""},
		"a directory goes":             {func(dir string) { must(os.RemoveAll(dir + "/sub")) }, false, "/sub"},
		"a directory is replaced": {func(dir string) {
			must(os.Rename(dir+"/sub", dir+"-old"), os.Mkdir(dir+"/sub", 0o755), os.Link(dir+"-old/mid", dir+"/sub/mid"))
		}, false, "/sub"},
		"a directory becomes a link": {func(dir string) {
			must(os.Rename(dir+"/sub", dir+"-old"), os.Symlink(dir+"-old", dir+"/sub"))
		}, false, "/sub"},
		"a file becomes a directory": {func(dir string) { must(os.Remove(dir+"/z"), os.Mkdir(dir+"/z", 0o755)) }, false, "/z"},
		"a link points elsewhere": {func(dir string) {
			must(os.Remove(dir+"/link"), os.Symlink("b", dir+"/link"))
		}, false, "/link"},
		"a file becomes a pipe": {func(dir string) { must(os.Remove(dir+"/z"), syscall.Mkfifo(dir+"/z", 0o600)) }, false, "/z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "backup")
			src := filepath.Join(dir, "src")
			mustWrite(t, src+"/a", "one", 0o600)
			mustWrite(t, src+"/big", strings.Repeat("x", 5<<20), 0o600)
			mustWrite(t, src+"/sub/mid", "two", 0o600)
			mustWrite(t, src+"/z", "three", 0o600)
			must(os.Symlink("a", src+"/link"))

			op, _ := onDisk(t)
			d := &meddling{file: "big"}
			if op.disk = d; tc.behind {
				d.behind = func() { tc.happens(src) }
			} else {
				d.within = func() { tc.happens(src) }
			}
			cl, r := demo(1, from("b")), backupOf(v1alpha1.BackupSpec{Path: src})
			_, err := turn(t, op, r, cl)
			if d.within != nil || d.behind != nil {
				t.Fatal("nothing has happened")
			}
			if err == nil {
				t.Fatal("it was restored")
			}
			if _, err := os.Lstat(op.restored(cl.UID)); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("there is a proof: %v", err)
			}
			a, _ := turn(t, op, r, cl)
			if !a.Noop() || a.After() != backupAgain || !strings.Contains(a.Why(), src+tc.named) {
				t.Errorf("%s %q, want it to name %s", a.Kind(), a.Why(), src+tc.named)
			}
			if want := reasonRestoreFailed; name != "a file becomes a pipe" && a.reason != want {
				t.Errorf("reason %s, want %s: %s", a.reason, want, a.Why())
			}
			_ = os.Remove(src + "/z") // the pipe
			op.now = func() time.Time { return time.Now().Add(backupAgain) }
			if a, err := turn(t, op, r, cl); err != nil || a.Kind() != "restore" {
				t.Errorf("when it is still: %s, %v", a.Kind(), err)
			}
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestSpecialFilesAreRefusedAtOnce: nobody opens one, and waits for its other end.
func TestSpecialFilesAreRefusedAtOnce(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device": func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 5<<8) },
		"a socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			if err := make(filepath.Join(src, "special")); err != nil {
				t.Skip(err)
			}
			op, _ := onDisk(t)
			_, err := turn(t, op, backupOf(v1alpha1.BackupSpec{Path: src}), demo(1, from("b")))
			var source *sourceError
			if !errors.As(err, &source) || !strings.Contains(err.Error(), src+"/special is neither a file, a directory nor a link") {
				t.Errorf("got %v", err)
			}
		})
	}
}
