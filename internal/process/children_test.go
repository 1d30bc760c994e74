package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// As pid 1 of a container operatord reaps what a probe's command leaves behind, and nothing that somebody waits
// for. It needs a pid namespace, so root.
func TestPID1ReapsWhatProbesLeave(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a pid namespace")
	}
	cmd := exec.Command("/proc/self/exe", t.TempDir())
	cmd.Env = append(os.Environ(), "PROCESS_TEST_ROLE=reaper")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func reaperRole(args []string) int {
	if err := reapsOrphans(args[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func reapsOrphans(dir string) error {
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
	spec := script("main", "exec sleep 1000")
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
	for range 50 {
		out, code, err := r.Exec(background, spec.ID, []string{"sh", "-c", "(setsid true &) ; (setsid true &) ; echo said; exit 3"})
		if err != nil || code != 3 || string(out) != "said\n" {
			return fmt.Errorf("exec: %q, %d, %w", out, code, err)
		}
	}
	for zombies() > 0 {
		runtime.Gosched()
	}
	return nil
}

func zombies() (n int) {
	pids, err := processIDs()
	if err != nil {
		return 1
	}
	for _, pid := range pids {
		if data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && strings.Contains(string(data), ") Z 1 ") {
			n++
		}
	}
	return n
}

// A child that can't be reaped yet, as one that a tracer holds, delays nobody and is reaped later.
func TestReapingWaitsForNobody(t *testing.T) {
	c := newChildren()
	defer c.close()
	release, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer release.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid, err := c.start(func() (int, error) {
		return syscall.ForkExec("/bin/cat", []string{"cat"}, &syscall.ProcAttr{Files: []uintptr{r.Fd(), release.Fd(), release.Fd()}})
	})
	if err != nil {
		t.Fatal(err)
	}
	c.ended(pid) // it has not: it would be waited for until the pipe is closed
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	w.Close()
	for syscall.Kill(pid, 0) != syscall.ESRCH {
		runtime.Gosched()
	}
}

// What a process is started with is the same whatever operatord was itself started with.
func TestProcessesStartClean(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Fatal(err)
	}
	run, held := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "held")
	// As after nohup, in a shell that holds a lock, below something that blocks signals.
	cmd := exec.Command("/bin/sh", "-c", `umask 077; exec 9>"$2"; flock 9; trap "" HUP TSTP; `+
		`exec nice -n 7 env --block-signal=TERM --block-signal=USR1 "$0" "$1"`, "/proc/self/exe", run, held)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[3] = exe
	cmd.Env = append(os.Environ(), "PROCESS_TEST_ROLE=clean")
	cmd.Stderr = os.Stderr
	probe, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, run, Options{})
	id := ID{"pod-uid", "main", 0}
	await(t, r, id, running)
	lock, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the caller's lock outlives the daemon: %v", err)
	}
	for who, said := range map[string]string{"the process": logOf(t, r, id), "the probe": string(probe)} {
		for _, want := range []string{"SigIgn:\t0000000000000000\n", "SigBlk:\t0000000000000000\n", "umask 0022\n", "descriptors 0 1 2 3\n"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q is missing in\n%s", who, want, said)
			}
		}
	}
	if said := logOf(t, r, id); os.Geteuid() == 0 && !strings.Contains(said, "nice 0\n") {
		t.Errorf("the process: the priority is not the ordinary one:\n%s", said)
	}
}

// inherited shows what a shell was started with. ls has one descriptor for the directory it reads.
const inherited = `while read -r line; do case $line in SigIgn*|SigBlk*) echo "$line";; esac; done </proc/self/status; ` +
	`echo umask $(umask); echo nice $(nice); echo descriptors $(ls /proc/self/fd); echo end`

// cleanRole is a daemon that starts a process, runs a probe, prints what that said, and ends.
func cleanRole(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// As posix_spawn of the C library leaves it.
	if err := setHandler(cancelSignal, 1); err != nil {
		return fail(err)
	}
	if err := StartClean(); err != nil {
		return fail(err)
	}
	r, err := Open(args[0], Options{})
	if err != nil {
		return fail(err)
	}
	spec := script("main", inherited+"; exec sleep 1000")
	if _, err := r.Ensure(background, spec); err != nil {
		return fail(err)
	}
	p, err := r.Get(spec.ID)
	for ; err == nil && p.State != Running; p, err = r.Get(spec.ID) {
		<-r.Changed()
	}
	if err != nil {
		return fail(err)
	}
	for said := ""; !strings.Contains(said, "F end\n"); {
		data, err := os.ReadFile(r.attempt(spec.ID).path("log"))
		if err != nil && !os.IsNotExist(err) {
			return fail(err)
		}
		said = string(data)
	}
	out, code, err := r.Exec(background, spec.ID, []string{"sh", "-c", inherited})
	if err != nil || code != 0 {
		return fail(fmt.Errorf("exec: %q, %d, %w", out, code, err))
	}
	fmt.Printf("%s", out)
	return 0
}
