package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

const nobody = 65534

// publicBinary is a directory that everybody may pass through, with the daemon in it. Who made it removes it.
func publicBinary(t *testing.T) (dir, bin string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "operatord-user-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "operatord")
	data, err := os.ReadFile(binary(t, "OPERATORD_RACE_BIN", "operatord-race"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, bin
}

// A root daemon's members with a user of their own: they reach their data and labels although the data directory
// is private, also after a restart, and nobody else does.
func TestMembersOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can run members as another user")
		return
	}
	dir, bin := publicBinary(t)
	e := prepareIn(t, daemon.Options{Bin: bin, Dir: filepath.Join(dir, "data")})
	t.Cleanup(func() { os.RemoveAll(dir) })
	e.start()
	if err := e.Create(e.ctx, backups, backup+"spec: {data: {greeting: hello}}\n", nil); err != nil {
		t.Fatal(err)
	}
	// It is ready when it could append to its own data and knows its role.
	template := fmt.Sprintf(`template: {spec: {securityContext: {runAsUser: %d}, containers: [{name: m, image: host,
    command: [sh, -c, 'cat "$OPERATORD_LABELS" && echo "$(id -u)" >> "$OPERATORD_DATA/greeting" && touch "$OPERATORD_DATA/up" && exec sleep 1000'],
    readinessProbe: {exec: {command: [sh, -c, 'test -e "$OPERATORD_DATA/up"']}, periodSeconds: 1}}]}}`, nobody)
	e.createCluster("demo", 2, "restoreFrom: nightly", template)
	c := e.ready("demo", 2)
	for i := range 2 {
		if data, err := os.ReadFile(filepath.Join(e.dataOf(c, i), "greeting")); err != nil || string(data) != fmt.Sprintf("hello%d\n", nobody) {
			t.Errorf("member %d's data: %q %v", i, data, err)
		}
	}
	e.Kill()
	e.start()
	before := e.pids("demo")
	for _, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	e.until("demo", "all members lost", func(c *Cluster) bool { return c.Status.Members == 0 })
	e.ready("demo", 2)
	if info, err := os.Stat(e.Dir()); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the data directory is open to everybody: %v %v", info.Mode(), err)
	}
}

// An ordinary user's daemon: no cgroups, no root, everything else the same.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("already an ordinary user: every other test of this package is this one")
		return
	}
	dir, bin := publicBinary(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	e := prepareIn(t, daemon.Options{
		Bin: bin, Dir: filepath.Join(dir, "data"), User: &syscall.Credential{Uid: nobody, Gid: nobody}, Env: []string{"HOME=" + dir},
	})
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(e.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(e.Dir(), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	e.start()
	e.createCluster("demo", 3)
	e.ready("demo", 3)
	before := e.pids("demo")
	for name, pid := range before {
		var st syscall.Stat_t
		if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil || st.Uid != nobody {
			t.Errorf("%s runs as user %d (%v)", name, st.Uid, err)
		}
	}
	e.Kill()
	e.start()
	if after := e.pids("demo"); !maps.Equal(before, after) {
		t.Errorf("pids before: %v, after: %v", before, after)
	}
	if err := syscall.Kill(before["demo-0"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.until("demo", "another leader", func(c *Cluster) bool { return c.Status.Leader != "" && c.Status.Leader != "demo-0" })
	e.ready("demo", 3)
	e.kubectl("delete", "cluster", "demo", "--timeout=60s")
	e.eventually("no process is left", func() error {
		if pids := daemon.ProcessesOf(e.Dir()); len(pids) > 0 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
}
