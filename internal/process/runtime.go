package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"operatord.io/operatord/internal/process/shim"
)

// layoutVersion is the version of the run directory that this code writes. It reads this and, once there
// are any, older ones.
const layoutVersion = 1

// Options of Open. The zero value is usable.
type Options struct {
	Log      *slog.Logger
	Listener Listener
	// CgroupParent is where cgroups are made; empty: below the daemon's own.
	CgroupParent string
	// NoCgroups runs processes without cgroups even where they could be made.
	NoCgroups bool
}

// Runtime runs processes recorded in one directory. Its methods are safe for concurrent use; two
// Runtimes must not be open on one directory (the daemon's lock on its data directory sees to that).
type Runtime struct {
	dir      string
	log      *slog.Logger
	listener Listener
	boot     boot
	cgroups  cgroups
	busy     keyed
	ending   sync.Mutex // one endUnrecorded at a time
	children *children
	watch    *watcher
}

// Open takes the run directory over, making it if need be: what runs there is watched again. It refuses
// a directory that a newer operatord has written.
func Open(dir string, opts Options) (*Runtime, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{dir: dir, log: opts.Log, listener: opts.Listener}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	if err := r.checkVersion(); err != nil {
		return nil, err
	}
	if r.boot, err = readBoot(); err != nil {
		return nil, err
	}
	if opts.NoCgroups {
		r.cgroups.why = "they are switched off"
	} else {
		r.cgroups = openCgroups(dir, opts.CgroupParent)
	}
	if r.cgroups.base == "" {
		r.log.Info("processes run without cgroups", "why", r.cgroups.why)
	}
	if err := os.RemoveAll(filepath.Join(dir, trash)); err != nil {
		return nil, fmt.Errorf("clear the run directory: %w", err)
	}
	r.children = newChildren()
	if r.watch, err = newWatcher(r); err != nil {
		r.children.close()
		return nil, err
	}
	if _, err := r.endUnrecorded(context.Background()); err != nil {
		_ = r.Close()
		return nil, err
	}
	if err := r.sweepEmpty(); err != nil {
		_ = r.Close()
		return nil, err
	}
	processes, err := r.views("")
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	adopted := 0
	for _, v := range processes {
		if v.alive {
			adopted++
			r.watch.adopt(v.ID)
		}
	}
	if adopted > 0 {
		r.log.Info("adopted processes that were running", "count", adopted)
	}
	if r.listener.Adopted != nil {
		r.listener.Adopted(adopted)
	}
	return r, nil
}

// checkVersion reads or writes the file that says by which layout the directory was written.
func (r *Runtime) checkVersion() error {
	path := filepath.Join(r.dir, "version")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return replaceFile(path, []byte(strconv.Itoa(layoutVersion)+"\n"))
	}
	if err != nil {
		return fmt.Errorf("read the run directory's version: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || version < 1 {
		return fmt.Errorf("%s holds %q instead of a version: is %s a run directory?", path, data, r.dir)
	}
	if version > layoutVersion {
		return fmt.Errorf("%s: the run directory was written by a newer operatord (version %d, this one knows %d): run that one", path, version, layoutVersion)
	}
	return nil
}

// Cgroups tells whether processes get cgroups, and if not, why.
func (r *Runtime) Cgroups() (ok bool, why string) { return r.cgroups.base != "", r.cgroups.why }

// CanLimit tells which limits can be set on this machine. Ensure refuses others.
func (r *Runtime) CanLimit() (memory, cpu, processes bool) { return r.cgroups.limits() }

// Close stops watching. Everything that runs goes on running.
func (r *Runtime) Close() error {
	r.watch.close()
	r.children.close()
	r.cgroups.close()
	return nil
}

// Changed gives the ID of a process of which something has changed: it runs, has ended, is gone
// altogether, or its log broke. Hints for one ID coalesce while nobody receives; Get and List tell the rest.
// The channel is closed by Close.
func (r *Runtime) Changed() <-chan ID { return r.watch.changed }

// Get reads one attempt. ErrNotFound if there is none.
func (r *Runtime) Get(id ID) (Process, error) {
	if err := id.validate(); err != nil {
		return Process{}, err
	}
	v, err := r.attempt(id).read(r.boot)
	return v.Process, err
}

// List reads all attempts from the run directory, in order of group, name and attempt.
func (r *Runtime) List() ([]Process, error) { return r.processes("") }

// Group reads all attempts of one group, in order of name and attempt.
func (r *Runtime) Group(group string) ([]Process, error) {
	if err := (ID{Group: group, Name: "x"}).validate(); err != nil {
		return nil, err
	}
	return r.processes(group)
}

func (r *Runtime) processes(group string) ([]Process, error) {
	views, err := r.views(group)
	if err == nil && r.watch.misses(group, views) {
		// The directory was removed under this daemon.
		if _, err = r.endUnrecorded(context.Background()); err == nil {
			views, err = r.views(group)
		}
	}
	processes := make([]Process, len(views))
	for i, v := range views {
		processes[i] = v.Process
	}
	return processes, err
}

// views reads one group's attempts, or all if group is empty.
func (r *Runtime) views(group string) ([]view, error) {
	groups := []string{group}
	if group == "" {
		var err error
		if groups, err = subdirectories(r.dir); err != nil {
			return nil, err
		}
	}
	var found []view
	for _, g := range groups {
		names, err := subdirectories(filepath.Join(r.dir, g))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			attempts, err := subdirectories(filepath.Join(r.dir, g, name))
			if err != nil {
				return nil, err
			}
			start := len(found)
			for _, a := range attempts {
				n, err := strconv.Atoi(a)
				if err != nil {
					continue // not ours
				}
				at := r.attempt(ID{g, name, n})
				v, err := at.read(r.boot)
				if errors.Is(err, errDamaged) {
					if err := r.replaceDamaged(at.id, err); err != nil {
						return nil, err
					}
					v, err = at.read(r.boot)
				}
				if errors.Is(err, ErrNotFound) {
					continue // made, but a crash came before the spec
				}
				if err != nil {
					return nil, err
				}
				found = append(found, v)
			}
			slices.SortFunc(found[start:], func(a, b view) int { return a.Attempt - b.Attempt })
		}
	}
	return found, nil
}

// sweepEmpty removes what a kill between making an attempt's directory and recording it left behind, and
// directories of groups and names without any attempt.
func (r *Runtime) sweepEmpty() error {
	groups, err := subdirectories(r.dir)
	if err != nil {
		return err
	}
	for _, g := range groups {
		names, err := subdirectories(filepath.Join(r.dir, g))
		if err != nil {
			return err
		}
		for _, name := range names {
			attempts, err := subdirectories(filepath.Join(r.dir, g, name))
			if err != nil {
				return err
			}
			for _, a := range attempts {
				n, err := strconv.Atoi(a)
				if err != nil {
					continue // not ours
				}
				at := r.attempt(ID{g, name, n})
				if recorded, err := at.has(shim.SpecFile); err != nil {
					return err
				} else if recorded {
					continue
				}
				if err := r.discard(at); err != nil {
					return err
				}
			}
			_ = os.Remove(filepath.Join(r.dir, g, name)) // fails unless it is empty, as it should
		}
		_ = os.Remove(filepath.Join(r.dir, g))
	}
	return nil
}

// subdirectories gives a directory's subdirectories in order, without hidden ones; none if it is absent.
func subdirectories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the run directory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Signal sends a signal to the main process. ErrOver: it has ended; ErrNotFound: there was none.
func (r *Runtime) Signal(_ context.Context, id ID, sig syscall.Signal) error {
	v, err := r.lookup(id)
	if err != nil {
		return err
	}
	if !v.alive || v.Over() {
		return fmt.Errorf("%s: %w", id, ErrOver)
	}
	return r.command(id, "signal "+strconv.Itoa(int(sig))+"\n")
}

// command has a living shim do something.
func (r *Runtime) command(id ID, line string) error {
	err := r.attempt(id).command(line)
	if err == nil {
		r.watch.wakeShim(id)
	}
	return err
}

// Kill ends everything in an attempt with SIGKILL. While its shim lives it only asks for that, and Changed
// tells when it is done; without the shim it kills what is left itself and waits a moment for it. nil for
// an attempt that is over and empty.
func (r *Runtime) Kill(ctx context.Context, id ID) error {
	v, err := r.lookup(id)
	if err != nil {
		return err
	}
	if v.Empty {
		return nil
	}
	if v.alive {
		err := r.command(id, "kill\n")
		if errors.Is(err, ErrOver) { // it has ended in this moment
			return nil
		}
		return err
	}
	r.busy.lock(id)
	defer r.busy.unlock(id)
	if err := clearLeftovers(ctx, v); err != nil {
		return err
	}
	// As the shim does when nothing is left.
	if err := os.Remove(r.attempt(id).path(shim.ControlFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.watch.hint(id)
	return nil
}

// Remove forgets an attempt: its records, logs and cgroup. ErrAlive while something of it lives; nil if
// there is none.
func (r *Runtime) Remove(_ context.Context, id ID) error {
	if err := id.validate(); err != nil {
		return err
	}
	r.busy.lock(id)
	defer r.busy.unlock(id)
	a := r.attempt(id)
	v, err := a.read(r.boot)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if v.alive || err == nil && !v.Empty {
		return fmt.Errorf("remove %s: %w: kill it first", id, ErrAlive)
	}
	if err := removeCgroup(v.cgroup); err != nil {
		return err
	}
	return r.discard(a)
}

// trash is where directories go to be removed: out of sight at once, so that a crash in the middle
// leaves no half attempt behind.
const trash = ".trash"

func (r *Runtime) discard(a attempt) error {
	if err := os.MkdirAll(filepath.Join(r.dir, trash), 0o700); err != nil {
		return err
	}
	gone := filepath.Join(r.dir, trash, a.id.flat())
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := os.Rename(a.dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The last attempt takes the directories above with it; others keep them in place.
	_ = os.Remove(filepath.Dir(a.dir))
	_ = os.Remove(filepath.Dir(filepath.Dir(a.dir)))
	return os.RemoveAll(gone)
}

func (r *Runtime) lookup(id ID) (view, error) {
	if err := id.validate(); err != nil {
		return view{}, err
	}
	return r.attempt(id).read(r.boot)
}

// keyed is a mutex for each ID.
type keyed struct {
	mu   sync.Mutex
	held map[ID]*entry
}

type entry struct {
	mu   sync.Mutex
	uses int
}

func (k *keyed) lock(id ID) {
	k.mu.Lock()
	e := k.held[id]
	if e == nil {
		e = &entry{}
		if k.held == nil {
			k.held = map[ID]*entry{}
		}
		k.held[id] = e
	}
	e.uses++
	k.mu.Unlock()
	e.mu.Lock()
}

func (k *keyed) unlock(id ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.held[id]
	if e.uses--; e.uses == 0 {
		delete(k.held, id)
	}
	e.mu.Unlock()
}
