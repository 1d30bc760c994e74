package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// unrecordedKey stands in the shim's record of an attempt that was found without the records it had, or with damaged
// ones: its value says so.
const unrecordedKey = "unrecorded"

// unrecorded is what runs of an attempt that the run directory doesn't know to be running: the directory, or
// part of it, was removed or put aside.
type unrecorded struct {
	owner  string     // as its shim was told; empty: the shim is gone
	shim   int        // its pid; 0: gone
	others []leftover // processes that carry the attempt's mark, the shim too
	cgroup string     // populated; empty: it has none
}

// endUnrecorded ends what runs without a record, so that nothing is ever started beside it. First it
// writes down that those attempts were begun and lost: a daemon that is killed in between, or can't end
// one of them, is left with the ordinary case of an attempt that has outlived its shim, and what was ended is
// told like the death of any other. It returns how many attempts it found.
func (r *Runtime) endUnrecorded(ctx context.Context) (int, error) {
	r.ending.Lock()
	defer r.ending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	found, err := r.findUnrecorded()
	if err != nil || len(found) == 0 {
		return 0, err
	}
	r.log.Warn("processes run without their records; they are ended (was the run directory removed or damaged?)",
		"run", r.dir, "count", len(found), "processes", slices.SortedFunc(maps.Keys(found), ID.compare))
	for id, u := range found {
		if err := r.recordLost(id, u, "it ran without its records, so it was ended: the run directory was removed or damaged"); err != nil {
			closeUnrecorded(found)
			return 0, fmt.Errorf("record that %s runs without a record: %w", id, err)
		}
	}
	recorded := slices.Collect(maps.Keys(found))
	for len(found) > 0 && ctx.Err() == nil {
		for id, u := range found {
			if err := u.kill(ctx, id); err != nil {
				r.log.Error("can't end a process without a record yet; trying again", "process", id.String(), "error", err)
			}
		}
		closeUnrecorded(found)
		if found, err = r.findUnrecorded(); err != nil {
			return 0, err
		}
	}
	defer closeUnrecorded(found)
	for _, id := range recorded {
		if found[id] != nil {
			continue // Kill goes on where this has left off
		}
		if err := os.Remove(r.attempt(id).path(shim.ControlFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		r.watch.hint(id)
	}
	return len(recorded), nil
}

// findUnrecorded looks through the processes and cgroups of this machine for those of this run directory.
func (r *Runtime) findUnrecorded() (map[ID]*unrecorded, error) {
	found := map[ID]*unrecorded{}
	of := func(id ID) *unrecorded {
		if found[id] == nil {
			found[id] = &unrecorded{}
		}
		return found[id]
	}
	data, err := os.Stat(filepath.Dir(r.dir))
	if err != nil {
		return nil, err
	}
	pids, err := processIDs()
	if err != nil {
		return nil, err
	}
	elsewhere := map[ID]bool{}
	for _, pid := range pids {
		id, owner, isShim, ok := r.belongs(pid, data)
		if !ok {
			continue
		}
		if isShim && r.movedAway(pid) {
			elsewhere[id] = true
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			closeUnrecorded(found)
			return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
		}
		// Looked at again while the pidfd holds it: what matches now is what will be signalled.
		if again, _, _, ok := r.belongs(pid, data); !ok || again != id || ended(fd) {
			unix.Close(fd)
			continue
		}
		u := of(id)
		u.others = append(u.others, leftover{pid, fd})
		if isShim {
			u.owner, u.shim = owner, pid
		}
	}
	for id, dir := range r.cgroups.populated() {
		of(id).cgroup = dir
	}
	for id, u := range found {
		known, err := r.knows(id, u)
		if err != nil {
			closeUnrecorded(found)
			return nil, err
		}
		if known || elsewhere[id] {
			closeAll(u.others)
			delete(found, id)
		}
	}
	return found, nil
}

// knows tells whether the records are true of what runs: its shim holds the lock, or has left something
// behind. Of an attempt that is over and empty a process with the mark is not told from one that came by the
// environment in another way, as a person's shell may; a shim or a populated cgroup is.
func (r *Runtime) knows(id ID, u *unrecorded) (bool, error) {
	v, err := r.attempt(id).read(r.boot)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, errDamaged):
		return false, nil
	case err != nil:
		return false, err
	case v.alive:
		return true, nil
	case u.shim != 0 || !v.Over():
		return false, nil
	}
	return !v.Empty || u.cgroup == "", nil
}

// belongs tells which attempt in this run directory a process is of: as its shim, or by the mark in its
// environment. data is the directory that the run directory lies in.
func (r *Runtime) belongs(pid int, data fs.FileInfo) (id ID, owner string, isShim, ok bool) {
	if pid == os.Getpid() {
		return ID{}, "", false, false
	}
	proc := "/proc/" + strconv.Itoa(pid)
	dir := ""
	if args := fields0(proc + "/cmdline"); len(args) >= 2 && args[0] == shim.Name {
		dir, isShim = args[1], true
		if len(args) >= 3 {
			owner = args[2]
		}
	} else {
		for _, v := range fields0(proc + "/environ") {
			if rest, found := strings.CutPrefix(v, marker); found {
				dir = rest
			}
		}
	}
	run, id, ok := parseAttemptDir(dir)
	if !ok || filepath.Base(run) != filepath.Base(r.dir) {
		return ID{}, "", false, false
	}
	// By the directory and not by its name: that may mean another one to that process, or go through a link.
	there, err := os.Stat(filepath.Join(proc, "root", filepath.Dir(run)))
	if err != nil || !os.SameFile(there, data) {
		return ID{}, "", false, false
	}
	return id, strings.TrimSuffix(owner, "/"+id.Name), isShim, true
}

// movedAway tells whether a shim's directory lies outside the directory that the run directory is in: it was
// moved with everything and belongs to whoever serves it there.
func (r *Runtime) movedAway(shim int) bool {
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(shim) + "/cwd")
	if err != nil || strings.HasSuffix(cwd, " (deleted)") {
		return false
	}
	data, err := filepath.EvalSymlinks(filepath.Dir(r.dir))
	return err == nil && !strings.HasPrefix(cwd, data+"/")
}

// replaceDamaged puts records in the place of damaged ones: that the attempt is lost. What runs of it is ended.
func (r *Runtime) replaceDamaged(id ID, cause error) error {
	r.log.Warn("the records of a process are damaged; it counts as lost", "process", id.String(), "cause", cause)
	if _, err := r.endUnrecorded(context.Background()); err != nil {
		return err
	}
	if _, err := r.attempt(id).read(r.boot); !errors.Is(err, errDamaged) {
		return err
	}
	if err := r.recordLost(id, &unrecorded{}, cause.Error()+": nobody knows how it ended"); err != nil {
		return err
	}
	return os.Remove(r.attempt(id).path(shim.ControlFile)) // nothing runs
}

// recordLost writes down that an attempt was begun and that nobody will see how it ends, and why. Of records
// that were there what can be read of the spec is kept.
func (r *Runtime) recordLost(id ID, u *unrecorded, why string) error {
	a := r.attempt(id)
	spec := &shim.Spec{Owner: u.owner, Cgroup: u.cgroup}
	if data, err := a.content(shim.SpecFile); err == nil {
		spec = shim.ParseSpec(data)
	}
	if _, err := a.read(r.boot); errors.Is(err, errDamaged) {
		if err := r.clearWay(a); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	// While it is there, something may be left.
	if err := unix.Mkfifo(a.path(shim.ControlFile), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	spec.Format, spec.Boot, spec.Epoch = shim.SpecFormat, r.boot.id, r.boot.epoch
	record := spec.Record()
	if err := replaceFile(a.path(shim.SpecFile), record.Format()); err != nil {
		return err
	}
	var begun shim.Record
	begun.Add(unrecordedKey, why)
	return replaceFile(a.path(shim.ShimFile), begun.Format())
}

// clearWay removes a damaged attempt, and what stands in the way of its directory.
func (r *Runtime) clearWay(a attempt) error {
	name := filepath.Dir(a.dir)
	for _, dir := range []string{filepath.Dir(name), name, a.dir} {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return os.Remove(dir)
		}
	}
	return r.discard(a)
}

// kill ends everything that was found. A living shim is asked, since it alone knows all its descendants.
func (u *unrecorded) kill(ctx context.Context, id ID) error {
	if u.shim != 0 && askToKill(u.shim) == nil {
		for _, l := range u.others {
			if l.pid == u.shim {
				_ = unix.PidfdSendSignal(l.fd, unix.SIGCONT, nil, 0) // somebody may have stopped it
				_ = poll(ctx, []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}})
			}
		}
	}
	if u.cgroup != "" {
		if err := clearCgroup(ctx, u.cgroup); err != nil {
			return &LeftoverError{ID: id, Err: err}
		}
	}
	return killAll(ctx, id, u.others)
}

// askToKill writes to the FIFO that a shim reads, which has no name any more.
func askToKill(pid int) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, shim.ControlFD), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("descriptor %d of %d is no FIFO", shim.ControlFD, pid)
	}
	_, err = unix.Write(fd, []byte("kill\n"))
	return err
}

func closeUnrecorded(found map[ID]*unrecorded) {
	for _, u := range found {
		closeAll(u.others)
	}
}

// parseAttemptDir takes an attempt's directory apart.
func parseAttemptDir(dir string) (run string, id ID, ok bool) {
	if !filepath.IsAbs(dir) {
		return "", ID{}, false
	}
	rest, attempt := filepath.Split(filepath.Clean(dir))
	rest, name := filepath.Split(filepath.Clean(rest))
	run, group := filepath.Split(filepath.Clean(rest))
	n, err := strconv.Atoi(attempt)
	id = ID{Group: group, Name: name, Attempt: n}
	return filepath.Clean(run), id, err == nil && id.validate() == nil
}

// fields0 reads a file of fields that end in a zero byte, as /proc has them; none if it can't be read.
func fields0(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
}

// processIDs lists the processes of this machine.
func processIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
