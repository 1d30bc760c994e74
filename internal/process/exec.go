package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"operatord.io/operatord/internal/process/shim"
)

// execOutput bounds what Exec keeps of a command's output.
const execOutput = 10 << 10

// Exec runs a command beside a running process: with its environment, user, working directory and cgroup. It
// returns what the command wrote, at most 10 KiB, and its exit code. An error says that it could not be
// run or was ended, with its process group, because ctx was. It has no shim, so it isn't adopted; with
// cgroups it never outlives the process it runs beside.
func (r *Runtime) Exec(ctx context.Context, id ID, args []string) (output []byte, code int, err error) {
	v, err := r.lookup(id)
	if err != nil {
		return nil, 0, err
	}
	if v.State != Running {
		return nil, 0, fmt.Errorf("run a command in %s: %w", id, ErrOver)
	}
	data, err := os.ReadFile(r.attempt(id).path(shim.SpecFile))
	if err != nil {
		return nil, 0, err
	}
	spec := shim.ParseSpec(data)
	cmd, done, err := command(spec, args)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	out := &head{}
	cmd.Stdout, cmd.Stderr = out, out
	pid, err := r.children.start(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil {
		return nil, 0, err
	}
	defer r.children.waited(pid)
	// Its whole group goes when time is up.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(-pid, syscall.SIGKILL) // not waited for yet: the pid is its own
		<-ended
		return out.data, 0, fmt.Errorf("%s did not end in time: %w", args[0], ctx.Err())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		if code < 0 {
			code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
		}
		return out.data, code, nil
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return out.data, 0, err
	}
	return out.data, 0, nil
}

// command prepares a command with everything a process's spec says.
func command(spec *shim.Spec, args []string) (cmd *exec.Cmd, done func(), err error) {
	path := shim.Lookup(args[0], spec.Env)
	if path == "" {
		return nil, nil, fmt.Errorf("no program %s in the directories of its PATH", args[0])
	}
	cmd = &exec.Cmd{Path: path, Args: args, Env: spec.Env, Dir: spec.Dir, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	cmd.WaitDelay = time.Second // for a grandchild that keeps the output open
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if len(cmd.Env) == 0 {
		cmd.Env = []string{""}
	}
	if spec.User != "" && os.Geteuid() == 0 {
		uid, _ := strconv.ParseUint(spec.User, 10, 32)
		gid, _ := strconv.ParseUint(spec.Group, 10, 32)
		cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		for _, g := range spec.Groups {
			n, _ := strconv.ParseUint(g, 10, 32)
			cred.Groups = append(cred.Groups, uint32(n))
		}
		cmd.SysProcAttr.Credential = cred
	}
	if spec.Cgroup == "" {
		return cmd, func() {}, nil
	}
	dir, err := os.Open(spec.Cgroup)
	if err != nil {
		return nil, nil, err
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd, func() { dir.Close() }, nil
}

// head keeps the first bytes of what is written.
type head struct{ data []byte }

func (h *head) Write(p []byte) (int, error) {
	if room := execOutput - len(h.data); room > 0 {
		h.data = append(h.data, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
