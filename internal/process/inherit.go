package process

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StartClean has this process's children inherit nothing that it was itself given by accident: open descriptors (a
// lock that its caller holds, say), ignored and blocked signals, and a umask. It keeps what it ignores
// ignored for itself. Call it first of all: where signals are blocked it executes this program anew, because
// no other way clears that in every thread. What concerns single children (priorities) is the shim's part.
func StartClean() error {
	unix.Umask(0o022)
	if err := closeOnExec(); err != nil {
		return fmt.Errorf("keep inherited descriptors from children: %w", err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("read which signals were ignored: %w", err)
	}
	// A caught signal is a default one in children. Nobody reads the channel, and nothing waits for it.
	ignored := make(chan os.Signal, 1)
	for _, s := range signalsIn(string(status), "SigIgn:") {
		if s == cancelSignal || s == setxidSignal {
			if err := setHandler(s, 0); err != nil {
				return fmt.Errorf("stop ignoring signal %d: %w", s, err)
			}
			continue
		}
		signal.Notify(ignored, s)
	}
	if len(signalsIn(string(status), "SigBlk:")) == 0 {
		return nil
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the path of this program: %w", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none uint64
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, unsafe.Sizeof(none), 0, 0); errno != 0 {
		return fmt.Errorf("unblock signals: %w", errno)
	}
	return fmt.Errorf("execute %s with no signal blocked: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}

// The C library's own signals, which its posix_spawn leaves ignored in whatever it starts. Go can't catch them, and
// nobody else sends them.
const (
	cancelSignal = syscall.Signal(32)
	setxidSignal = syscall.Signal(33)
)

// setHandler sets what the kernel does with a signal past Go: SIG_DFL is 0, SIG_IGN 1.
func setHandler(s syscall.Signal, handler uintptr) error {
	action := [8]uintptr{handler} // the kernel's struct sigaction, whatever its order after the handler
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action[0])), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// closeOnExec marks every descriptor above standard error.
func closeOnExec() error {
	if unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	fds, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return err
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// signalsIn are the signals in a mask of /proc/PID/status.
func signalsIn(status, field string) []syscall.Signal {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, field)
		if !ok {
			continue
		}
		mask, _ := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
		var set []syscall.Signal
		for n := range 64 {
			if mask&(1<<n) != 0 {
				set = append(set, syscall.Signal(n+1))
			}
		}
		return set
	}
	return nil
}
