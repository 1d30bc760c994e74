package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// earlier are commits whose daemons wrote what today's must take over: the data directory, and Pods that run under
// shims of theirs. One is added whenever a format changes.
var earlier = []string{"b50ab3f90d4a5e62598928123419740b69295c7b", "f14d26151840e24442e367b7114a71f51c7318dd"}

// gatedPod asks for what only later daemons hold to, or refuse. One that runs goes on.
const gatedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"gated"},"spec":{"terminationGracePeriodSeconds":1,
	"volumes":[{"name":"scratch","emptyDir":{}},{"name":"token","secret":{"secretName":"absent"}}],
	"containers":[{"name":"main","image":"host","command":["/bin/sh","-c","exec sleep 1000000"],
		"volumeMounts":[{"name":"scratch","mountPath":"/scratch"},{"name":"token","mountPath":"/token"}],
		"lifecycle":{"preStop":{"exec":{"command":["/bin/true"]}}},
		"resources":{"requests":{"cpu":"10000"}},
		"securityContext":{"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}}]}}`

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
				t.Fatalf("this clone has no commit %s, whose daemon is to be taken over from (%v): git fetch --unshallow", commit, err)
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
			if err := e.Create(e.ctx, pods, gatedPod, nil); err != nil {
				t.Fatal(err)
			}
			e.eventually("the Pod with fields that aren't held to runs", func() error {
				if p := e.pod("gated"); !daemon.Alive(p.pid()) {
					return fmt.Errorf("phase %s", p.Status.Phase)
				}
				return nil
			})
			gated := e.pod("gated")
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
			if p := e.pod("gated"); p.Metadata.UID != gated.Metadata.UID || p.pid() != gated.pid() || !daemon.Alive(p.pid()) {
				t.Errorf("the Pod with fields that weren't held to was uid %s, pid %d, and is uid %s, pid %d", gated.Metadata.UID, gated.pid(), p.Metadata.UID, p.pid())
			}
			if err := syscall.Kill(gated.pid(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			e.eventually("it is started again", func() error {
				if p := e.pod("gated"); p.pid() == gated.pid() || !daemon.Alive(p.pid()) {
					return fmt.Errorf("phase %s, pid %d", p.Status.Phase, p.pid())
				}
				return nil
			})
			// One that comes after the upgrade doesn't get less than it asks for without a word.
			if err := e.Create(e.ctx, pods, strings.NewReplacer(`"name":"gated"`, `"name":"later"`, `"requests":{"cpu":"10000"}`, "").Replace(gatedPod), nil); err != nil {
				t.Fatal(err)
			}
			e.eventually("a later one is kept back", func() error {
				why := e.kubectl("get", "pod", "later", "-o", `jsonpath={.status.conditions[?(@.type=="operatord.io/Honoured")].message}`)
				if p := e.pod("later"); p.pid() != 0 || !strings.Contains(why, "not started") || !strings.Contains(why, "spec.volumes") {
					return fmt.Errorf("pid %d: %s", p.pid(), why)
				}
				return nil
			})
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
