package process

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroups makes a cgroup of its own for each attempt, below that of the daemon. A fresh one each time:
// what is born into a cgroup after cgroup.kill dies at birth.
type cgroups struct {
	base string // empty: there are none to be had
	why  string // why not
}

// openCgroups finds out whether cgroups of version 2 with cgroup.kill (Linux 5.14) can be made, in the
// unified hierarchy or beside version 1. Without them processes run all the same.
func openCgroups(runDir, parent string) cgroups {
	if parent == "" {
		var err error
		if parent, err = ownCgroup(); err != nil {
			return cgroups{why: err.Error()}
		}
	}
	h := fnv.New64a()
	h.Write([]byte(runDir))
	base := filepath.Join(parent, fmt.Sprintf("operatord-%016x", h.Sum64()))
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return cgroups{why: err.Error()}
	}
	if err := unix.Access(filepath.Join(base, "cgroup.kill"), unix.W_OK); err != nil {
		return cgroups{why: fmt.Sprintf("%s/cgroup.kill: %v (Linux 5.14 or later is needed)", base, err)}
	}
	if err := unix.Access(filepath.Join(parent, "cgroup.procs"), unix.W_OK); err != nil {
		return cgroups{why: fmt.Sprintf("%s/cgroup.procs: %v", parent, err)}
	}
	// Limits need the controllers to be handed down. Where the daemon itself sits in the parent the
	// kernel refuses (but for the root); make then reports a limit it can't set.
	for _, dir := range []string{parent, base} {
		for _, controller := range []string{"+memory", "+cpu", "+pids"} {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0)
		}
	}
	return cgroups{base: base}
}

// ownCgroup is the directory of the daemon's cgroup in the version 2 hierarchy. A daemon that a service
// manager put into a subgroup named "daemon" (systemd's DelegateSubgroup=) owns the cgroup above it.
func ownCgroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	path := ""
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = rest
		}
	}
	if path == "" {
		return "", errors.New("no cgroup of version 2 in /proc/self/cgroup")
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE OPTIONS
		head, tail, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(head)
		if !strings.HasPrefix(tail, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		rel, err := filepath.Rel(fields[3], path)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		dir := filepath.Join(fields[4], rel)
		if filepath.Base(dir) == "daemon" {
			dir = filepath.Dir(dir)
		}
		return dir, nil
	}
	return "", errors.New("no cgroup2 file system is mounted")
}

// limits tells which limits can be set: those of the controllers that are handed down.
func (c cgroups) limits() (memory, cpu, processes bool) {
	data, err := os.ReadFile(filepath.Join(c.base, "cgroup.subtree_control"))
	if c.base == "" || err != nil {
		return false, false, false
	}
	handed := strings.Fields(string(data))
	return slices.Contains(handed, "memory"), slices.Contains(handed, "cpu"), slices.Contains(handed, "pids")
}

// populated gives the cgroups in which something lives, by attempt.
func (c cgroups) populated() map[ID]string {
	found := map[ID]string{}
	if c.base == "" {
		return found
	}
	names, err := subdirectories(c.base)
	if err != nil {
		return found
	}
	for _, name := range names {
		dir := filepath.Join(c.base, name)
		id, ok := parseFlat(name)
		if alive, err := populated(dir); ok && err == nil && alive {
			found[id] = dir
		}
	}
	return found
}

// make makes the attempt's cgroup; empty without cgroups. A limit that can't be set is an error.
func (c cgroups) make(id ID, limits Limits) (string, error) {
	if c.base == "" {
		if limits != (Limits{}) {
			return "", fmt.Errorf("%s: no resource limits without cgroups (%s); leave the limits out or run operatord where it may make cgroups", id, c.why)
		}
		return "", nil
	}
	dir := filepath.Join(c.base, id.flat())
	if err := removeCgroup(dir); err != nil { // of an attempt that was never begun
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a cgroup for %s: %w", id, err)
	}
	for _, l := range []struct {
		file  string
		value int64
		text  string
	}{
		{"memory.max", limits.MemoryBytes, strconv.FormatInt(limits.MemoryBytes, 10)},
		{"cpu.max", limits.CPUMillis, fmt.Sprintf("%d 100000", limits.CPUMillis*100)},
		{"pids.max", limits.Processes, strconv.FormatInt(limits.Processes, 10)},
	} {
		if l.value <= 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, l.file), []byte(l.text), 0); err != nil {
			_ = os.Remove(dir)
			return "", fmt.Errorf("limit %s of %s: %w (the cgroup controller isn't handed down to operatord: see docs/processes.md)", l.file, id, err)
		}
	}
	return dir, nil
}

// close takes the common cgroup away if nothing runs in it any more; the next daemon makes it again.
func (c cgroups) close() {
	if c.base != "" {
		_ = unix.Rmdir(c.base)
	}
}

// removeCgroup removes an empty cgroup and those the process made below it.
func removeCgroup(dir string) error {
	if dir == "" {
		return nil
	}
	err := unix.Rmdir(dir)
	if err == unix.EBUSY { // sub-cgroups: deepest first
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			err = unix.Rmdir(dirs[i])
		}
	}
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// populated tells whether anything lives in a cgroup or below.
func populated(dir string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return strings.Contains(string(data), "populated 1"), err
}
