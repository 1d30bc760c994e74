package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	storeDir       = "store"
	runDir         = "run"
	podsDir        = "pods"
)

// dataDir is a data directory that this process alone may use.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the directory if need be and takes its lock. What a predecessor said about itself is
// removed: until this daemon has written its own endpoints.json nobody should look for it there.
func openDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("daemon: make the data directory: %w", err)
	}
	if err := makePrivate(path); err != nil {
		return nil, fmt.Errorf("daemon: make the data directory private: %w", err)
	}
	d := &dataDir{path: path}
	lock, err := os.OpenFile(d.file(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("daemon: open the lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("daemon: %s is in use by another operatord (pid %s): stop that one, or give another --data-dir", path, holder(lock))
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

// makePrivate keeps everybody out whom nobody let in: 0710 is how 0700 shows when some users may pass through
// (process.Reach), and a chmod would shut them out.
func makePrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm() == 0o710 {
		return nil
	}
	return os.Chmod(path, 0o700)
}

// claim writes this process's id into the lock and removes what the last holder left behind.
func (d *dataDir) claim() error {
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("daemon: write the lock: %w", err)
	}
	if _, err := d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return fmt.Errorf("daemon: write the lock: %w", err)
	}
	for _, name := range []string{endpointsFile, socketFile} {
		if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
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

// release gives the directory up.
func (d *dataDir) release() {
	os.Remove(d.file(endpointsFile))
	d.lock.Close() // and with it the lock
}

// write replaces a file as a whole: readers see the old one or the new one. durable: the new one outlives
// a power cut from here on.
func (d *dataDir) write(name string, mode os.FileMode, data []byte, durable bool) error {
	fail := func(err error) error { return fmt.Errorf("daemon: write %s: %w", d.file(name), err) }
	tmp := d.file("." + name + ".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
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
