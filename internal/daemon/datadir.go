package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Names in the data directory.
const (
	lockFile       = "lock"
	endpointsFile  = "endpoints.json"
	caCertFile     = "ca.crt"
	caKeyFile      = "ca.key"
	tokenFile      = "admin.token"
	kubeconfigFile = "admin.kubeconfig"
	socketFile     = "operatord.sock"
	judgedFile     = "pods-judged-since"
	storeDir       = "store"
	runDir         = "run"
	podsDir        = "pods"
	clustersDir    = "clusters"
)

// dataDir is a data directory that this process alone may use.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the directory if need be, makes sure that it may be believed, and takes its lock. What a
// predecessor said about itself is removed: until this daemon has written its own endpoints.json nobody should
// look for it there. path is absolute.
func openDataDir(path string, log *slog.Logger) (*dataDir, error) {
	way, err := enter(path)
	if err != nil {
		return nil, err
	}
	defer way.dir.Close()
	if len(way.bendable) > 0 {
		log.Warn("others own directories above the data directory, and can put another one in its place", "data-dir", path, "theirs", way.bendable)
	}
	if err := takeOver(path, way.dir); err != nil {
		return nil, err
	}
	d := &dataDir{path: path}
	lock, err := os.OpenFile(d.file(lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, hint(fmt.Errorf("daemon: open the lock: %w", err))
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("daemon: %s is in use by another operatord (pid %s): stop that one, or give another --data-dir (with make run: DATA_DIR=…)", path, holder(lock))
		}
		return nil, fmt.Errorf("daemon: lock %s: %w", lock.Name(), err)
	}
	d.lock = lock
	if err := d.claim(); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// takeOver makes sure that the directory is operatord's, or free to become that, and this user's alone. Only one in
// which there is nothing yet is made private; any other is refused if it isn't.
func takeOver(path string, way *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(way.Fd()), &st); err != nil {
		return fmt.Errorf("daemon: data directory: %w", err)
	}
	fd, err := unix.Openat(int(way.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && int(st.Uid) != os.Geteuid() {
		return inspect(path, &st, true).err() // by its owner alone: there is more that can't be seen
	}
	if err != nil {
		return hint(fmt.Errorf("daemon: open the data directory %s: %w", path, err))
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("daemon: read the data directory: %w", err)
	}
	others, ok := ours(names)
	if !ok {
		return fmt.Errorf("daemon: %s holds other things (%s): give operatord a directory of its own, as in --data-dir %s (with make run: DATA_DIR=…)", path, some(others), quote(filepath.Join(path, "operatord")))
	}
	acl := hasACL(fd)
	empty := !slices.ContainsFunc(names, func(name string) bool { return name != lostAndFound })
	if empty && int(st.Uid) == os.Geteuid() && !closed(st.Mode, acl) {
		if err := dir.Chmod(0o700); err != nil {
			return hint(fmt.Errorf("daemon: make the data directory private: %w", err))
		}
		return nil
	}
	i := inspect(path, &st, acl)
	if err := i.contents(); err != nil {
		return err
	}
	return i.err()
}

// hasACL tells whether some users were let into the directory by name.
func hasACL(fd int) bool {
	n, err := unix.Fgetxattr(fd, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// some names the first few of many.
func some(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// claim writes this process's id into the lock and removes what the last holder left behind.
func (d *dataDir) claim() error {
	// Over what is there, so that it needs no block where the disk is full. If there is none, only the message to a
	// second daemon lacks the id.
	pid := fmt.Appendf(nil, "%d\n", os.Getpid())
	_, err := d.lock.WriteAt(pid, 0)
	if err == nil {
		err = d.lock.Truncate(int64(len(pid)))
	}
	if err != nil && !noRoom(err) {
		return fmt.Errorf("daemon: write the lock: %w", err)
	}
	for _, err := range []error{d.withdraw(), os.Remove(d.file(socketFile))} {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("daemon: remove what the last daemon left: %w", err)
		}
	}
	return nil
}

// holder is the process id in a lock that somebody else has.
func holder(lock *os.File) string {
	data, err := io.ReadAll(io.LimitReader(lock, 32))
	pid := strings.TrimSpace(string(data))
	if err != nil || pid == "" {
		return "not known yet"
	}
	return pid
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// withdraw takes endpoints.json away. Its block stays, under the name that write fills: the next daemon needs it on a
// disk that is full by then.
func (d *dataDir) withdraw() error {
	return os.Rename(d.file(endpointsFile), d.unfinished(endpointsFile))
}

// unfinished is where write puts a file together.
func (d *dataDir) unfinished(name string) string { return d.file("." + name + ".tmp") }

// release gives the directory up.
func (d *dataDir) release() {
	_ = d.withdraw() // the next holder does otherwise
	d.lock.Close()   // and with it the lock
}

// write replaces a file as a whole: readers see the old one or the new one. durable: the new one outlives
// a power cut from here on.
func (d *dataDir) write(name string, mode os.FileMode, data []byte, durable bool) error {
	fail := func(err error) error { return fmt.Errorf("daemon: write %s: %w", d.file(name), err) }
	tmp := d.unfinished(name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return fail(err)
	}
	if _, err := f.Write(data); err != nil {
		return fail(err)
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return fail(err)
	}
	if durable {
		if err := f.Sync(); err != nil {
			return fail(err)
		}
	}
	if err := os.Rename(tmp, d.file(name)); err != nil {
		return fail(err)
	}
	if !durable {
		return nil
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fail(err)
	}
	return nil
}

// noRoom says that a write failed for want of room on the disk, which may end.
func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
