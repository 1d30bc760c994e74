package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// Ensure starts an attempt unless that was done before, by whomever, and tells how it stands. Never two:
// the lock is taken before anything is looked at and is handed on to the shim across fork and exec, so
// that at no moment an attempt that may run looks free; and an attempt once begun is never begun again.
//
// It returns when the shim was started, usually in state Starting: that the program can't be executed
// shows later, as Exited with an Error.
func (r *Runtime) Ensure(ctx context.Context, spec Spec) (Process, error) {
	if err := spec.validate(); err != nil {
		return Process{}, err
	}
	if len(spec.Args) == 0 {
		return Process{}, fmt.Errorf("%s: there is no command to run", spec.ID)
	}
	r.busy.lock(spec.ID)
	defer r.busy.unlock(spec.ID)
	if err := ctx.Err(); err != nil {
		return Process{}, err
	}
	a := r.attempt(spec.ID)
	v, err := a.read(r.boot)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Process{}, err
	}
	if err == nil && v.State != Created {
		return v.Process, nil
	}
	// What runs is never started a second time, whatever became of its records.
	views, err := r.views(spec.Group)
	if err != nil {
		return Process{}, err
	}
	if r.watch.misses(spec.Group, views) {
		ended, err := r.endUnrecorded(ctx)
		if err != nil {
			return Process{}, err
		}
		if ended > 0 {
			return Process{}, fmt.Errorf("start %s: %w without its records, so it is ended first", spec.ID, ErrAlive)
		}
	}
	if err := r.start(a, spec); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", spec.ID, err)
	}
	if spec.Attempt > 0 && r.listener.Restarted != nil {
		r.listener.Restarted(spec.ID)
	}
	v, err = a.read(r.boot)
	return v.Process, err
}

func (r *Runtime) start(a attempt, spec Spec) error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	lock, err := unix.Open(a.path(shim.LockFile), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", a.path(shim.LockFile), err)
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w (does another operatord use this run directory?)", a.path(shim.LockFile), err)
	}
	cgroup, err := r.cgroups.make(spec.ID, spec.Limits)
	if err != nil {
		return err
	}
	record := spec.record(a, r.boot, cgroup).Record()
	if err := replaceFile(a.path(shim.SpecFile), record.Format()); err != nil {
		return err
	}
	if err := unix.Mkfifo(a.path(shim.ControlFile), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", a.path(shim.ControlFile), err)
	}
	control, err := unix.Open(a.path(shim.ControlFile), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", a.path(shim.ControlFile), err)
	}
	defer unix.Close(control)
	return r.spawn(a, spec, lock, control)
}

// spawn executes this program again as the shim.
func (r *Runtime) spawn(a attempt, spec Spec, lock, control int) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	stderr, err := unix.Open(a.path(shim.ErrorFile), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", a.path(shim.ErrorFile), err)
	}
	defer unix.Close(stderr)
	pidfd := -1
	args := []string{shim.Name, a.dir, spec.Owner + "/" + spec.Name}
	pid, err := r.children.start(func() (int, error) {
		return syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
			Dir: "/",
			Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=single"},
			// In the order of shim.LockFD and shim.ControlFD.
			Files: []uintptr{uintptr(null), uintptr(null), uintptr(stderr), uintptr(lock), uintptr(control)},
			Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
		})
	})
	if err != nil {
		return fmt.Errorf("execute the shim (/proc/self/exe): %w", err)
	}
	r.watch.spawned(a.id, pid, pidfd)
	return nil
}

// record is the spec as the shim reads it.
func (s Spec) record(a attempt, b boot, cgroup string) *shim.Spec {
	rec := &shim.Spec{
		Format: shim.SpecFormat, Owner: s.Owner, Revision: s.Revision, Note: s.Note, Args: s.Args, Dir: s.Dir,
		Command: s.Command, Secrets: s.Secrets,
		Env:    append(s.Env[:len(s.Env):len(s.Env)], marker+a.dir),
		Cgroup: cgroup, Boot: b.id, Epoch: b.epoch,
	}
	if s.LogBytes > 0 {
		rec.LogBytes = strconv.Itoa(s.LogBytes)
	}
	if s.LogFiles > 0 {
		rec.LogFiles = strconv.Itoa(s.LogFiles)
	}
	if s.User != nil {
		rec.User, rec.Group = strconv.Itoa(int(s.User.UID)), strconv.Itoa(int(s.User.GID))
		for _, g := range s.User.Groups {
			rec.Groups = append(rec.Groups, strconv.Itoa(int(g)))
		}
	}
	return rec
}

// replaceFile writes a file so that readers see all of it or what was before. It isn't synced: a power cut
// ends what runs, and an attempt of which nothing is known then starts afresh. Only the shim's exit record
// must survive one.
func replaceFile(path string, data []byte) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
