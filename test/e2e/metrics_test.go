package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Point 6: what is promised is measured, from the first scrape on, and promtool has nothing to say.
func TestMetrics(t *testing.T) {
	e := start(t)
	for _, series := range []string{
		`operatord_actions_total{action="elect",kind="Cluster"}`,
		`operatord_reconcile_total{controller="cluster",result="error"}`,
		`operatord_reconcile_errors_total{controller="pod",result="panic"}`,
		`operatord_reconcile_duration_seconds_count{controller="garbagecollector"}`,
		`operatord_resources{kind="Cluster",phase="Degraded"}`,
		`operatord_resources{kind="Pod",phase="Running"}`,
		`operatord_repair_duration_seconds_count{kind="Cluster"}`,
		`workqueue_depth{name="cluster"}`,
		`workqueue_retries_total{name="pod"}`,
		`operatord_api_requests_total{code="200",resource="clusters.operatord.io",verb="watch"}`,
		`operatord_watch_cutoffs_total{resource="pods"}`,
		`operatord_processes_running`,
		`operatord_processes_adopted_total`,
		`operatord_processes_restarted_total`,
	} {
		if v := e.metric(series); v != 0 {
			t.Errorf("%s starts at %v", series, v)
		}
	}
	if v := e.metric("process_start_time_seconds"); time.Since(time.Unix(int64(v), 0)) > 5*time.Minute {
		t.Errorf("start time: %v", v)
	}
	e.createCluster("demo", 3)
	e.ready("demo", 3)
	if err := syscall.Kill(e.pod("demo-1").pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.until("demo", "Degraded", func(c *Cluster) bool { return c.Status.Phase == "Degraded" })
	e.ready("demo", 3)
	for series, want := range map[string]float64{
		`operatord_actions_total{action="create",kind="Cluster"}`:               4,
		`operatord_actions_total{action="elect",kind="Cluster"}`:                1,
		`operatord_resources{kind="Cluster",phase="Ready"}`:                     1,
		`operatord_repair_duration_seconds_count{kind="Cluster"}`:               1,
		`operatord_processes_running`:                                           3,
		`operatord_store_writable`:                                              1,
		`operatord_reconcile_errors_total{controller="cluster",result="panic"}`: 0,
	} {
		e.eventually(fmt.Sprintf("%s is %v", series, want), func() error {
			if got := e.metric(series); got != want {
				return fmt.Errorf("it is %v", got)
			}
			return nil
		})
	}
	for _, series := range []string{
		`operatord_api_requests_total{code="201",resource="clusters.operatord.io",verb="create"}`,
		`operatord_watch_events_sent_total{resource="clusters.operatord.io"}`,
		`operatord_store_commits_total`, `operatord_store_sync_duration_seconds_count`, `operatord_store_batch_writes_count`,
		`operatord_store_revision`, `operatord_store_keys`, `operatord_store_disk_bytes`,
		`workqueue_adds_total{name="cluster"}`, `workqueue_queue_duration_seconds_count{name="cluster"}`,
		`operatord_reconcile_total{controller="cluster",result="success"}`,
	} {
		if v := e.metric(series); v <= 0 {
			t.Errorf("%s is %v after all this", series, v)
		}
	}
	text, err := e.Metrics(e.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demo-0", "demo-1"} {
		if strings.Contains(text, name) {
			t.Errorf("an object's name is in a label: %s", name)
		}
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(e.ctx, "promtool", "check", "metrics")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	if err := cmd.Run(); err != nil || out.Len() > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out.String())
	}
}

// S59: series do not grow with objects, namespaces, kinds that come and go, or what clients ask for.
func TestS59Cardinality(t *testing.T) {
	e := start(t)
	warm(e)
	before := series(e)
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := range 125 {
				name := fmt.Sprintf("s59-%d-%d", w, i)
				namespace := "/api/v1/namespaces"
				if i%5 == 0 {
					if err := e.Create(e.ctx, namespace, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n", nil); err != nil {
						t.Error(err)
						return
					}
				}
				object := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n", name)
				if err := e.Create(e.ctx, configMaps, object, nil); err != nil {
					t.Error(err)
					return
				}
				e.Do(e.ctx, "GET", "/apis/"+name+"/v1/things", "", nil)
				e.Do(e.ctx, "BREW", "/"+name, "", nil)
				if err := e.Delete(e.ctx, configMaps+"/"+name); err != nil {
					t.Error(err)
				}
				if i%5 == 0 {
					if err := e.Delete(e.ctx, namespace+"/"+name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	began := time.Now()
	after := series(e)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a scrape took %v", took)
	}
	if after > before+20 || after < before-20 {
		t.Errorf("%d series before, %d after", before, after)
	}
}

// warm makes each kind of request once.
func warm(e *env) {
	e.t.Helper()
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: warm}\n"
	if err := e.Create(e.ctx, configMaps, object, nil); err != nil {
		e.t.Fatal(err)
	}
	if err := e.Delete(e.ctx, configMaps+"/warm"); err != nil {
		e.t.Fatal(err)
	}
	if err := e.Create(e.ctx, "/api/v1/namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: warm}\n", nil); err != nil {
		e.t.Fatal(err)
	}
	if err := e.Delete(e.ctx, "/api/v1/namespaces/warm"); err != nil {
		e.t.Fatal(err)
	}
	e.Do(e.ctx, "GET", "/apis/warm/v1/things", "", nil)
	e.Do(e.ctx, "BREW", "/warm", "", nil)
	e.gone("/api/v1/namespaces/warm")
}

func series(e *env) int {
	e.t.Helper()
	text, err := e.Metrics(e.ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}
