package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// earlier are commits whose daemons wrote what today's must take over: the data directory, and Pods that run under
// shims of theirs. One is added whenever a format changes.
var earlier = []string{"b50ab3f90d4a5e62598928123419740b69295c7b"}

// TestTakesOverFromEarlierDaemons replaces an earlier commit's binary in place, as an upgrade does, while Pods of
// its making run.
func TestTakesOverFromEarlierDaemons(t *testing.T) {
	for _, commit := range earlier {
		t.Run(commit[:7], func(t *testing.T) {
			root, err := filepath.Abs("../..")
			if err != nil {
				t.Fatal(err)
			}
			if err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
				t.Skipf("this clone has no commit %s: %v", commit, err)
			}
			dir, err := os.MkdirTemp("", "operatord-upgrade-")
			if err != nil {
				t.Fatal(err)
			}
			bin := filepath.Join(dir, "operatord")
			e := prepareIn(t, daemon.Options{Bin: bin, Dir: filepath.Join(dir, "data")})
			t.Cleanup(func() { os.RemoveAll(dir) })
			build := exec.CommandContext(e.ctx, "sh", "-c",
				`mkdir "$1/src" && git -C "$2" archive "$3" | tar -x -C "$1/src" && cd "$1/src" && go build -o "$1/operatord" ./cmd/operatord`,
				"build", dir, root, commit)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build the daemon of %s: %v\n%s", commit, err, out)
			}
			e.start()
			e.createCluster("demo", 3)
			c := e.ready("demo", 3)
			e.mark(c, 3)
			before := e.pids("demo")
			e.Kill()

			today, err := os.ReadFile(binary(t, "OPERATORD_RACE_BIN", "operatord-race"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(bin+".new", today, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(bin+".new", bin); err != nil {
				t.Fatal(err)
			}
			e.start()
			e.ready("demo", 3)
			if after := e.pids("demo"); !maps.Equal(before, after) {
				t.Errorf("pids before: %v, after: %v", before, after)
			}
			e.marked(c, 3)
			leader := e.cluster("demo").Status.Leader
			if err := syscall.Kill(before[leader], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			e.until("demo", "another leader", func(c *Cluster) bool { return c.Status.Leader != "" && c.Status.Leader != leader })
			e.ready("demo", 3)
			e.kubectl("delete", "cluster", "demo", "--timeout=60s")
		})
	}
}
