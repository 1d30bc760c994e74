package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// marker and the attempt's directory are in the environment of every process, so that descendants are
// known when the shim is dead and there is no cgroup.
const marker = "OPERATORD_PROCESS="

// killWait bounds how long Kill waits for what it has killed.
const killWait = 2 * time.Second

// clearLeftovers kills what has outlived its shim, and only what certainly belongs to it: the cgroup,
// or else the recorded main process (boot id, start time and, where it is known, pidfd inode match) and
// processes with its marker in their environment. nil: nothing is left.
func clearLeftovers(ctx context.Context, v view) error {
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	if v.cgroup != "" {
		if err := clearCgroup(ctx, v.cgroup); err != nil {
			return &LeftoverError{ID: v.ID, Err: err}
		}
		return removeCgroup(v.cgroup)
	}
	for {
		if ctx.Err() != nil {
			return &LeftoverError{ID: v.ID, PIDs: []int{v.PID}, Err: errors.New("new ones appear as fast as they are killed")}
		}
		found, err := findLeftovers(v)
		if err != nil {
			return &LeftoverError{ID: v.ID, PIDs: []int{v.PID}, Err: err}
		}
		if len(found) == 0 {
			return nil
		}
		if err := killAll(ctx, v.ID, found); err != nil {
			return err
		}
	}
}

func clearCgroup(ctx context.Context, dir string) error {
	alive, err := populated(dir)
	if err != nil || !alive {
		return err
	}
	events, err := unix.Open(filepath.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(events)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	for {
		if alive, err = populated(dir); err != nil || !alive {
			return err
		}
		// Signals a change since the last read as an exceptional condition.
		fds := []unix.PollFd{{Fd: int32(events), Events: unix.POLLPRI}}
		if err := poll(ctx, fds); err != nil {
			return err
		}
		if _, err := unix.Pread(events, make([]byte, 128), 0); err != nil {
			return err
		}
	}
}

// leftover is a process held by a pidfd, so that its pid can't come to mean another.
type leftover struct{ pid, fd int }

func findLeftovers(v view) ([]leftover, error) {
	pids, err := processIDs()
	if err != nil {
		return nil, err
	}
	self, want := os.Getpid(), marker+v.dir
	var found []leftover
	for _, pid := range pids {
		if pid == self || pid != v.PID && !hasEnv(pid, want) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			closeAll(found)
			return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
		}
		// Looked at again while the pidfd holds it: what matches now is what will be signalled.
		if (hasEnv(pid, want) || pid == v.PID && isMain(v, fd)) && !ended(fd) {
			found = append(found, leftover{pid, fd})
			continue
		}
		unix.Close(fd)
	}
	return found, nil
}

func hasEnv(pid int, want string) bool {
	return slices.Contains(fields0("/proc/"+strconv.Itoa(pid)+"/environ"), want)
}

// isMain tells whether the process behind a pidfd is the recorded main process. The boot was compared
// before.
func isMain(v view, fd int) bool {
	ticks, err := startTicks(v.PID)
	if err != nil || ticks != v.StartTime {
		return false
	}
	if v.inode == 0 {
		return true
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Ino == v.inode
}

// ended tells whether the process behind a pidfd is gone or a zombie.
func ended(fd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func killAll(ctx context.Context, id ID, found []leftover) error {
	defer closeAll(found)
	for _, l := range found {
		if err := unix.PidfdSendSignal(l.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return &LeftoverError{ID: id, PIDs: []int{l.pid}, Err: fmt.Errorf("kill: %w", err)}
		}
	}
	for _, l := range found {
		for !ended(l.fd) {
			if err := poll(ctx, []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}); err != nil {
				return &LeftoverError{ID: id, PIDs: []int{l.pid}, Err: err}
			}
		}
	}
	return nil
}

func closeAll(found []leftover) {
	for _, l := range found {
		unix.Close(l.fd)
	}
}

// poll waits for an event until the context's deadline, which it must have.
func poll(ctx context.Context, fds []unix.PollFd) error {
	deadline, _ := ctx.Deadline()
	for {
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			return errors.New("it was killed but has not ended yet")
		}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}
