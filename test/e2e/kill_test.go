package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"operatord.io/operatord/test/daemon"
)

// rounds is how often something is repeated: a few times in CI, as often as asked elsewhere.
func rounds(t *testing.T, usual int) int {
	t.Helper()
	value := os.Getenv("OPERATORD_ROUNDS")
	if value == "" {
		return usual
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("OPERATORD_ROUNDS=%s: %v", value, err)
	}
	return n
}

// S62, point 4: members outlive a kill -9 of the daemon with the same pids and are adopted; what died
// meanwhile is noticed, with its exit code; nothing runs twice.
func TestS62Adoption(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	e.ready("demo", 3)
	for _, name := range []string{"exits", "stays"} {
		script := `trap "exit 3" TERM; while :; do sleep 0.1; done`
		pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: main, image: host, command: [sh, -c, %q]}\n", name, script)
		if err := e.Create(e.ctx, pods, pod, nil); err != nil {
			t.Fatal(err)
		}
		e.eventually(name+" runs", func() error {
			if p := e.pod(name); p.Status.Phase != "Running" || !daemon.Alive(p.pid()) {
				return fmt.Errorf("phase %s", p.Status.Phase)
			}
			return nil
		})
	}
	before := e.pids("demo")
	exits, stays := e.pod("exits").pid(), e.pod("stays").pid()
	e.Kill()
	for name, pid := range before {
		if !daemon.Alive(pid) {
			t.Errorf("%s ended with the daemon", name)
		}
	}
	if err := syscall.Kill(exits, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	e.dead(exits)
	e.start()
	if after := e.pids("demo"); !maps.Equal(before, after) {
		t.Errorf("pids before: %v, after: %v", before, after)
	}
	e.eventually("the exit code of what ended meanwhile", func() error {
		p := e.pod("exits")
		if p.Status.Phase != "Failed" || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Terminated == nil {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		if code := p.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
		return nil
	})
	if n := e.metric("operatord_processes_adopted_total"); n != 4 {
		t.Errorf("%v processes adopted, want 4", n)
	}
	if p := e.pod("stays"); p.pid() != stays {
		t.Errorf("stays has pid %d, had %d", p.pid(), stays)
	}
	// Adopted, it is still ours: its end is noticed, and a deletion ends it.
	if err := e.Delete(e.ctx, pods+"/stays"); err != nil {
		t.Fatal(err)
	}
	e.dead(stays)
	e.gone(pods + "/stays")
	if after := e.pids("demo"); !maps.Equal(before, after) {
		t.Errorf("pids at the end: %v, were %v", after, before)
	}
}

// The way systemd stops and starts the unit: SIGTERM to the daemon alone, processes stay.
func TestOrderlyRestart(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 2)
	e.ready("demo", 2)
	before := e.pids("demo")
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		ended <- e.Watch(e.ctx, clusters+"?watch=1", func(daemon.Event) bool {
			once.Do(func() { close(opened) })
			return true
		})
	}()
	<-opened
	if err := e.Stop(); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the watch was not ended")
	}
	for name, pid := range before {
		if !daemon.Alive(pid) {
			t.Errorf("%s ended with the daemon", name)
		}
	}
	e.start()
	if after := e.pids("demo"); !maps.Equal(before, after) {
		t.Errorf("pids before: %v, after: %v", before, after)
	}
	if c := e.ready("demo", 2); c.Status.Leader != "demo-0" {
		t.Errorf("leader: %s", c.Status.Leader)
	}
}

// A second daemon on the same directory is refused and told who has it; the first goes on.
func TestSecondDaemonIsRefused(t *testing.T) {
	e := start(t)
	out, err := e.operatord("serve", "--data-dir", e.Dir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	if err == nil || !strings.Contains(out, fmt.Sprintf("pid %d", e.PID())) {
		t.Errorf("a second daemon: %v\n%s\nwant a refusal that names pid %d", err, out, e.PID())
	}
	if err := e.Get(e.ctx, "/api/v1/namespaces/default", nil); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

// writer creates and updates objects of its own and remembers what was acknowledged.
type writer struct {
	id       int
	attempts int            // so far, acknowledged or not
	acked    map[string]int // object → generation of data that was acknowledged last
	tried    map[string]int // object → generation sent last
	revision uint64         // the highest acknowledged
}

// write makes one write. An error means that its outcome is not known.
func (w *writer) write(ctx context.Context, e *env) error {
	name := fmt.Sprintf("w%d-%d", w.id, w.attempts/5)
	n := w.attempts % 5
	w.attempts++
	document := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","labels":{"writer":"%d"}},"data":{"n":"%d"}}`, name, w.id, n)
	w.tried[name] = n
	var m daemon.Meta
	var err error
	if _, there := w.acked[name]; !there {
		err = e.Create(ctx, configMaps, document, &m)
		var status *daemon.StatusError
		if errors.As(err, &status) && status.Reason == "AlreadyExists" {
			err = e.Merge(ctx, configMaps+"/"+name, fmt.Sprintf(`{"data":{"n":"%d"}}`, n), &m)
		}
	} else {
		err = e.Merge(ctx, configMaps+"/"+name, fmt.Sprintf(`{"data":{"n":"%d"}}`, n), &m)
	}
	if err != nil {
		return err
	}
	w.acked[name] = n
	revision, err := strconv.ParseUint(m.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	if revision <= w.revision {
		e.t.Errorf("%s: resourceVersion %d after %d: revisions must only grow", name, revision, w.revision)
	}
	w.revision = revision
	return nil
}

// seen is what one watcher was told, over all restarts.
type seen struct {
	mu     sync.Mutex
	last   uint64 // resourceVersion of the last event
	events int
	data   map[string]string // object → its n, by the events
}

// follow watches ConfigMaps from the last event on, again after each end, until ctx does. Each event must
// be newer than the last.
func (s *seen) follow(ctx context.Context, e *env) {
	for ctx.Err() == nil {
		s.mu.Lock()
		from := s.last
		s.mu.Unlock()
		path := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", configMaps, from)
		err := e.Watch(ctx, path, func(ev daemon.Event) bool { return s.take(e.t, ev) })
		var status *daemon.StatusError
		if errors.As(err, &status) || err != nil && strings.Contains(err.Error(), "410") {
			e.t.Errorf("the watch from %d was refused: %v", from, err)
			return
		}
		// The daemon is being killed; ask again until the next one answers.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *seen) take(t *testing.T, ev daemon.Event) bool {
	var m struct {
		daemon.Meta
		Data map[string]string
		Code int
	}
	if err := json.Unmarshal(ev.Object, &m); err != nil {
		t.Errorf("event %s: %v", ev.Object, err)
		return false
	}
	if ev.Type == "ERROR" {
		t.Errorf("the watch ended with %s", ev.Object)
		return false
	}
	revision, err := strconv.ParseUint(m.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		t.Errorf("event %s: %v", ev.Object, err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ev.Type == "BOOKMARK" {
		s.last = max(s.last, revision)
		return true
	}
	if revision <= s.last {
		t.Errorf("%s %s at %d after %d: repeated or out of order", ev.Type, m.Metadata.Name, revision, s.last)
	}
	_, known := s.data[m.Metadata.Name]
	if known == (ev.Type == "ADDED") {
		t.Errorf("%s %s: an event before it was missed or repeated", ev.Type, m.Metadata.Name)
	}
	s.last = revision
	s.events++
	s.data[m.Metadata.Name] = m.Data["n"]
	return true
}

// S10, point 4: kill -9 at random moments while clients write. Every acknowledged write is there, every
// other one is whole or absent, revisions only grow, and a watch that resumes from its last
// resourceVersion misses nothing and repeats nothing.
func TestS10KilledUnderLoad(t *testing.T) {
	e := prepare(t, "--operators", "")
	e.start()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := e.Get(e.ctx, configMaps, &list); err != nil {
		t.Fatal(err)
	}
	from, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	watcher := &seen{last: from, data: map[string]string{}}
	writers := make([]*writer, 8)
	for i := range writers {
		writers[i] = &writer{id: i, acked: map[string]int{}, tried: map[string]int{}}
	}
	for round := range rounds(t, 20) {
		killAfter := 50 + rand.IntN(400) // acknowledged writes
		killedUnderLoad(e, writers, watcher, killAfter)
		e.start()
		checkWrites(e, writers)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	// The watcher catches up with the last write, and has then been told exactly what is there.
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan struct{})
	go func() { defer close(done); watcher.follow(ctx, e) }()
	want := stored(e)
	e.eventually("the watcher has been told of everything", func() error {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		if !maps.Equal(watcher.data, want) {
			return fmt.Errorf("%d objects by %d events, %d stored", len(watcher.data), watcher.events, len(want))
		}
		return nil
	})
	cancel()
	<-done
}

// killedUnderLoad has all writers write and the watcher watch, kills the daemon after so many
// acknowledged writes, and returns when all have noticed.
func killedUnderLoad(e *env, writers []*writer, watcher *seen, killAfter int) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var group, watching sync.WaitGroup
	watching.Go(func() { watcher.follow(ctx, e) })
	acked := make(chan struct{}, killAfter)
	for _, w := range writers {
		group.Go(func() {
			for ctx.Err() == nil {
				if w.write(ctx, e) != nil {
					return
				}
				select {
				case acked <- struct{}{}:
				default:
				}
			}
		})
	}
	for range killAfter {
		select {
		case <-acked:
		case <-e.ctx.Done():
			e.t.Fatal("the writers make no progress")
		}
	}
	e.Kill()
	group.Wait()
	cancel()
	watching.Wait()
}

// stored is the data of all objects that the writers made.
func stored(e *env) map[string]string {
	e.t.Helper()
	var list struct {
		Items []struct {
			daemon.Meta
			Data map[string]string
		}
	}
	if err := e.Get(e.ctx, configMaps+"?labelSelector=writer", &list); err != nil {
		e.t.Fatal(err)
	}
	out := map[string]string{}
	for _, item := range list.Items {
		out[item.Metadata.Name] = item.Data["n"]
	}
	return out
}

// checkWrites compares what is stored with what was acknowledged and tried, and takes the outcome of
// unknown writes for known.
func checkWrites(e *env, writers []*writer) {
	e.t.Helper()
	got := stored(e)
	for _, w := range writers {
		for name, n := range w.tried {
			acked, wasAcked := w.acked[name]
			value, there := got[name]
			switch {
			case !there && !wasAcked: // never acknowledged, and absent
			case !there:
				e.t.Errorf("%s: acknowledged with n=%d, and gone", name, acked)
			case value == strconv.Itoa(n): // the last one sent, whether acknowledged or not
				w.acked[name] = n
			case wasAcked && value == strconv.Itoa(acked):
			default:
				e.t.Errorf("%s: n=%s is stored; acknowledged %d (%v), sent %d", name, value, acked, wasAcked, n)
			}
		}
	}
	for name := range got {
		if !slices.ContainsFunc(writers, func(w *writer) bool { _, ok := w.tried[name]; return ok }) {
			e.t.Errorf("%s was never written", name)
		}
	}
}

// Point 4 as a whole: everything is killed at random, and what is declared is always reached again.
func TestChaos(t *testing.T) {
	e := start(t)
	e.createCluster("demo", 3)
	e.ready("demo", 3)
	for range rounds(t, 6) {
		switch rand.IntN(4) {
		case 0: // the daemon alone
			e.Kill()
			e.start()
		case 1: // a member
			p := e.pods("demo")[fmt.Sprintf("demo-%d", rand.IntN(3))]
			if p != nil && p.pid() > 0 {
				syscall.Kill(p.pid(), syscall.SIGKILL)
			}
		case 2: // the daemon, and a member while it is away
			pids := slices.Collect(maps.Values(e.pids("demo")))
			e.Kill()
			syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL)
			e.start()
		case 3: // the data directory's log, the daemon's own file, is whole: an orderly restart
			if err := e.Stop(); err != nil {
				t.Fatal(err)
			}
			e.start()
		}
		// A member that dies again soon waits up to five minutes: that is the contract, so take it away.
		e.kubectl("delete", "cluster", "demo", "--timeout=60s")
		e.createCluster("demo", 3)
		c := e.ready("demo", 3)
		leads(e, "demo", c.Status.Leader)
		if pids := e.pids("demo"); len(pids) != 3 {
			t.Errorf("%d members", len(pids))
		}
	}
	if entries, err := os.ReadDir(e.File("clusters")); err != nil || len(entries) != 1 {
		t.Errorf("data of Clusters that are gone: %v %v", entries, err)
	}
}

// A reboot: every process is gone and the boot id is another. Everything declared runs again, and nothing
// is restored twice.
func TestReboot(t *testing.T) {
	e := start(t)
	if err := e.Create(e.ctx, backups, backup+"spec: {data: {greeting: hello}}\n", nil); err != nil {
		t.Fatal(err)
	}
	e.createCluster("demo", 3, "restoreFrom: nightly")
	c := e.ready("demo", 3)
	before := e.pods("demo")
	if err := os.WriteFile(filepath.Join(e.dataOf(c, 1), "greeting"), []byte("own"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	daemon.KillProcessesOf(e.Dir())
	rewritten := rewriteBootID(t, e.File("run"))
	if rewritten < 3 {
		t.Fatalf("the boot id stands in %d files of the run directory, want at least one a member", rewritten)
	}
	e.start()
	// The stored status says Ready until operators have looked, so wait for the processes first.
	e.eventually("every member has a new process", func() error {
		pods := e.pods("demo")
		for name, old := range before {
			p := pods[name]
			if p == nil || p.pid() == old.pid() || !daemon.Alive(p.pid()) {
				return fmt.Errorf("%s has not", name)
			}
		}
		return nil
	})
	after := e.ready("demo", 3)
	leads(e, "demo", after.Status.Leader)
	if data, err := os.ReadFile(filepath.Join(e.dataOf(c, 1), "greeting")); err != nil || string(data) != "own" {
		t.Errorf("data after the reboot: %q %v", data, err)
	}
	if n := e.metric(`operatord_actions_total{action="restore",kind="Cluster"}`); n != 0 {
		t.Errorf("%v restores after the reboot", n)
	}
}

// rewriteBootID replaces this machine's boot id in the records of the run directory.
func rewriteBootID(t *testing.T, run string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	boot := strings.TrimSpace(string(data))
	other := "00000000-1111-2222-3333-444444444444"
	n := 0
	err = filepath.WalkDir(run, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), boot) {
			return err
		}
		n++
		return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), boot, other)), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
