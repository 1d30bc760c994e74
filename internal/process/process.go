// Package process runs processes that outlive the daemon: it starts each under a shim of its own, finds
// them again after a restart, signals, kills, and reads what became of them.
//
// Everything known about a process is in its attempt's directory, RUN/GROUP/NAME/ATTEMPT, written by the
// daemon before the start and by the shim afterwards (package shim names the files). Runtime keeps no
// state of its own that a kill -9 could lose: List looks at the directory again. An attempt is started at
// most once, in this daemon's life or any other's; another run of the same program is the next attempt.
// A process is alive exactly as long as its shim holds the lock in that directory.
//
// What promises what, and after which failures, is written down in docs/processes.md.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID names one attempt at running one process of a group. A group is what is started and cleared up
// together, in operatord a Pod by its uid; Name is the container's.
type ID struct {
	Group, Name string
	Attempt     int // from 0
}

// String is GROUP/NAME/ATTEMPT, which is also the directory below the run directory.
func (id ID) String() string { return id.Group + "/" + id.Name + "/" + strconv.Itoa(id.Attempt) }

// flat is the ID as one file name, GROUP.NAME.ATTEMPT.
func (id ID) flat() string { return id.Group + "." + id.Name + "." + strconv.Itoa(id.Attempt) }

func parseFlat(name string) (ID, bool) {
	group, rest, _ := strings.Cut(name, ".")
	i := strings.LastIndexByte(rest, '.')
	if i < 0 {
		return ID{}, false
	}
	n, err := strconv.Atoi(rest[i+1:])
	id := ID{Group: group, Name: rest[:i], Attempt: n}
	return id, err == nil && id.validate() == nil
}

func (id ID) compare(other ID) int {
	return cmp.Or(strings.Compare(id.Group, other.Group), strings.Compare(id.Name, other.Name), id.Attempt-other.Attempt)
}

func (id ID) validate() error {
	for _, part := range []string{id.Group, id.Name} {
		if part == "" || part[0] == '.' || len(part) > 200 || strings.ContainsAny(part, "/\x00\n") {
			return fmt.Errorf("process id %q: %q can't be a directory's name", id, part)
		}
	}
	if id.Attempt < 0 {
		return fmt.Errorf("process id %q: the attempt is negative", id)
	}
	return nil
}

// Spec says what to run.
type Spec struct {
	ID
	Owner    string   // namespace/name of what it belongs to, for people
	Revision string   // the caller's own: at which revision of its world it decided to start this
	Note     string   // the caller's own too
	Args     []string // Args[0] without a slash is looked up in the PATH of Env
	Command  string   // what messages call the program: Args[0] before variables were put in
	Env      []string // the whole environment, "NAME=value"; OPERATORD_PROCESS is added
	Secrets  []string // names of variables in Env whose values no message may tell
	Dir      string   // working directory; empty: /
	User     *User    // nil: the daemon's own
	Limits   Limits
	// LogBytes is the size at which a log file is rotated, LogFiles how many are kept. 0: 10 MiB, 5.
	LogBytes, LogFiles int
}

// User is who a process runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limits are enforced by the attempt's cgroup; zero fields limit nothing.
type Limits struct {
	MemoryBytes int64
	CPUMillis   int64 // thousandths of a CPU
	Processes   int64
}

// State says how far an attempt has come.
type State string

const (
	// Created: recorded, but never begun. Ensure starts it. With an Error a shim has tried, at Finished, and
	// could not: the disk is full, say.
	Created State = "Created"
	// Starting: the shim lives and has not yet said that the main process runs.
	Starting State = "Starting"
	// Running: the main process runs.
	Running State = "Running"
	// Exited: the main process has ended, or could not be started (Error); ExitCode says how.
	Exited State = "Exited"
	// Lost: it is over and nobody saw how: the shim was killed, or the machine went down.
	Lost State = "Lost"
)

// Process is what is known about one attempt, all of it from disk.
type Process struct {
	ID
	Owner, Revision, Note string
	State                 State

	PID       int    // of the main process, also after its end; 0 if it never ran
	StartTime uint64 // in clock ticks since boot
	BootID    string

	ExitCode int    // 128 + Signal for a death by signal
	Signal   int    // 0: it exited
	OOM      bool   // something of it was killed for want of memory
	Error    string // why it could not be started, or why it is Lost

	Started, Finished time.Time // zero: not (known)

	// Empty: nothing of it is left, neither the main process nor any descendant.
	Empty bool
	// Rebooted: it is of a time before the machine, or the container around the daemon, went down; Lost by
	// that if it was running.
	Rebooted bool
	// LogError says why its output can't be written at present; empty while it can.
	LogError string
}

// Over tells whether the main process will never run (again) in this attempt.
func (p *Process) Over() bool { return p.State == Exited || p.State == Lost }

// Listener hears of what metrics count. Any func may be nil; none may block.
type Listener struct {
	Running   func(n int) // shims alive, whenever that changes
	Adopted   func(n int) // found alive by Open
	Restarted func(ID)    // an attempt after the first was started
}

var (
	// ErrNotFound: there is no such attempt.
	ErrNotFound = errors.New("no such process")
	// ErrOver: the attempt is over, so there is nothing to signal.
	ErrOver = errors.New("the process is over")
	// ErrAlive: something of it is still running.
	ErrAlive = errors.New("the process is still alive")
)

// LeftoverError: processes that outlived their shim can't be killed, or not be told from strangers, so
// they are left alone. A person has to look.
type LeftoverError struct {
	ID   ID
	PIDs []int
	Err  error
}

func (e *LeftoverError) Error() string {
	return fmt.Sprintf("process %s: its shim is dead and %v of it may still run (%v): check with ps and kill them by hand", e.ID, e.PIDs, e.Err)
}

func (e *LeftoverError) Unwrap() error { return e.Err }
