package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// recorder keeps every state of one Cluster that a watcher is told of.
type recorder struct {
	states []*Cluster
	done   chan struct{}
}

// record follows a Cluster from now until last says that a state is the last one.
func (e *env) record(name string, last func(*Cluster) bool) *recorder {
	e.t.Helper()
	r := &recorder{done: make(chan struct{})}
	from := e.cluster(name).Metadata.ResourceVersion
	go func() {
		defer close(r.done)
		e.Watch(e.ctx, clusters+"?watch=1&resourceVersion="+from+"&fieldSelector=metadata.name="+name, func(ev daemon.Event) bool {
			c := new(Cluster)
			if err := json.Unmarshal(ev.Object, c); err != nil {
				e.t.Error(err)
				return false
			}
			r.states = append(r.states, c)
			return !last(c)
		})
	}()
	return r
}

// elections are the leaders of a Cluster's states, without repeats in a row.
func (r *recorder) elections() []string {
	<-r.done
	var out []string
	for _, c := range r.states {
		if uid := c.Status.LeaderUID; uid != "" && (len(out) == 0 || out[len(out)-1] != uid) {
			out = append(out, uid)
		}
	}
	return out
}

func (r *recorder) phases() []string {
	<-r.done
	var out []string
	for _, c := range r.states {
		if p := c.Status.Phase; len(out) == 0 || out[len(out)-1] != p {
			out = append(out, p)
		}
	}
	return out
}

// dataOf is the directory of a member's data.
func (e *env) dataOf(c *Cluster, ordinal int) string {
	return e.File(filepath.Join("clusters", c.Metadata.UID, fmt.Sprint(ordinal)))
}

// mark leaves a file in each member's data.
func (e *env) mark(c *Cluster, members int) {
	e.t.Helper()
	for i := range members {
		if err := os.WriteFile(filepath.Join(e.dataOf(c, i), "mark"), fmt.Append(nil, i), 0o644); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *env) marked(c *Cluster, members int) {
	e.t.Helper()
	for i := range members {
		if data, err := os.ReadFile(filepath.Join(e.dataOf(c, i), "mark")); err != nil || string(data) != fmt.Sprint(i) {
			e.t.Errorf("data of member %d: %q %v", i, data, err)
		}
	}
}

// Point 2: kill -9 of a member that doesn't lead.
func TestMemberKilled(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	e.mark(c, 3)
	before := e.pods("demo")
	r := e.record("demo", func(c *Cluster) bool { return c.Status.Phase == "Ready" })
	if err := syscall.Kill(before["demo-2"].pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := r.phases(); !slices.Equal(got, []string{"Degraded", "Ready"}) {
		t.Errorf("phases: %v, want Degraded, Ready", got)
	}
	if got := r.elections(); len(got) != 1 || got[0] != c.Status.LeaderUID {
		t.Errorf("elections: %v; the leader had not been touched", got)
	}
	after := e.pods("demo")
	if after["demo-2"].Metadata.UID == before["demo-2"].Metadata.UID {
		t.Error("demo-2 is the Pod that died")
	}
	for _, name := range []string{"demo-0", "demo-1"} {
		if after[name].pid() != before[name].pid() {
			t.Errorf("%s was restarted", name)
		}
	}
	e.pids("demo")
	e.marked(c, 3)
}

// Point 2: kill -9 of the leader: another one, exactly once, and the old one doesn't take the lead back.
func TestLeaderKilled(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	e.mark(c, 3)
	before := e.pods("demo")
	r := e.record("demo", func(c *Cluster) bool { return c.Status.Phase == "Ready" })
	if err := syscall.Kill(before["demo-0"].pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := r.phases(); !slices.Equal(got, []string{"Degraded", "Ready"}) {
		t.Errorf("phases: %v, want Degraded, Ready", got)
	}
	if got, want := r.elections(), []string{c.Status.LeaderUID, before["demo-1"].Metadata.UID}; !slices.Equal(got, want) {
		t.Errorf("elections: %v, want %v", got, want)
	}
	actions := []string{}
	for _, s := range r.states {
		if a := s.Status.LastAction; a != nil {
			if x := a.Kind + " " + a.Target; len(actions) == 0 || actions[len(actions)-1] != x {
				actions = append(actions, x)
			}
		}
	}
	if at := slices.Index(actions, "elect demo-1"); at < 0 || !slices.Contains(actions[at:], "create demo-0") {
		t.Errorf("actions: %v, want elect demo-1 before create demo-0", actions)
	}
	after := e.ready("demo", 3)
	if after.Status.Leader != "demo-1" {
		t.Errorf("leader: %s, want demo-1 to keep the lead", after.Status.Leader)
	}
	leads(e, "demo", "demo-1")
	e.marked(c, 3)
	if n := e.metric(`operatord_actions_total{action="elect",kind="Cluster"}`); n != 2 {
		t.Errorf("%v elections counted, want 2", n)
	}
	if n := e.metric(`operatord_repair_duration_seconds_count{kind="Cluster"}`); n != 1 {
		t.Errorf("%v repairs counted, want 1", n)
	}
}

// leads checks that exactly one Pod has the leader's label.
func leads(e *env, cluster, want string) {
	e.t.Helper()
	var leaders []string
	for name, p := range e.pods(cluster) {
		if p.Metadata.Labels["operatord.io/role"] == "leader" {
			leaders = append(leaders, name)
		}
	}
	if !slices.Equal(leaders, []string{want}) {
		e.t.Errorf("Pods labelled leader: %v, want %s alone", leaders, want)
	}
}

// Point 2: all at once.
func TestAllMembersKilled(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	e.mark(c, 3)
	pids := e.pids("demo")
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	e.until("demo", "Degraded", func(c *Cluster) bool { return c.Status.Phase == "Degraded" })
	after := e.ready("demo", 3)
	leads(e, "demo", after.Status.Leader)
	for name, pid := range e.pids("demo") {
		if pid == pids[name] {
			t.Errorf("%s still claims the process that was killed", name)
		}
	}
	e.marked(c, 3)
}

// Point 2: grows and shrinks one at a time, the leader last.
func TestScaling(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	for _, members := range []int{5, 2, 11} {
		previous := e.cluster("demo").Status.Members
		r := e.record("demo", func(c *Cluster) bool { return c.Status.Phase == "Ready" && c.Status.Members == members })
		e.kubectl("patch", "cluster", "demo", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"members":%d}}`, members))
		<-r.done
		for _, s := range r.states {
			if n := s.Status.Members; n > previous && members < previous || n < previous && members > previous {
				t.Errorf("on the way from %d to %d members: %d", previous, members, n)
			}
		}
		after := e.ready("demo", members)
		if after.Status.LeaderUID != c.Status.LeaderUID {
			t.Errorf("with %d members the leader is %s: it went while another could have", members, after.Status.Leader)
		}
		var want []string
		for i := range members {
			want = append(want, fmt.Sprintf("demo-%d", i))
		}
		e.eventually("the Pods are "+strings.Join(want, " "), func() error {
			if got := e.pods("demo"); !sameKeys(got, want...) {
				return fmt.Errorf("%d Pods", len(got))
			}
			return nil
		})
	}
	e.kubectl("scale", "cluster", "demo", "--replicas=1")
	e.ready("demo", 1)
}

// Point 2: a leader that hangs is replaced, and two never lead.
func TestLeaderHangs(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	c := e.ready("demo", 3)
	hung := e.pod("demo-0").pid()
	r := e.record("demo", func(x *Cluster) bool {
		return x.Status.LeaderUID != c.Status.LeaderUID && x.Status.Phase == "Ready"
	})
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := r.elections(); len(got) != 2 {
		t.Errorf("elections: %v, want one", got[1:])
	}
	e.dead(hung)
	leads(e, "demo", e.ready("demo", 3).Status.Leader)
}

// Point 2: delete removes members, processes (grandchildren included) and data.
func TestDelete(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 2,
		`template:`,
		`  spec:`,
		`    containers:`,
		`    - {name: main, image: host, command: [sh, -c, "sleep 1000 & setsid sleep 1001 & wait"]}`)
	c := e.ready("demo", 2)
	if n := len(daemon.ProcessesOf(e.Dir())); n < 6 {
		t.Fatalf("%d processes of two members, want at least a shell and two sleeps each", n)
	}
	e.kubectl("delete", "cluster", "demo", "--timeout=60s")
	e.gone(clusters + "/demo")
	if pods := e.pods("demo"); len(pods) != 0 {
		t.Errorf("Pods are left: %v", pods)
	}
	e.eventually("no process is left", func() error {
		if pids := daemon.ProcessesOf(e.Dir()); len(pids) > 0 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
	if _, err := os.Stat(e.File(filepath.Join("clusters", c.Metadata.UID))); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}
