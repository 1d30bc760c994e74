package metrics_test

import (
	"bytes"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"operatord.io/operatord/internal/metrics"
)

func scrape(t *testing.T, s *metrics.Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return rest
		}
	}
	t.Errorf("no series %s", series)
	return ""
}

func declare(s *metrics.Set) {
	s.Controller("cluster")
	s.Kind("Cluster", []string{"Pending", "Ready"}, []string{"create", "elect"})
	s.Kind("Pod", []string{"Pending", "Running"}, nil)
	s.Resource("pods")
	s.Workqueue().NewDepthMetric("cluster")
	s.StoreStatus(func() metrics.StoreState { return metrics.StoreState{Revision: 7, Writable: true} })
}

func TestSeriesStartAtZero(t *testing.T) {
	s := metrics.New("test")
	declare(s)
	text := scrape(t, s)
	for _, series := range []string{
		`operatord_reconcile_total{controller="cluster",result="success"}`,
		`operatord_reconcile_errors_total{controller="cluster",result="panic"}`,
		`operatord_reconcile_duration_seconds_count{controller="cluster"}`,
		`operatord_resources{kind="Cluster",phase="Ready"}`,
		`operatord_resources{kind="Pod",phase="Running"}`,
		`operatord_actions_total{action="elect",kind="Cluster"}`,
		`operatord_repair_duration_seconds_count{kind="Cluster"}`,
		`operatord_api_requests_total{code="201",resource="pods",verb="create"}`,
		`operatord_watchers{resource="pods"}`,
		`operatord_watch_cutoffs_total{resource="pods"}`,
		`operatord_store_commits_total`,
		`operatord_processes_adopted_total`,
		`workqueue_depth{name="cluster"}`,
	} {
		if got := value(t, text, series); got != "0" {
			t.Errorf("%s = %q, want 0", series, got)
		}
	}
	if got := value(t, text, "operatord_store_revision"); got != "7" {
		t.Errorf("store_revision = %q, want 7", got)
	}
}

func TestPhaseMovedCounts(t *testing.T) {
	s := metrics.New("test")
	declare(s)
	pending, ready, odd := "Pending", "Ready", "Sideways"
	s.PhaseMoved("Cluster", nil, &pending)
	s.PhaseMoved("Cluster", nil, &odd)
	s.PhaseMoved("Cluster", &pending, &ready)
	s.PhaseMoved("Cluster", &ready, &ready)
	text := scrape(t, s)
	for series, want := range map[string]string{
		`operatord_resources{kind="Cluster",phase="Pending"}`: "0",
		`operatord_resources{kind="Cluster",phase="Ready"}`:   "1",
		`operatord_resources{kind="Cluster",phase="other"}`:   "1",
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s = %s, want %s", series, got, want)
		}
	}
	s.PhaseMoved("Cluster", &ready, nil)
	s.PhaseMoved("Cluster", &odd, nil)
	text = scrape(t, s)
	if got := value(t, text, `operatord_resources{kind="Cluster",phase="Ready"}`); got != "0" {
		t.Errorf("after the deletion: %s Ready", got)
	}
}

// S59: labels do not grow with what clients send, and series of a resource that has gone go too.
func TestS59LabelsAreBounded(t *testing.T) {
	s := metrics.New("test")
	declare(s)
	s.Request("get", "pods", "200", time.Millisecond)
	before := strings.Count(scrape(t, s), "\n")
	s.Request("BREW", "pods", "200", time.Millisecond)
	s.Action("Cluster", "dance")
	odd := scrape(t, s)
	if strings.Contains(odd, "BREW") || strings.Contains(odd, "dance") {
		t.Error("a value outside the declared set became a label")
	}
	s.Resource("widgets.example.com")
	s.Request("get", "widgets.example.com", "404", time.Millisecond)
	s.Watchers("widgets.example.com", 1)
	s.Forget("widgets.example.com")
	s.Watchers("widgets.example.com", 0) // the last watch ends a moment later
	s.Request("watch", "widgets.example.com", "200", time.Second)
	after := scrape(t, s)
	if strings.Contains(after, "widgets") {
		t.Error("series of a resource that is no longer served are still there")
	}
	if n := strings.Count(after, "\n"); n > before+40 {
		t.Errorf("%d lines before, %d after", before, n)
	}
}

func TestPromtoolIsSilent(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed; it is in Debian's package prometheus")
	}
	s := metrics.New("test")
	declare(s)
	s.Reconcile("cluster", metrics.ResultError, time.Second)
	s.Request("get", "pods", "200", time.Millisecond)
	s.Repair("Cluster", time.Second)
	s.StoreCommitted(3, time.Millisecond)
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, s))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || out.Len() > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out.String())
	}
}
