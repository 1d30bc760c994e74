package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The dashboard, against a real Prometheus that scrapes a daemon as deploy/prometheus says: each query of
// each panel has data, and the restart is an annotation.
func TestDashboard(t *testing.T) {
	e := start(t)
	prometheus := startPrometheus(e)
	e.createCluster("demo", 2)
	e.ready("demo", 2)
	scraped := func(what, query string) {
		t.Helper()
		e.eventually(what, func() error {
			e.cluster("demo") // a request between scrapes, so that there is a rate of them
			return prometheus.has(e.ctx, query)
		})
	}
	// Two scrapes with the repair between them, so that rates have something to say.
	scraped("the first state is scraped", `operatord_resources{kind="Cluster",phase="Ready"} == 1`)
	if err := syscall.Kill(e.pod("demo-1").pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.until("demo", "Degraded", func(c *Cluster) bool { return c.Status.Phase == "Degraded" })
	e.ready("demo", 2)
	scraped("the repair is scraped", `increase(operatord_repair_duration_seconds_count[10m]) > 0`)
	for panel, queries := range panels(t) {
		for _, query := range queries {
			scraped(panel, query)
		}
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(e.Endpoints.HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(e.ctx, "--http", "127.0.0.1:"+port); err != nil {
		t.Fatal(err)
	}
	scraped("the restart is an annotation", `max_over_time((changes(process_start_time_seconds{job="operatord"}[5s]))[5m:1s]) > 0`)
}

// panels are the queries of the dashboard, by panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/grafana/provisioning/dashboards/operatord.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], target.Expr)
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d panels found", len(out))
	}
	return out
}

type prometheus struct{ url string }

// startPrometheus runs Prometheus with the configuration of deploy/prometheus, pointed at this daemon.
func startPrometheus(e *env) *prometheus {
	e.t.Helper()
	config, err := os.ReadFile("../../deploy/prometheus/prometheus.yml")
	if err != nil {
		e.t.Fatal(err)
	}
	target := strings.TrimPrefix(e.Endpoints.HTTP, "http://")
	if !strings.Contains(string(config), "127.0.0.1:7480") {
		e.t.Fatal("deploy/prometheus doesn't scrape the default address")
	}
	dir := e.t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(config), "127.0.0.1:7480", target, 1)), 0o600); err != nil {
		e.t.Fatal(err)
	}
	address := freeAddress(e.t)
	cmd := exec.CommandContext(e.ctx, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	out := e.background(cmd)
	e.t.Cleanup(out.stop)
	p := &prometheus{url: "http://" + address}
	e.eventually("Prometheus scrapes", func() error {
		if err := p.has(e.ctx, `up{job="operatord"} == 1`); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	return p
}

// freeAddress is one that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// has is nil when a query has a result other than NaN.
func (p *prometheus) has(ctx context.Context, query string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", p.url+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("no data for %s", query)
}
