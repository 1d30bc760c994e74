package shim

import (
	"syscall"
	"unsafe"
)

const (
	prSetChildSubreaper = 36
	pidfsMagic          = 0x50494446
)

// pidfd_open has this number on every architecture.
const sysPidfdOpen = 434

// subreaper makes orphaned descendants children of this process.
func subreaper() error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// settle takes on what a process starts with here, whatever the daemon was given for itself: umask, priority, and no
// special standing when memory runs out. An ordinary user's daemon may not be able to raise them again.
func settle() {
	syscall.Umask(0o022)
	syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0)
	writeFile("/proc/self/oom_score_adj", "0")
}

// ignoreSignals makes the shim deaf to what a shutdown, a terminal or a closed pipe sends, because it has
// to be there when its child ends. It is called after the child was started: an ignored signal would be
// inherited.
func ignoreSignals() {
	// The kernel's struct sigaction, whatever its order after the handler: SIG_IGN and no flags.
	ignore := [8]uintptr{1}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2} {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&ignore[0])), 0, 8, 0, 0)
	}
}

// pidfdInode is what tells one process from every other since Linux 6.9; empty before that, when all
// pidfds share one inode.
func pidfdInode(pid int) string {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return ""
	}
	defer syscall.Close(int(fd))
	var fs syscall.Statfs_t
	if syscall.Fstatfs(int(fd), &fs) != nil || int64(fs.Type) != pidfsMagic {
		return ""
	}
	var st syscall.Stat_t
	if syscall.Fstat(int(fd), &st) != nil {
		return ""
	}
	return utoa(uint64(st.Ino))
}

// startTime is a process's start in clock ticks since boot; empty if there is no such process.
func startTime(pid int) string { return statField(itoa(pid), 22) }

// statField is a field of /proc/PID/stat, counted from 1 as proc(5) does; 3 and later.
func statField(pid string, field int) string {
	data, err := readFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	// The second field is a name in parentheses and may hold anything: start after the last one.
	i := len(data) - 1
	for i >= 0 && data[i] != ')' {
		i--
	}
	n := 2
	for i++; i < len(data); i++ {
		if data[i] == ' ' {
			if n++; n == field {
				end := i + 1
				for end < len(data) && data[end] != ' ' && data[end] != '\n' {
					end++
				}
				return string(data[i+1 : end])
			}
		}
	}
	return ""
}

// now is the time in microseconds since 1970.
func now() string {
	var tv syscall.Timeval
	syscall.Gettimeofday(&tv)
	return utoa(uint64(tv.Sec)*1000000 + uint64(tv.Usec))
}

func writeFile(name, text string) error {
	fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return writeAll(fd, []byte(text))
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func itoa(n int) string {
	if n < 0 {
		return "-" + utoa(uint64(-n))
	}
	return utoa(uint64(n))
}

func utoa(n uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

func atoi(s string) (int, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
