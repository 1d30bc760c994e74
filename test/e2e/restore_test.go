package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const backup = "apiVersion: operatord.io/v1alpha1\nkind: Backup\nmetadata: {name: nightly, namespace: default}\n"

// Point 3: a Cluster waits for its backup, restores it once, and its members start with that data.
func TestRestoresOnce(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 2, "restoreFrom: nightly")
	c := e.until("demo", "Degraded for want of its backup", func(c *Cluster) bool { return c.Status.Phase == "Degraded" })
	if status, reason, message := c.condition("Degraded"); status != "True" || reason != "BackupNotFound" || !strings.Contains(message, "nightly") {
		t.Errorf("condition Degraded: %s %s %q", status, reason, message)
	}
	if pods := e.pods("demo"); len(pods) != 0 {
		t.Errorf("members without the backup: %v", pods)
	}
	r := e.record("demo", func(c *Cluster) bool { return c.Status.Phase == "Ready" })
	if err := e.Create(e.ctx, backups, backup+"spec: {data: {greeting: hello}}\n", nil); err != nil {
		t.Fatal(err)
	}
	if got := r.phases(); !slices.Equal(got, []string{"Restoring", "Creating", "Ready"}) {
		t.Errorf("phases: %v, want Restoring, Creating, Ready", got)
	}
	hasGreeting(e, c, 2)
	if n := e.metric(`operatord_actions_total{action="restore",kind="Cluster"}`); n != 1 {
		t.Errorf("%v restores", n)
	}
	if out, err := e.tryKubectl("", "patch", "cluster", "demo", "--type=merge", "-p", `{"spec":{"restoreFrom":""}}`); err == nil || !strings.Contains(out, "never restored over a cluster that runs") {
		t.Errorf("restoreFrom could be changed: %v\n%s", err, out)
	}
	if out, err := e.tryKubectl("", "patch", "cluster", "demo", "--type=merge", "-p", `{"spec":{"members":-1}}`); err == nil || !strings.Contains(out, "greater than or equal to 0") {
		t.Errorf("negative members: %v\n%s", err, out)
	}

	// What the members make of their data is theirs: a restart restores nothing.
	own := filepath.Join(e.dataOf(c, 0), "greeting")
	if err := os.WriteFile(own, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	e.start()
	e.ready("demo", 2)
	if data, err := os.ReadFile(own); err != nil || string(data) != "changed" {
		t.Errorf("after a restart the data is %q: restored again (%v)", data, err)
	}
	if n := e.metric(`operatord_actions_total{action="restore",kind="Cluster"}`); n != 0 {
		t.Errorf("%v restores after the restart", n)
	}
}

// hasGreeting checks that each member started with the backup's data.
func hasGreeting(e *env, c *Cluster, members int) {
	e.t.Helper()
	for i := range members {
		if data, err := os.ReadFile(filepath.Join(e.dataOf(c, i), "greeting")); err != nil || string(data) != "hello" {
			e.t.Errorf("data of member %d: %q %v", i, data, err)
		}
	}
}

// Point 3: never twice, whatever is killed when. The backup is large enough for kills to hit the copy.
func TestRestoreSurvivesKills(t *testing.T) {
	e := start(t)
	source := t.TempDir()
	if err := os.Chmod(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		if err := os.WriteFile(filepath.Join(source, fmt.Sprint("f", i)), []byte(strings.Repeat("x", 16<<10)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(source, "greeting"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Create(e.ctx, backups, backup+"spec: {path: "+source+"}\n", nil); err != nil {
		t.Fatal(err)
	}
	e.createCluster("demo", 2, "restoreFrom: nightly")
	c := e.cluster("demo")
	for range 5 {
		e.Kill()
		for i := range 2 {
			// A member's directory is either not there or whole.
			entries, err := os.ReadDir(e.dataOf(c, i))
			if err == nil && len(entries) < 401 {
				t.Fatalf("member %d started with %d of 401 files", i, len(entries))
			}
		}
		e.start()
	}
	e.ready("demo", 2)
	hasGreeting(e, c, 2)
}
