// Package shim is the tiny parent of one process. It outlives the daemon that started it.
//
// The daemon re-executes its own binary as "operatord-shim DIR"; a package-level initialiser here takes
// over before any larger package is initialised and never returns. The shim reads DIR/spec, starts the
// main process (in the attempt's cgroup if it has one), writes down what becomes of it, pumps its output
// into size-limited files, passes on signals it is asked for, and, when the main process has ended,
// kills whatever that left behind. It imports syscall alone, which is what makes the early start work:
// Go initialises packages that are ready in order of import path, and this path sorts before "os".
//
// It speaks through files in DIR and nothing else; docs/processes.md is the protocol. The one promise
// everything rests on: DIR/lock stays locked exactly as long as the shim lives, and only the shim, which
// is the parent and therefore knows that a pid has not been reused, signals its child.
package shim

import "syscall"

// Name is the argv[0] that makes a process a shim; argv[1] is the attempt's directory and further
// arguments are for people who read ps.
const Name = "operatord-shim"

// Descriptors that the daemon hands on.
const (
	LockFD    = 3 // DIR/lock, already locked: held until this process ends
	ControlFD = 4 // DIR/control opened for reading and writing, so that commands sent early are kept
)

// Files in an attempt's directory. Each record is written whole and renamed; the exit record is synced too,
// because it is the only one that has to survive a power cut.
const (
	SpecFile     = "spec"      // by the daemon: what to run
	LockFile     = "lock"      // flock: somebody is responsible for this attempt
	ControlFile  = "control"   // FIFO: "signal N\n" to the main process, "kill\n" for everything; goes when nothing is left
	ShimFile     = "shim"      // by the shim before it starts anything
	PIDFile      = "pid"       // by the shim: the main process runs
	ExitFile     = "exit"      // by the shim: the main process has ended or could not be started
	LogFile      = "log"       // output, one line "TIME STREAM F|P TEXT" each; older ones are log.1, log.2, …
	LogErrorFile = "log.error" // present while output can't be written: why
	ErrorFile    = "shim.err"  // the shim's own standard error
)

var _ = hook()

func hook() bool {
	args := arguments()
	if len(args) < 2 || args[0] != Name {
		return false
	}
	syscall.Exit(run(args[1]))
	return true
}

// arguments reads the command line, which package os has not set up yet.
func arguments() []string {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return nil
	}
	var args []string
	start := 0
	for i := 0; i < n; i++ {
		if buf[i] == 0 {
			args = append(args, string(buf[start:i]))
			start = i + 1
		}
	}
	return args
}

// run is the shim's life. The result is its exit code, which nobody reads.
func run(dir string) int {
	if err := syscall.Chdir(dir); err != nil {
		return complain("chdir to "+dir, err)
	}
	syscall.CloseOnExec(LockFD)
	syscall.CloseOnExec(ControlFD)
	syscall.Setsid() // fails only if it leads a session already, which is as good
	settle()
	spec, err := readSpec(SpecFile)
	if err != nil {
		return complain("read "+dir+"/"+SpecFile, err)
	}
	if err := subreaper(); err != nil {
		return fail(spec, 128, "become the reaper of orphaned processes: "+err.Error())
	}
	self := syscall.Getpid()
	var r Record
	r.Add("pid", itoa(self))
	r.Add("start", startTime(self))
	// From here on this attempt counts as begun: if the shim dies now, nobody starts it a second time.
	if err := writeRecord(ShimFile, r, false); err != nil {
		return complain("write "+dir+"/"+ShimFile, err)
	}
	if err := reserve(ExitFile); err != nil {
		return complain("reserve "+dir+"/"+ExitFile, err)
	}
	return supervise(spec)
}

// supervise starts the main process and sees it and all its descendants off.
func supervise(spec *Spec) int {
	log, err := newPump(spec)
	if err != nil {
		return fail(spec, 128, "make pipes for its output: "+err.Error())
	}
	main, code, err := start(spec, log)
	if err != nil {
		return fail(spec, code, err.Error())
	}
	log.run()
	ignoreSignals()

	var r Record
	r.Add("pid", itoa(main))
	r.Add("start", startTime(main))
	r.Add("inode", pidfdInode(main))
	r.Add("boot", spec.Boot)
	r.Add("started", now())
	if err := writeRecord(PIDFile, r, false); err != nil {
		complain("write "+PIDFile, err)
	}

	g := group{cgroup: spec.Cgroup}
	commands := make(chan string)
	go readCommands(ControlFD, commands)
	exits := make(chan int)
	resume := make(chan bool)
	go awaitExits(exits, resume)

	alive, killing := true, false
	for {
		select {
		case c := <-commands:
			switch {
			case c == "kill":
				killing = true
				g.kill()
			case len(c) > 7 && c[:7] == "signal " && alive:
				// Safe: the main process is not reaped yet, so its pid is still its own.
				if n, ok := atoi(c[7:]); ok {
					if err := syscall.Kill(main, syscall.Signal(n)); err != nil {
						complain("signal "+itoa(main), err)
					}
				}
			}
		case pid := <-exits:
			if pid == 0 { // no child left, nor any descendant: they would be ours by now
				g.remove()
				log.finish()
				syscall.Unlink(ControlFile) // says that nothing is left
				return 0
			}
			if pid == main {
				// Recorded before it is reaped, so that the record is there before the pid is free.
				if err := recordExit(spec, main); err != nil {
					complain("write "+ExitFile, err)
				}
				alive, killing = false, true
				g.kill()
			}
			reap(pid)
			if killing {
				g.killChildren() // orphans of the one just reaped
			}
			resume <- true
		}
	}
}

// fail records that the main process could not be started.
func fail(spec *Spec, code int, why string) int {
	var r Record
	r.Add("code", itoa(code))
	r.Add("finished", now())
	r.Add("error", why)
	if err := writeRecord(ExitFile, r, true); err != nil {
		complain("write "+ExitFile, err)
	}
	group{cgroup: spec.Cgroup}.remove()
	syscall.Unlink(ControlFile)
	return 1
}

// complain writes to standard error, which is the attempt's shim.err.
func complain(what string, err error) int {
	syscall.Write(2, []byte(what+": "+err.Error()+"\n"))
	return 1
}
