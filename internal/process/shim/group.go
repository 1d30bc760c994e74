package shim

import "syscall"

// group is everything that came from the main process: its cgroup where there is one, and in any case
// the shim's children, to which orphaned descendants are added because the shim is their subreaper.
type group struct{ cgroup string }

// kill ends all of it with SIGKILL. It may take a moment and, without a cgroup, further calls of
// killChildren as orphans arrive.
func (g group) kill() {
	if g.cgroup != "" {
		if err := writeFile(g.cgroup+"/cgroup.kill", "1"); err != nil {
			complain("kill cgroup "+g.cgroup, err)
		}
	}
	g.killChildren()
}

// killChildren kills the shim's present children. They are not reaped yet, so their pids are theirs.
func (g group) killChildren() {
	self := itoa(syscall.Getpid())
	fd, err := syscall.Open("/proc", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		complain("open /proc", err)
		return
	}
	defer syscall.Close(fd)
	buf := make([]byte, 8192)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		var names []string
		_, _, names = syscall.ParseDirent(buf[:n], -1, names)
		for _, name := range names {
			pid, ok := atoi(name)
			if ok && statField(name, 4) == self {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// remove takes the empty cgroup away. The daemon does it too, later, should this fail.
func (g group) remove() {
	if g.cgroup != "" {
		syscall.Rmdir(g.cgroup)
	}
}

// oomKilled tells whether the kernel killed something in the cgroup for want of memory.
func oomKilled(cgroup string) bool {
	data, err := readFile(cgroup + "/memory.events")
	if err != nil {
		return false
	}
	const key = "\noom_kill "
	for i := 0; i+len(key) < len(data); i++ {
		if string(data[i:i+len(key)]) == key {
			return data[i+len(key)] != '0'
		}
	}
	return false
}
