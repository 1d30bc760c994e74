package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// attempt is one attempt's directory as it is read.
type attempt struct {
	id  ID
	dir string
}

func (r *Runtime) attempt(id ID) attempt {
	return attempt{id: id, dir: filepath.Join(r.dir, id.Group, id.Name, strconv.Itoa(id.Attempt))}
}

func (a attempt) path(name string) string { return filepath.Join(a.dir, name) }

// locked tells whether a shim (or a daemon about to start one) holds the lock. It asks for a shared one,
// so that several who ask don't see each other.
func (a attempt) locked() (bool, error) {
	fd, err := unix.Open(a.path(shim.LockFile), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, fmt.Errorf("%w: open %s: %w", errDamaged, a.path(shim.LockFile), err)
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", a.path(shim.LockFile), err)
	}
	defer unix.Close(fd)
	for {
		switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err {
		case nil:
			return false, nil
		case unix.EWOULDBLOCK:
			return true, nil
		case unix.EINTR:
		default:
			return false, fmt.Errorf("flock %s: %w (does this file system know flock?)", a.path(shim.LockFile), err)
		}
	}
}

// errDamaged: a record isn't what it was written as.
var errDamaged = errors.New("its records are damaged")

// record reads one of the files; an absent one gives an empty record.
func (a attempt) record(name string) (shim.Record, error) {
	data, err := a.content(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return shim.Record{}, err
	}
	return shim.ParseRecord(data), nil
}

// content reads a file. What can't be read is damaged, unless this process lacks something at the moment.
func (a attempt) content(name string) ([]byte, error) {
	data, err := os.ReadFile(a.path(name))
	for _, passes := range []error{nil, fs.ErrNotExist, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, passes) {
			return data, err
		}
	}
	return nil, fmt.Errorf("%w: %w", errDamaged, err)
}

func (a attempt) has(name string) (bool, error) {
	_, err := os.Lstat(a.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// view is what the directory says: the public part and what Kill needs.
type view struct {
	Process
	dir    string
	alive  bool // the lock is held
	cgroup string
	inode  uint64 // of the main process's pidfd; 0: not known
}

// read looks at the directory. ErrNotFound: nothing was recorded there.
func (a attempt) read(b boot) (view, error) {
	// The lock first: records are written before it is released, so whoever sees it free sees them all.
	alive, err := a.locked()
	if err != nil {
		return view{}, err
	}
	data, err := a.content(shim.SpecFile)
	if errors.Is(err, fs.ErrNotExist) {
		return view{}, fmt.Errorf("%s: %w", a.id, ErrNotFound)
	}
	if err != nil {
		return view{}, err
	}
	spec := shim.ParseSpec(data)
	begun, err := a.has(shim.ShimFile)
	if err != nil {
		return view{}, err
	}
	self, err := a.record(shim.ShimFile)
	if err != nil {
		return view{}, err
	}
	pid, err := a.record(shim.PIDFile)
	if err != nil {
		return view{}, err
	}
	exit, err := a.record(shim.ExitFile)
	if err != nil {
		return view{}, err
	}
	logError, err := a.record(shim.LogErrorFile)
	if err != nil {
		return view{}, err
	}
	if told, err := a.has(shim.PIDFile); err != nil {
		return view{}, err
	} else if alive && told && pid.Get("pid") == "" {
		return view{}, fmt.Errorf("%w: %s names no process", errDamaged, a.path(shim.PIDFile))
	}
	v := view{dir: a.dir, alive: alive, cgroup: spec.Cgroup}
	v.Process = Process{
		ID: a.id, Owner: spec.Owner, Revision: spec.Revision, Note: spec.Note, BootID: spec.Boot,
		Started: micros(pid.Get("started")), Finished: micros(exit.Get("finished")),
		Error: exit.Get("error"), OOM: exit.Get("oom") != "", LogError: logError.Get("error"),
	}
	v.PID, _ = strconv.Atoi(pid.Get("pid"))
	v.StartTime, _ = strconv.ParseUint(pid.Get("start"), 10, 64)
	v.inode, _ = strconv.ParseUint(pid.Get("inode"), 10, 64)
	v.ExitCode, _ = strconv.Atoi(exit.Get("code"))
	v.Signal, _ = strconv.Atoi(exit.Get("signal"))

	sameBoot := alive || b.same(spec.Boot, spec.Epoch)
	v.Rebooted = !sameBoot
	switch {
	case !alive && self.Get(unrecordedKey) != "": // whether or not its shim had time to say how it ended
		v.State, v.Error = Lost, self.Get(unrecordedKey)
	case exit.Get("code") != "":
		v.State = Exited
	case alive && v.PID != 0:
		v.State = Running
	case alive:
		v.State = Starting
	case !begun:
		v.State = Created
		v.Error, v.Finished = a.complaint()
	case !sameBoot:
		v.State = Lost
		v.Error = "the machine, or the container operatord ran in, went down while it was running"
	default:
		v.State = Lost
		v.Error = "its shim was killed, so nobody saw how it ended"
		if v.cgroup == "" {
			v.Error += "; without cgroups, what it had started in a session and an environment of its own can't be told from other processes: look for it with ps"
		}
	}
	if alive {
		return v, nil
	}
	if v.State == Created || !sameBoot {
		v.Empty = true
		return v, nil
	}
	// The shim takes the FIFO away when nothing is left; killed before that, it leaves it.
	left, err := a.has(shim.ControlFile)
	if err != nil {
		return view{}, err
	}
	v.Empty = !left
	return v, nil
}

// complaint is what a shim said that ended before it had begun anything, and when; usually nothing.
func (a attempt) complaint() (string, time.Time) {
	info, err := os.Stat(a.path(shim.ErrorFile))
	if err != nil || info.Size() == 0 {
		return "", time.Time{}
	}
	said, err := os.ReadFile(a.path(shim.ErrorFile))
	if err != nil {
		return "", time.Time{}
	}
	const enough = 1024
	return "the shim could not begin: " + string(bytes.TrimSpace(said[:min(len(said), enough)])), info.ModTime()
}

func micros(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

// command writes a line to the shim's FIFO. ErrOver: nobody reads it.
func (a attempt) command(line string) error {
	fd, err := unix.Open(a.path(shim.ControlFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("%s: %w", a.id, ErrOver)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", a.path(shim.ControlFile), err)
	}
	defer unix.Close(fd)
	// Less than PIPE_BUF, so it is written whole or not at all.
	if _, err := unix.Write(fd, []byte(line)); err != nil {
		return fmt.Errorf("write %q to %s: %w", line, a.path(shim.ControlFile), err)
	}
	return nil
}
