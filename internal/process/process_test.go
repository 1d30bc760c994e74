package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// roles are what the test binary does when a test starts it again as something else.
var roles = map[string]func(args []string) int{
	"daemon": daemonRole,
	"pid1":   pid1Role,
	"reaper": reaperRole,
	"clean":  cleanRole,
}

func TestMain(m *testing.M) {
	if role := os.Getenv("PROCESS_TEST_ROLE"); role != "" {
		os.Exit(roles[role](os.Args[1:]))
	}
	os.Exit(m.Run())
}

// modes runs a test with cgroups, where they can be made, and without.
func modes(t *testing.T, test func(t *testing.T, opts Options)) {
	for _, none := range []bool{false, true} {
		name := "cgroups"
		if none {
			name = "no cgroups"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !none {
				if c := openCgroups(t.TempDir(), ""); c.base == "" {
					t.Skip("no cgroups here: " + c.why)
				} else {
					_ = unix.Rmdir(c.base)
				}
			}
			test(t, Options{NoCgroups: none})
		})
	}
}

// open opens a runtime and ends everything in it after the test.
func open(t *testing.T, dir string, opts Options) *Runtime {
	t.Helper()
	r, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer r.Close()
		all, err := r.List()
		if err != nil {
			t.Error(err)
		}
		for _, p := range all {
			if err := r.Kill(context.Background(), p.ID); err != nil {
				t.Errorf("kill %s: %v", p.ID, err)
			}
		}
		for _, p := range all {
			await(t, r, p.ID, func(p Process) bool { return p.Empty })
			if err := r.Remove(context.Background(), p.ID); err != nil {
				t.Errorf("remove %s: %v", p.ID, err)
			}
		}
		if r.cgroups.base != "" {
			if err := unix.Rmdir(r.cgroups.base); err != nil && err != unix.ENOENT {
				t.Errorf("a cgroup is left: %v", err)
			}
		}
	})
	return r
}

// await waits until a process is as wanted, woken by hints alone, so that a missing one fails the test.
func await(t *testing.T, r *Runtime, id ID, want func(Process) bool) Process {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		p, err := r.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if want(p) {
			return p
		}
		select {
		case _, ok := <-r.Changed():
			if !ok {
				t.Fatal("closed while waiting")
			}
		case <-deadline:
			t.Fatalf("still %+v", p)
		}
	}
}

func running(p Process) bool { return p.State == Running }
func empty(p Process) bool   { return p.Over() && p.Empty }

var background = context.Background()

func script(name, text string) Spec {
	return Spec{
		ID: ID{"pod-uid", name, 0}, Owner: "default/test",
		Args: []string{"/bin/sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin"},
	}
}

func ensure(t *testing.T, r *Runtime, spec Spec) Process {
	t.Helper()
	p, err := r.Ensure(background, spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func logOf(t *testing.T, r *Runtime, id ID) string {
	t.Helper()
	data, err := os.ReadFile(r.attempt(id).path(shim.LogFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRunsAndTellsHowItEnded(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		for _, c := range []struct {
			name, text   string
			code, signal int
		}{
			{"zero", "exit 0", 0, 0},
			{"three", "echo out; echo err >&2; printf 'no newline'; exit 3", 3, 0},
			{"killed", "kill -9 $$", 137, 9},
			{"terminated", "kill -15 $$", 143, 15},
			{"group", "kill -9 0", 137, 9}, // its own group, in which the shim isn't
		} {
			spec := script(c.name, c.text)
			before := time.Now().Add(-time.Second)
			ensure(t, r, spec)
			p := await(t, r, spec.ID, empty)
			if p.State != Exited || p.ExitCode != c.code || p.Signal != c.signal || p.Error != "" {
				t.Errorf("%s: %+v", c.name, p)
			}
			if p.PID == 0 || p.StartTime == 0 || p.BootID != r.boot.id || p.Owner != "default/test" {
				t.Errorf("%s: identity is missing: %+v", c.name, p)
			}
			if p.Started.Before(before) || p.Finished.Before(p.Started) || p.Finished.After(time.Now()) {
				t.Errorf("%s: times are wrong: %+v", c.name, p)
			}
			if errs, _ := os.ReadFile(r.attempt(spec.ID).path(shim.ErrorFile)); len(errs) > 0 {
				t.Errorf("%s: the shim complains: %s", c.name, errs)
			}
		}
		lines := strings.Split(logOf(t, r, ID{"pod-uid", "three", 0}), "\n")
		got := map[string]bool{}
		for _, l := range lines {
			stamp, rest, _ := strings.Cut(l, " ")
			if l == "" {
				continue
			}
			when, err := time.Parse(time.RFC3339Nano, stamp)
			if err != nil || time.Since(when) > time.Minute || time.Since(when) < 0 {
				t.Errorf("%q: time %v, error %v", l, when, err)
			}
			got[rest] = true
		}
		if !got["stdout F out"] || !got["stderr F err"] || !got["stdout P no newline"] {
			t.Errorf("log is %q", lines)
		}
	})
}

func TestSaysWhyItCouldNotStart(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Spec)
		code   int
		text   string
	}{
		"no-program": {func(s *Spec) { s.Args, s.Command = []string{"no-such-hidden"}, "no-such-$(K)" }, 127, "no program no-such-$(K) in the directories of its PATH"},
		"no-file":    {func(s *Spec) { s.Args, s.Command = []string{"/no/such/hidden"}, "/no/such/$(K)" }, 127, "execute /no/such/$(K): no such file"},
		"no-name":    {func(s *Spec) { s.Args = []string{"/no/such/hidden"} }, 127, "execute the command: no such file"},
		"not-exec":   {func(s *Spec) { s.Args, s.Command = []string{plain}, "plain" }, 126, "execute plain as user"},
		"no-dir":     {func(s *Spec) { s.Dir = "/no/such/dir" }, 128, "working directory /no/such/dir"},
	} {
		spec := script(name, "exit 0")
		c.change(&spec)
		ensure(t, r, spec)
		p := await(t, r, spec.ID, empty)
		if p.State != Exited || p.ExitCode != c.code || !strings.Contains(p.Error, c.text) || strings.Contains(p.Error, "hidden") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := r.Ensure(background, Spec{ID: ID{"a/b", "c", 0}, Args: []string{"x"}}); err == nil {
		t.Error("an id with a slash was accepted")
	}
}

// A shim that can't write its first record has begun nothing, says why, and may be tried again.
func TestShimCanNotBegin(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	spec := script("later", "exit 0")
	obstacle := filepath.Join(r.attempt(spec.ID).dir, "."+shim.ShimFile+".tmp")
	if err := os.MkdirAll(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	ensure(t, r, spec)
	p := await(t, r, spec.ID, func(p Process) bool { return p.Error != "" })
	if p.State != Created || !strings.Contains(p.Error, "is a directory") || time.Since(p.Finished) > time.Minute {
		t.Errorf("%+v", p)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	ensure(t, r, spec)
	if p := await(t, r, spec.ID, empty); p.ExitCode != 0 || p.Error != "" {
		t.Errorf("%+v", p)
	}
}

func TestEnvironmentAndWorkingDirectory(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	dir := t.TempDir()
	spec := script("env", `pwd; printf '%s\n' "$MULTI"; echo "$OPERATORD_PROCESS"; echo "args $0 $1"; env | grep -c GOMAXPROCS`)
	spec.Dir = dir
	spec.Env = append(spec.Env, "MULTI=two\nlines \\n and a backslash")
	spec.Args = append(spec.Args, "", "last arg")
	ensure(t, r, spec)
	await(t, r, spec.ID, empty)
	var got []string
	for l := range strings.Lines(logOf(t, r, spec.ID)) {
		got = append(got, strings.TrimSuffix(strings.SplitN(l, " ", 4)[3], "\n"))
	}
	want := []string{dir, "two", `lines \n and a backslash`, r.attempt(spec.ID).dir, "args  last arg", "0"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnsureNeverRunsAnAttemptTwice(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		dir := t.TempDir()
		r := open(t, dir, opts)
		count := filepath.Join(t.TempDir(), "count")
		spec := script("once", "echo x >>"+count+"; sleep 0.05")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := r.Ensure(background, spec); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		await(t, r, spec.ID, empty)
		ensure(t, r, spec) // also after its end
		again := open(t, dir, opts)
		if p := ensure(t, again, spec); p.State != Exited {
			t.Errorf("state is %s after reopening", p.State)
		}
		if data, _ := os.ReadFile(count); string(data) != "x\n" {
			t.Errorf("it ran %d times", strings.Count(string(data), "x"))
		}
	})
}

func TestSignalKillRemove(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		// TERM reaches the main process alone: its child would end with 0 otherwise.
		spec := script("main", "trap 'echo got TERM; exit 7' TERM; sleep 1000 & wait")
		p := ensure(t, r, spec)
		if p.Over() {
			t.Fatalf("%+v", p)
		}
		if err := r.Remove(background, spec.ID); !errors.Is(err, ErrAlive) {
			t.Errorf("removing a living process: %v", err)
		}
		awaitLogOrRunning(t, r, spec.ID)
		// Sent until it takes effect: the shell may not have set its trap yet when it is running.
		signalUntil(t, r, spec.ID, syscall.SIGTERM, func(p Process) bool { return p.Over() })
		p = await(t, r, spec.ID, empty)
		if p.ExitCode != 7 && p.Signal != int(syscall.SIGTERM) {
			t.Errorf("after TERM: %+v", p)
		}
		if err := r.Signal(background, spec.ID, syscall.SIGTERM); !errors.Is(err, ErrOver) {
			t.Errorf("signal to the dead: %v", err)
		}
		if err := r.Remove(background, spec.ID); err != nil {
			t.Error(err)
		}
		if _, err := r.Get(spec.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("after Remove: %v", err)
		}

		deaf := script("deaf", "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1001 & wait' & while :; do sleep 1000; done")
		ensure(t, r, deaf)
		p = await(t, r, deaf.ID, running)
		if err := r.Kill(background, deaf.ID); err != nil {
			t.Fatal(err)
		}
		p = await(t, r, deaf.ID, empty)
		if p.ExitCode != 137 || p.Signal != 9 {
			t.Errorf("after Kill: %+v", p)
		}
		if left := marked(t, r, deaf.ID); len(left) > 0 {
			t.Errorf("still running: %v", left)
		}
		if err := r.Kill(background, deaf.ID); err != nil {
			t.Errorf("killing the dead: %v", err)
		}
	})
}

func awaitLogOrRunning(t *testing.T, r *Runtime, id ID) {
	t.Helper()
	await(t, r, id, func(p Process) bool { return p.State != Created && p.State != Starting })
}

func signalUntil(t *testing.T, r *Runtime, id ID, sig syscall.Signal, done func(Process) bool) {
	t.Helper()
	if err := r.Signal(background, id, sig); err != nil && !errors.Is(err, ErrOver) {
		t.Fatal(err)
	}
	await(t, r, id, done)
}

// marked finds processes that carry an attempt's marker.
func marked(t *testing.T, r *Runtime, id ID) []int {
	t.Helper()
	found, err := findLeftovers(view{dir: r.attempt(id).dir})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(found)
	var pids []int
	for _, l := range found {
		pids = append(pids, l.pid)
	}
	return pids
}

// S64: a grandchild that holds stdout must not keep the process from being over.
func TestS64GrandchildHoldsOutput(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		spec := script("holder", "setsid sleep 1000 & echo done; exit 0")
		ensure(t, r, spec)
		p := await(t, r, spec.ID, empty)
		// A second, with room for a busy machine; held up, it would be a thousand.
		if took := time.Since(p.Finished); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if p.ExitCode != 0 || !strings.Contains(logOf(t, r, spec.ID), "stdout F done") {
			t.Errorf("%+v", p)
		}
		if left := marked(t, r, spec.ID); len(left) > 0 {
			t.Errorf("still running: %v", left)
		}
	})
}

// S68: a process never blocks on its output, its log is capped, and trouble with it is shown and passes.
func TestS68Output(t *testing.T) {
	t.Run("capped", func(t *testing.T) {
		r := open(t, t.TempDir(), Options{})
		spec := script("loud", "head -c 60000000 /dev/zero | tr '\\0' 'a' | fold -w 99; echo; echo end")
		spec.LogBytes, spec.LogFiles = 1<<20, 3
		ensure(t, r, spec)
		if p := await(t, r, spec.ID, empty); p.ExitCode != 0 || p.LogError != "" {
			t.Errorf("%+v", p)
		}
		logs, _ := filepath.Glob(r.attempt(spec.ID).path("log*"))
		total := int64(0)
		for _, l := range logs {
			st, err := os.Stat(l)
			if err != nil {
				t.Fatal(err)
			}
			if st.Size() > 1<<20 {
				t.Errorf("%s has %d bytes", l, st.Size())
			}
			total += st.Size()
		}
		if len(logs) != 3 || total < 2<<20 {
			t.Errorf("logs %v hold %d bytes", logs, total)
		}
		if !strings.HasSuffix(logOf(t, r, spec.ID), "stdout F end\n") {
			l := logOf(t, r, spec.ID)
			t.Errorf("the end is missing: %q", l[max(0, len(l)-300):])
		}
	})
	t.Run("log is a directory, then not", func(t *testing.T) {
		r := open(t, t.TempDir(), Options{})
		spec := script("blocked", "while :; do head -c 100000 /dev/zero; echo; sleep 0.01; done")
		log := r.attempt(spec.ID).path(shim.LogFile)
		if err := os.MkdirAll(filepath.Join(log, "full"), 0o755); err != nil {
			t.Fatal(err)
		}
		ensure(t, r, spec)
		p := await(t, r, spec.ID, func(p Process) bool { return p.LogError != "" && p.State == Running })
		if !strings.Contains(p.LogError, "directory") {
			t.Errorf("log error is %q", p.LogError)
		}
		if err := os.RemoveAll(log); err != nil {
			t.Fatal(err)
		}
		await(t, r, spec.ID, func(p Process) bool { return p.LogError == "" })
		if err := r.Kill(background, spec.ID); err != nil {
			t.Fatal(err)
		}
		await(t, r, spec.ID, empty)
		if l := logOf(t, r, spec.ID); !strings.Contains(l, "bytes of output could not be logged: open log") {
			t.Error("the gap isn't noted in the log")
		}
	})
	t.Run("log deleted by hand", func(t *testing.T) {
		r := open(t, t.TempDir(), Options{})
		fifo := filepath.Join(t.TempDir(), "go")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		spec := script("deleted", "echo before; cat "+fifo+"; echo after")
		ensure(t, r, spec)
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // until the script reads it
		if err != nil {
			t.Fatal(err)
		}
		await(t, r, spec.ID, running)
		if err := os.Remove(r.attempt(spec.ID).path(shim.LogFile)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if p := await(t, r, spec.ID, empty); p.LogError != "" {
			t.Errorf("%+v", p)
		}
		if l := logOf(t, r, spec.ID); !strings.Contains(l, "after") {
			t.Errorf("log is %q", l)
		}
	})
}

// A dead shim: what it left is killed, and only that; the attempt counts as lost and is not run again.
func TestShimKilled(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		spec := script("orphaned", "setsid sleep 1000 & exec sleep 1000")
		ensure(t, r, spec)
		await(t, r, spec.ID, running)
		awaitChildren(t, r, spec.ID, 2)
		rec, err := r.attempt(spec.ID).record(shim.ShimFile)
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(rec.Get("pid"))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p := await(t, r, spec.ID, func(p Process) bool { return p.State == Lost })
		if p.Empty || p.Rebooted || p.Error == "" {
			t.Errorf("%+v", p)
		}
		if p = ensure(t, r, spec); p.State != Lost {
			t.Errorf("it was started again: %+v", p)
		}
		if err := r.Remove(background, spec.ID); !errors.Is(err, ErrAlive) {
			t.Errorf("removed with leftovers: %v", err)
		}
		if err := r.Kill(background, spec.ID); err != nil {
			t.Fatal(err)
		}
		if p = await(t, r, spec.ID, empty); p.State != Lost {
			t.Errorf("%+v", p)
		}
		if left := marked(t, r, spec.ID); len(left) > 0 {
			t.Errorf("still running: %v", left)
		}
	})
}

// awaitChildren waits until n processes carry the marker. What it waits for is other processes' exec, of
// which nothing tells; it yields between looks.
func awaitChildren(t *testing.T, r *Runtime, id ID, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for len(marked(t, r, id)) < n {
		if time.Now().After(deadline) {
			t.Fatalf("%s never had %d processes", id, n)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Whoever stops a whole process tree stops the shim too; that must not keep it from being killed.
func TestKillsWhatIsStopped(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		spec := script("stopped", "exec sleep 1000")
		ensure(t, r, spec)
		p := await(t, r, spec.ID, running)
		rec, err := r.attempt(spec.ID).record(shim.ShimFile)
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(rec.Get("pid"))
		for _, pid := range []int{pid, p.PID} {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Kill(background, spec.ID); err != nil {
			t.Fatal(err)
		}
		if p := await(t, r, spec.ID, empty); p.Signal != 9 {
			t.Errorf("%+v", p)
		}
	})
}

func TestShimIgnoresTerminationSignals(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	fifo := filepath.Join(t.TempDir(), "go")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := script("steady", "cat "+fifo+" >/dev/null; kill -TERM $$; exit 5")
	ensure(t, r, spec)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, spec.ID, running)
	rec, _ := r.attempt(spec.ID).record(shim.ShimFile)
	pid, _ := strconv.Atoi(rec.Get("pid"))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE} {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	// The child inherited none of that: TERM still ends it.
	if p := await(t, r, spec.ID, empty); p.State != Exited || p.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v", p)
	}
}

// TestS65StartedByAThreadThatEnds: Pdeathsig, if anything used it, would go off when the thread that forked ends.
func TestS65StartedByAThreadThatEnds(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), Options{})
	var specs []Spec
	var ended sync.WaitGroup
	for i := range 8 {
		spec := script(fmt.Sprint("thread-", i), "exec sleep 1000")
		specs = append(specs, spec)
		ended.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if _, err := r.Ensure(background, spec); err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	for _, spec := range specs {
		await(t, r, spec.ID, running)
	}
	// A signal of the kind would have come before one that is sent now, and would have ended the process.
	for _, spec := range specs {
		if err := r.Signal(background, spec.ID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if p := await(t, r, spec.ID, empty); p.Signal != int(syscall.SIGTERM) {
			t.Errorf("%s ended by signal %d, want the one that was sent", spec.ID, p.Signal)
		}
	}
}

func TestReboot(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Options{})
	spec := script("before", "sleep 1000")
	ensure(t, r, spec)
	await(t, r, spec.ID, running)
	if err := r.Kill(background, spec.ID); err != nil {
		t.Fatal(err)
	}
	await(t, r, spec.ID, empty)
	a := r.attempt(spec.ID)
	// As the files would be after a power cut in another boot.
	data, err := os.ReadFile(a.path(shim.SpecFile))
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), r.boot.id, "11111111-1111-1111-1111-111111111111", 1))
	if err := os.WriteFile(a.path(shim.SpecFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a.path(shim.ExitFile)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(a.path(shim.ControlFile), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := r.Get(spec.ID)
	if err != nil || p.State != Lost || !p.Rebooted || !p.Empty {
		t.Errorf("%+v %v", p, err)
	}
}

func TestRefusesANewerRunDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "newer operatord") {
		t.Errorf("error is %v", err)
	}
}

func TestLimits(t *testing.T) {
	r := open(t, t.TempDir(), Options{NoCgroups: true})
	spec := script("limited", "exit 0")
	spec.Limits.MemoryBytes = 1 << 20
	if _, err := r.Ensure(background, spec); err == nil || !strings.Contains(err.Error(), "resource limits") {
		t.Errorf("a limit that can't be honoured: %v", err)
	}
	if _, err := r.Get(spec.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("it was recorded all the same: %v", err)
	}
}

// daemonRole is a daemon that starts processes, says so, and waits to be killed.
func daemonRole(args []string) int {
	r, err := Open(args[0], Options{NoCgroups: args[1] == "true"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for i, text := range args[2:] {
		spec := script(fmt.Sprintf("c%d", i), text)
		if _, err := r.Ensure(background, spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println("started")
	select {}
}

// startDaemon runs a test daemon until it has started its processes.
func startDaemon(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "PROCESS_TEST_ROLE=daemon")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 8)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "started\n" {
		t.Fatalf("the test daemon said %q, %v", line[:n], err)
	}
	return cmd
}

// S62: after kill -9 of the daemon everything is adopted with the same pids, nothing runs twice, the end
// of an adopted process is noticed with its exit code, and so is one that came while no daemon was there.
func TestS62Adoption(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		dir, work := t.TempDir(), t.TempDir()
		release := filepath.Join(work, "release")
		if err := unix.Mkfifo(release, 0o600); err != nil {
			t.Fatal(err)
		}
		texts := []string{"cat " + release + "; exit 3", "echo $$ >" + work + "/down; sleep 0.2; exit 4"}
		for range 4 {
			texts = append(texts, "echo x >>"+work+"/ran; exec sleep 1000")
		}
		daemon := startDaemon(t, append([]string{dir, strconv.FormatBool(opts.NoCgroups)}, texts...)...)
		if err := daemon.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = daemon.Wait()

		adopted := -1
		opts.Listener.Adopted = func(n int) { adopted = n }
		first := open(t, dir, opts)
		pids := map[ID]int{}
		for i := range texts {
			id := ID{"pod-uid", fmt.Sprintf("c%d", i), 0}
			p := await(t, first, id, func(p Process) bool { return p.PID != 0 })
			pids[id] = p.PID
		}
		if adopted < 5 {
			t.Errorf("adopted %d", adopted)
		}
		down := ID{"pod-uid", "c1", 0}
		if p := await(t, first, down, empty); p.ExitCode != 4 || p.State != Exited {
			t.Errorf("the one that ended with no daemon: %+v", p)
		}
		// A second start of the same attempts does nothing.
		for i, text := range texts {
			p := ensure(t, first, script(fmt.Sprintf("c%d", i), text))
			if p.PID != pids[p.ID] {
				t.Errorf("%s: pid was %d, is %d", p.ID, pids[p.ID], p.PID)
			}
		}
		// One exits by itself.
		w, err := os.OpenFile(release, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		start := time.Now()
		if p := await(t, first, ID{"pod-uid", "c0", 0}, empty); p.ExitCode != 3 {
			t.Errorf("%+v", p)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("its exit was noticed after %v", took)
		}
		// One is killed.
		if err := first.Kill(background, ID{"pod-uid", "c2", 0}); err != nil {
			t.Fatal(err)
		}
		if p := await(t, first, ID{"pod-uid", "c2", 0}, empty); p.Signal != 9 {
			t.Errorf("%+v", p)
		}
		if data, _ := os.ReadFile(work + "/ran"); strings.Count(string(data), "x") != 4 {
			t.Errorf("four programs ran %d times", strings.Count(string(data), "x"))
		}
	})
}

// S61: what has the pid of a dead process by now is left alone. It needs a pid namespace, so root.
func TestS61PidReuse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a pid namespace")
	}
	cmd := exec.Command("/proc/self/exe", t.TempDir())
	cmd.Env = append(os.Environ(), "PROCESS_TEST_ROLE=pid1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// pid1Role is a daemon as pid 1 of a pid namespace in which it can choose pids.
func pid1Role(args []string) int {
	if err := pidReuse(args[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func pidReuse(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	r, err := Open(dir, Options{NoCgroups: true})
	if err != nil {
		return err
	}
	spec := script("victim", "exec sleep 1000")
	if _, err := r.Ensure(background, spec); err != nil {
		return err
	}
	p, err := r.Get(spec.ID)
	for ; err == nil && p.State != Running; p, err = r.Get(spec.ID) {
		<-r.Changed()
	}
	if err != nil {
		return err
	}
	rec, err := r.attempt(spec.ID).record(shim.ShimFile)
	if err != nil {
		return err
	}
	shimPID, _ := strconv.Atoi(rec.Get("pid"))
	for _, pid := range []int{shimPID, p.PID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	for ; err == nil && p.State != Lost; p, err = r.Get(spec.ID) {
		<-r.Changed()
	}
	if err != nil {
		return err
	}
	// The orphan is pid 1's child by now, and the runtime's to reap. Then its pid is free.
	for syscall.Kill(p.PID, 0) != syscall.ESRCH {
		runtime.Gosched()
	}
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(p.PID-1)), 0); err != nil {
			return err
		}
		stranger := exec.Command("sleep", "1000")
		if err := stranger.Start(); err != nil {
			return err
		}
		if stranger.Process.Pid != p.PID { // a thread of ours was faster
			_ = stranger.Process.Kill()
			_ = stranger.Wait()
			continue
		}
		if err := r.Kill(background, spec.ID); err != nil {
			return err
		}
		if p, err = r.Get(spec.ID); err != nil || !p.Empty {
			return fmt.Errorf("after Kill: %+v %w", p, err)
		}
		// It must still be there to be killed.
		if ended, _ := syscall.Wait4(stranger.Process.Pid, nil, syscall.WNOHANG, nil); ended != 0 {
			return errors.New("the stranger was killed")
		}
		return stranger.Process.Kill()
	}
	return errors.New("no process got the old pid")
}

// The suite again as a user without rights, in a directory of its own.
func TestWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("is without root already")
	}
	dir, err := os.MkdirTemp("", "process-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "process.test")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.timeout=120s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestRunsAsAnotherUser(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	spec := script("user", "id -u; id -g; id -G")
	spec.User = &User{UID: 65534, GID: 65534}
	ensure(t, r, spec)
	p := await(t, r, spec.ID, empty)
	if os.Getuid() != 0 && os.Getuid() != 65534 {
		if p.ExitCode != 128 || !strings.Contains(p.Error, "run operatord as root") {
			t.Errorf("%+v", p)
		}
		return
	}
	if p.Error != "" || strings.Count(logOf(t, r, spec.ID), "stdout F 65534\n") != 3 {
		t.Errorf("%+v\n%s", p, logOf(t, r, spec.ID))
	}
}

func TestExec(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		r := open(t, t.TempDir(), opts)
		dir := t.TempDir()
		spec := script("beside", "exec sleep 1000")
		spec.Dir, spec.Env = dir, append(spec.Env, "A=b c")
		ensure(t, r, spec)
		await(t, r, spec.ID, running)
		out, code, err := r.Exec(background, spec.ID, []string{"sh", "-c", `echo "$A"; pwd >&2; exit 6`})
		if string(out) != "b c\n"+dir+"\n" || code != 6 || err != nil {
			t.Errorf("%q %d %v", out, code, err)
		}
		if _, _, err := r.Exec(background, spec.ID, []string{"no-such-program"}); err == nil || !strings.Contains(err.Error(), "no program") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		defer cancel()
		if _, _, err := r.Exec(ctx, spec.ID, []string{"sh", "-c", "sleep 1000; true"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if left := marked(t, r, spec.ID); len(left) != 1 {
			t.Errorf("running: %v", left)
		}
		if err := r.Kill(background, spec.ID); err != nil {
			t.Fatal(err)
		}
		await(t, r, spec.ID, empty)
		if _, _, err := r.Exec(background, spec.ID, []string{"true"}); !errors.Is(err, ErrOver) {
			t.Errorf("%v", err)
		}
	})
}

// BenchmarkSpawn measures from Ensure until the program runs.
func BenchmarkSpawn(b *testing.B) {
	r, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for i := 0; b.Loop(); i++ {
		spec := script("bench", "exit 0")
		spec.Args, spec.Attempt = []string{"/bin/true"}, i
		if _, err := r.Ensure(background, spec); err != nil {
			b.Fatal(err)
		}
		for {
			p, err := r.Get(spec.ID)
			if err != nil {
				b.Fatal(err)
			}
			if p.Over() && p.Empty {
				break
			}
			<-r.Changed()
		}
	}
}
