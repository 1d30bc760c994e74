// Package e2e proves what operatord promises its users, from outside: the daemon (built with -race) as a
// process, the real kubectl, real processes of members. Every daemon has a data directory and ports of
// its own, and what it starts ends with the test.
//
// OPERATORD_RACE_BIN and KUBECTL name the binaries; without them those in bin/ are taken. A test that
// finds none fails: `make e2e` builds them.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"operatord.io/operatord/test/daemon"
)

const (
	clusters   = "/apis/operatord.io/v1alpha1/namespaces/default/clusters"
	backups    = "/apis/operatord.io/v1alpha1/namespaces/default/backups"
	pods       = "/api/v1/namespaces/default/pods"
	configMaps = "/api/v1/namespaces/default/configmaps"
)

func binary(t testing.TB, env, name string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		path = filepath.Join("..", "..", "bin", name)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run the tests with `make e2e`, which builds it", err)
	}
	return path
}

// env is a daemon and a deadline.
type env struct {
	*daemon.Daemon
	t   *testing.T
	ctx context.Context
}

// prepare makes a daemon that isn't started. Its directory is not below t.TempDir, whose paths are too
// long for a unix socket.
func prepare(t *testing.T, args ...string) *env {
	t.Helper()
	dir, err := os.MkdirTemp("", "operatord-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	return prepareIn(t, daemon.Options{Bin: binary(t, "OPERATORD_RACE_BIN", "operatord-race"), Dir: dir, Args: args})
}

func prepareIn(t *testing.T, o daemon.Options) *env {
	t.Helper()
	o.Env = append(o.Env, "GORACE=halt_on_error=1")
	t.Parallel()
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour)
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-10*time.Second)) // time to clean up
	d := daemon.New(o)
	t.Cleanup(func() {
		cancel()
		d.Close()
		if t.Failed() {
			log := d.Log()
			t.Logf("log of the daemon:\n%s", log[max(0, len(log)-16000):])
		}
		if strings.Contains(d.Log(), "DATA RACE") {
			t.Error("the race detector found a race in the daemon")
		}
		os.RemoveAll(o.Dir)
	})
	return &env{Daemon: d, t: t, ctx: ctx}
}

// start starts a daemon and waits until it is ready.
func start(t *testing.T, args ...string) *env {
	t.Helper()
	e := prepare(t, args...)
	e.start()
	return e
}

func (e *env) start() {
	e.t.Helper()
	if err := e.Start(e.ctx); err != nil {
		e.t.Fatal(err)
	}
}

// kubectl runs the real kubectl as the administrator.
func (e *env) kubectl(args ...string) string {
	e.t.Helper()
	out, err := e.tryKubectl("", args...)
	if err != nil {
		e.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryKubectl gives it something to read, and returns all that it printed.
func (e *env) tryKubectl(stdin string, args ...string) (string, error) {
	e.t.Helper()
	cmd := e.kubectlCommand(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (e *env) kubectlCommand(args ...string) *exec.Cmd {
	e.t.Helper()
	cmd := exec.CommandContext(e.ctx, binary(e.t, "KUBECTL", "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.File("admin.kubeconfig"), "HOME="+e.Dir(), "KUBECACHEDIR="+e.t.TempDir())
	return cmd
}

// operatord runs a subcommand of the binary under test.
func (e *env) operatord(args ...string) (string, error) {
	e.t.Helper()
	out, err := exec.CommandContext(e.ctx, binary(e.t, "OPERATORD_RACE_BIN", "operatord-race"), args...).CombinedOutput()
	return string(out), err
}

// Cluster is what the tests read of one.
type Cluster struct {
	daemon.Meta
	Spec struct {
		Members     int    `json:"members"`
		RestoreFrom string `json:"restoreFrom"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Members    int    `json:"members"`
		Leader     string `json:"leader"`
		LeaderUID  string `json:"leaderUID"`
		Restored   bool   `json:"restored"`
		LastAction *struct {
			Kind, Target, Why string
		} `json:"lastAction"`
		Conditions []struct {
			Type, Status, Reason, Message string
		} `json:"conditions"`
	} `json:"status"`
}

func (c *Cluster) condition(kind string) (status, reason, message string) {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x.Status, x.Reason, x.Message
		}
	}
	return "", "", ""
}

func (c *Cluster) String() string {
	data, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Pod is what the tests read of one.
type Pod struct {
	daemon.Meta
	Status struct {
		Phase             string `json:"phase"`
		PodIP             string `json:"podIP"`
		ContainerStatuses []struct {
			ContainerID string `json:"containerID"`
			Ready       bool   `json:"ready"`
			State       struct {
				Terminated *struct {
					ExitCode int `json:"exitCode"`
				} `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// pid is the Pod's process: process://PID/START-TIME/BOOT-ID.
func (p *Pod) pid() int {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	rest, _ := strings.CutPrefix(p.Status.ContainerStatuses[0].ContainerID, "process://")
	first, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return pid
}

func clusterYAML(name string, members int, more ...string) string {
	return fmt.Sprintf("apiVersion: operatord.io/v1alpha1\nkind: Cluster\nmetadata: {name: %s, namespace: default}\nspec:\n  members: %d\n", name, members) +
		strings.Join(append([]string{""}, more...), "\n  ")
}

func (e *env) createCluster(name string, members int, more ...string) {
	e.t.Helper()
	if err := e.Create(e.ctx, clusters, clusterYAML(name, members, more...), nil); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) cluster(name string) *Cluster {
	e.t.Helper()
	var c Cluster
	if err := e.Get(e.ctx, clusters+"/"+name, &c); err != nil {
		e.t.Fatal(err)
	}
	return &c
}

// pods are the members of a Cluster, by name.
func (e *env) pods(cluster string) map[string]*Pod {
	e.t.Helper()
	var list struct{ Items []*Pod }
	if err := e.Get(e.ctx, pods+"?labelSelector=operatord.io/cluster="+cluster, &list); err != nil {
		e.t.Fatal(err)
	}
	byName := map[string]*Pod{}
	for _, p := range list.Items {
		byName[p.Metadata.Name] = p
	}
	return byName
}

func (e *env) pod(name string) *Pod {
	e.t.Helper()
	var p Pod
	if err := e.Get(e.ctx, pods+"/"+name, &p); err != nil {
		e.t.Fatal(err)
	}
	return &p
}

// until watches a Cluster until ok says yes to one of its states, each of which it sees.
func (e *env) until(name, what string, ok func(*Cluster) bool) *Cluster {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 90*time.Second)
	defer cancel()
	var last *Cluster
	found := false
	err := e.Watch(ctx, clusters+"?watch=1&fieldSelector=metadata.name="+name, func(ev daemon.Event) bool {
		c := new(Cluster)
		if err := json.Unmarshal(ev.Object, c); err != nil {
			e.t.Error(err)
			return false
		}
		last = c
		found = ev.Type != "DELETED" && ok(c)
		return !found
	})
	if !found {
		e.t.Fatalf("cluster %s: %s: %v; last seen: %s", name, what, err, last)
	}
	return last
}

// ready waits until a Cluster is as declared, with so many members.
func (e *env) ready(name string, members int) *Cluster {
	e.t.Helper()
	return e.until(name, fmt.Sprintf("Ready with %d members", members), func(c *Cluster) bool {
		return c.Status.Phase == "Ready" && c.Spec.Members == members && c.Status.Members == members
	})
}

// gone waits until an object is.
func (e *env) gone(path string) {
	e.t.Helper()
	e.eventually("gone: "+path, func() error {
		var status *daemon.StatusError
		err := e.Get(e.ctx, path, nil)
		if errors.As(err, &status) && status.Code == 404 {
			return nil
		}
		return fmt.Errorf("still there (%v)", err)
	})
}

// eventually waits for something that no watch tells.
func (e *env) eventually(what string, f func() error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 60*time.Second)
	defer cancel()
	if err := daemon.Poll(ctx, 20*time.Millisecond, f); err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
}

// dead waits until a process has ended.
func (e *env) dead(pid int) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("end of process %d", pid), func() error {
		if daemon.Alive(pid) {
			return errors.New("it is alive")
		}
		return nil
	})
}

// pids are those of a Cluster's members, by Pod; all must be alive.
func (e *env) pids(cluster string) map[string]int {
	e.t.Helper()
	pids := map[string]int{}
	for name, p := range e.pods(cluster) {
		pids[name] = p.pid()
		if !daemon.Alive(p.pid()) {
			e.t.Errorf("%s: no living process %d", name, p.pid())
		}
	}
	return pids
}

// metric reads one series.
func (e *env) metric(series string) float64 {
	e.t.Helper()
	text, err := e.Metrics(e.ctx)
	if err != nil {
		e.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				e.t.Fatalf("%s: %v", line, err)
			}
			return v
		}
	}
	e.t.Fatalf("no series %s", series)
	return 0
}

func sameKeys[V any](m map[string]V, want ...string) bool {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	slices.Sort(want)
	return slices.Equal(keys, want)
}

// output collects what a command prints while it runs.
type output struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (e *env) background(cmd *exec.Cmd) *output {
	e.t.Helper()
	o := &output{cmd: cmd}
	cmd.Stdout, cmd.Stderr = o, o
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	return o
}

// stop ends the command.
func (o *output) stop() {
	o.cmd.Process.Kill()
	o.cmd.Wait()
}
