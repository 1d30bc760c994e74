package shim

import (
	"syscall"
	"unsafe"
)

// failure is a start error in words.
type failure string

func (f failure) Error() string { return string(f) }

// start forks and executes the main process. On an error, code is the exit code that a shell or a
// container runtime gives for it. Errors name the program as it was declared: the path that came of it may hold a
// secret, and so may the PATH.
func start(spec *Spec, log *pump) (pid, code int, err error) {
	program := orDefault(spec.Command, "the command")
	path := Lookup(spec.Args[0], spec.Env)
	if path == "" {
		return 0, 127, failure("no program " + program + " in the directories of its PATH")
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return 0, 128, failure("working directory " + dir + ": " + err.Error())
	}
	sys := &syscall.SysProcAttr{
		Setsid: true, // a group of its own: what it sends to its own group must not reach the shim
	}
	if spec.User != "" {
		cred, err := credential(spec)
		if err != nil {
			return 0, 128, err
		}
		sys.Credential = cred
	}
	if spec.Cgroup != "" {
		fd, err := syscall.Open(spec.Cgroup, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return 0, 128, failure("open cgroup " + spec.Cgroup + ": " + err.Error())
		}
		defer syscall.Close(fd)
		sys.UseCgroupFD, sys.CgroupFD = true, fd
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, 128, failure("open /dev/null: " + err.Error())
	}
	defer syscall.Close(null)
	pid, err = syscall.ForkExec(path, spec.Args, &syscall.ProcAttr{
		Dir:   dir,
		Env:   spec.Env,
		Files: []uintptr{uintptr(null), uintptr(log.childOut), uintptr(log.childErr)},
		Sys:   sys,
	})
	log.closeChildEnds()
	switch {
	case err == nil:
		return pid, 0, nil
	case err == syscall.ENOENT:
		return 0, 127, failure("execute " + program + ": no such file or directory (for a script: is its interpreter there?)")
	case err == syscall.EACCES || err == syscall.ENOEXEC:
		return 0, 126, failure("execute " + program + " as user " + orDefault(spec.User, "of the daemon") + " in " + dir + ": " + err.Error())
	}
	return 0, 128, failure("execute " + program + ": " + err.Error())
}

// Lookup finds a program in the PATH of the environment it is going to have; empty: there is none. A name with a
// slash is taken as it is.
func Lookup(name string, env []string) (path string) {
	for i := 0; i < len(name); i++ {
		if name[i] == '/' {
			return name
		}
	}
	search := ""
	for _, e := range env {
		if len(e) > 5 && e[:5] == "PATH=" {
			search = e[5:]
		}
	}
	if search == "" {
		search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	start := 0
	for i := 0; i <= len(search); i++ {
		if i < len(search) && search[i] != ':' {
			continue
		}
		if dir := search[start:i]; dir != "" && name != "" {
			full := dir + "/" + name
			var st syscall.Stat_t
			if syscall.Stat(full, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o111 != 0 {
				return full
			}
		}
		start = i + 1
	}
	return ""
}

func credential(spec *Spec) (*syscall.Credential, error) {
	uid, ok := atoi(spec.User)
	if !ok {
		return nil, failure("user id " + spec.User + " is no number")
	}
	gid, ok := atoi(orDefault(spec.Group, "0"))
	if !ok {
		return nil, failure("group id " + spec.Group + " is no number")
	}
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, g := range spec.Groups {
		n, ok := atoi(g)
		if !ok {
			return nil, failure("group id " + g + " is no number")
		}
		cred.Groups = append(cred.Groups, uint32(n))
	}
	// Without the right to change users the present one is fine if it is the one that is wanted.
	if syscall.Geteuid() != 0 {
		if uid != syscall.Geteuid() {
			return nil, failure("run as user " + spec.User + ": operatord runs as user " + itoa(syscall.Geteuid()) +
				", which may not change users; run operatord as root or leave runAsUser out")
		}
		if len(spec.Groups) == 0 {
			cred.NoSetGroups = true
		}
		cred.Gid = uint32(syscall.Getegid())
	}
	return cred, nil
}

// siginfo is as much of siginfo_t as waitid's callers need. It is 128 bytes everywhere.
type siginfo struct {
	signo, errno, code int32
	_                  int32
	pid, uid, status   int32
	_                  [100]byte
}

const (
	pAll    = 0
	pPID    = 1
	wExited = 4
	wNoWait = 0x01000000

	cldExited = 1
)

// awaitExits reports each child that has ended, without reaping it, and goes on when told; 0 says that
// no child is left.
func awaitExits(exits chan<- int, resume <-chan bool) {
	for {
		var si siginfo
		switch err := waitid(pAll, 0, &si, wExited|wNoWait); err {
		case nil:
			exits <- int(si.pid)
			<-resume
		case syscall.EINTR:
		default:
			exits <- 0
			return
		}
	}
}

func waitid(kind, id int, si *siginfo, options int) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, uintptr(kind), uintptr(id), uintptr(unsafe.Pointer(si)), uintptr(options), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// recordExit writes down how the main process ended. It is still a zombie then.
func recordExit(spec *Spec, pid int) error {
	var si siginfo
	for {
		err := waitid(pPID, pid, &si, wExited|wNoWait)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			return err
		}
	}
	var r Record
	if si.code == cldExited {
		r.Add("code", itoa(int(si.status)))
	} else {
		r.Add("code", itoa(128+int(si.status)))
		r.Add("signal", itoa(int(si.status)))
	}
	r.Add("finished", now())
	if spec.Cgroup != "" && oomKilled(spec.Cgroup) {
		r.Add("oom", "1")
	}
	return writeRecord(ExitFile, r, true)
}

func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// readCommands gives each line that arrives on the control FIFO.
func readCommands(fd int, commands chan<- string) {
	buf := make([]byte, 256)
	line := make([]byte, 0, 64)
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			complain("read "+ControlFile, err)
			return
		}
		for _, c := range buf[:n] {
			if c != '\n' {
				if len(line) < cap(line) {
					line = append(line, c)
				}
				continue
			}
			commands <- string(line)
			line = line[:0]
		}
	}
}
