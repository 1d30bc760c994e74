package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// The run directory is lost while no daemon is there. The next one starts nobody beside the old processes: it ends
// them, says so, and what is declared runs again on its data.
func TestRunDirectoryLost(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	e.mark(c, 3)
	before := e.pids("demo")
	e.Kill()
	if err := os.RemoveAll(e.File("run")); err != nil {
		t.Fatal(err)
	}
	e.start()
	for name, pid := range before {
		if daemon.Alive(pid) {
			t.Errorf("%s: the old process %d still runs when the daemon is ready", name, pid)
		}
	}
	e.eventually("every member has a new process", func() error {
		pods := e.pods("demo")
		for name, pid := range before {
			if p := pods[name]; p == nil || p.pid() == pid || !daemon.Alive(p.pid()) {
				return fmt.Errorf("%s has not", name)
			}
		}
		return nil
	})
	e.ready("demo", 3)
	e.marked(c, 3)
	e.eventually("Events say so", func() error {
		if said := e.kubectl("get", "events", "--field-selector", "reason=Failed"); strings.Count(said, "ran without its records") < 3 {
			return fmt.Errorf("they say\n%s", said)
		}
		return nil
	})
	e.kubectl("delete", "cluster", "demo", "--timeout=60s")
}

// A store that is gone isn't replaced by an empty one, which would end every Pod, unless somebody says so.
func TestStoreGone(t *testing.T) {
	e := start(t)
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(e.File("store")); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(e.ctx); err == nil || !strings.Contains(e.Log(), "the store that was served from here is gone") || !strings.Contains(e.Log(), "rm "+e.File("admin.kubeconfig")) {
		t.Fatalf("it started, or said otherwise: %v", err)
	}
	if err := os.Remove(e.File("admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	e.start()
}
