package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// Whoever lays a data directory knows its token and its authority. root doesn't serve one that somebody else
// laid, nor one that holds other things, and changes neither.
func TestDataDirectoryOfSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can take over what somebody else laid")
		return
	}
	dir, bin := publicBinary(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	theirs := prepareIn(t, daemon.Options{Bin: bin, Dir: filepath.Join(dir, "data"), User: &syscall.Credential{Uid: nobody, Gid: nobody}})
	if err := os.Mkdir(theirs.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs.Dir(), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	theirs.start()
	theirs.Kill()
	serve := func(data string) string {
		t.Helper()
		out, err := theirs.operatord("serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
		if err == nil {
			t.Fatalf("%s is served:\n%s", data, out)
		}
		return out
	}
	out := serve(theirs.Dir())
	for _, want := range []string{"admin.token belongs to ", "\n  chown -h root " + theirs.Dir()} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".profile"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := serve(home); !strings.Contains(out, "holds other things (.profile)") {
		t.Error(out)
	}
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("its mode: %v %v", info.Mode(), err)
	}
}

// A umask that takes the owner's own bits, from whatever started the daemon, doesn't keep an ordinary user's
// daemon out of its own directory.
func TestUmask(t *testing.T) {
	dir, bin := publicBinary(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := daemon.Options{Bin: filepath.Join(dir, "start"), Dir: filepath.Join(dir, "data")}
	if err := os.WriteFile(o.Bin, fmt.Appendf(nil, "#!/bin/sh\numask 0777\nexec %s \"$@\"\n", bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		o.User = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	e := prepareIn(t, o)
	if err := os.Mkdir(e.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if o.User != nil {
		if err := os.Chown(e.Dir(), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	e.start()
	e.createCluster("demo", 1)
	e.ready("demo", 1)
}
