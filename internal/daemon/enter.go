package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may go through, as for the kernel.
const maxLinks = 40

// entrance is a directory that was reached by a path of which each step was looked at.
type entrance struct {
	dir *os.File // O_PATH: good for *at calls
	// bendable are directories on the way whose owner, neither this user nor root, can put something else in
	// place of the next step.
	bendable []string
}

// enter goes to the directory at an absolute path, making what is missing of it 0700. It refuses a way that
// anybody could bend: through a directory that everybody may write and that isn't sticky, or through a
// symbolic link of somebody else.
func enter(path string) (*entrance, error) {
	at, err := openRoot()
	if err != nil {
		return nil, err
	}
	e := &entrance{dir: at}
	names, walked, links := split(path), "/", 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if err := e.check(walked); err != nil {
			return nil, e.fail(err)
		}
		next, st, err := openStep(int(e.dir.Fd()), name)
		if err != nil {
			return nil, e.fail(fmt.Errorf("daemon: data directory: %s: %w", filepath.Join(walked, name), err))
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			e.dir.Close()
			e.dir, walked = next, filepath.Join(walked, name)
		case unix.S_IFLNK:
			if links++; links > maxLinks {
				next.Close()
				return nil, e.fail(fmt.Errorf("daemon: data directory: %s: %w", path, unix.ELOOP))
			}
			target, err := readLink(next, st, filepath.Join(walked, name))
			next.Close()
			if err != nil {
				return nil, e.fail(err)
			}
			if filepath.IsAbs(target) {
				root, err := openRoot()
				if err != nil {
					return nil, e.fail(err)
				}
				e.dir.Close()
				e.dir, walked = root, "/"
			}
			names = append(split(target), names...)
		default:
			next.Close()
			return nil, e.fail(fmt.Errorf("daemon: data directory: %s: %w", filepath.Join(walked, name), unix.ENOTDIR))
		}
	}
	return e, nil
}

func (e *entrance) fail(err error) error {
	e.dir.Close()
	return err
}

// check looks at a directory in which the next step is going to be looked up.
func (e *entrance) check(walked string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(e.dir.Fd()), &st); err != nil {
		return fmt.Errorf("daemon: data directory: %s: %w", walked, err)
	}
	if st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("daemon: data directory: anybody can replace what is in %s, which everybody may write:\n  chmod o-w %s\nor give another --data-dir (with make run: DATA_DIR=…)", walked, quote(walked))
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		e.bendable = append(e.bendable, walked)
	}
	return nil
}

func openRoot() (*os.File, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("daemon: data directory: open /: %w", err)
	}
	return os.NewFile(uintptr(fd), "/"), nil
}

// openStep opens a name in a directory without following it, and makes a directory if there is nothing.
func openStep(at int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		if err := makeStep(at, name); err != nil {
			return nil, nil, err
		}
		fd, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, nil, hint(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), name), &st, nil
}

func makeStep(at int, name string) error {
	err := unix.Mkdirat(at, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil // by somebody else, in this moment: it is judged as what was there before
	}
	if err != nil {
		return hint(fmt.Errorf("make the directory: %w", err))
	}
	// Whatever the umask: one without the owner's own bits would shut this process out.
	return unix.Fchmodat(at, name, 0o700, 0)
}

// readLink is where a symbolic link leads, if it is this user's or root's.
func readLink(link *os.File, st *unix.Stat_t, path string) (string, error) {
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("daemon: data directory: %s is a symbolic link of %s, who can turn it to another place: give the directory itself as --data-dir (with make run: DATA_DIR=…)", path, userName(st.Uid))
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(link.Fd()), "", buf)
	if err != nil {
		return "", fmt.Errorf("daemon: data directory: read the link %s: %w", path, err)
	}
	return string(buf[:n]), nil
}

// split gives the steps of a path.
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// hint adds what helps against a file system that says no.
func hint(err error) error {
	const other = "give another --data-dir (or OPERATORD_DATA_DIR; with make run: DATA_DIR=…)"
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: mount it writable, or %s", err, other)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w for %s: %s", err, userName(uint32(os.Geteuid())), other)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: make room, or %s", err, other)
	}
	return err
}
