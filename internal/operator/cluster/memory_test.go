package cluster

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// memory is a disk that knows what was synced: at a power cut, a directory may forget what happened in it since
// its last sync. Its fuse makes it die after so many operations, as kill -9 would.
type memory struct {
	mu      sync.Mutex // of everything below, against copies beside the operator
	root    *node
	fuse    *fuse
	renames []rename // since somebody last took them
	// turns, if there are any, let one file each be copied.
	turns chan struct{}
	full  bool // nothing new can be made
	made  int  // nodes with a time of their own
}

// rename is one that happened: what it put where, and whether that was on disk.
type rename struct {
	from, to      string
	files         map[string]string
	over, durable bool
}

// fuse counts what a process may still do. Everything after that fails: the process is dead.
type fuse struct {
	mu   sync.Mutex
	left int
	dead chan struct{} // closed when somebody cuts it
}

var errKilled = errors.New("killed")

func newFuse() *fuse { return &fuse{left: unkillable, dead: make(chan struct{})} }

// cut kills what waits for its turn too.
func (f *fuse) cut() {
	f.set(0)
	close(f.dead)
}

func (f *fuse) set(left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = left
}

func (f *fuse) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left > 0
}

func (f *fuse) burn() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left <= 0 {
		return errKilled
	}
	f.left--
	return nil
}

const unkillable = 1 << 30

type node struct {
	mode    fs.FileMode
	data    string // of a file; the target of a link
	entries map[string]*node
	synced  map[string]*node // entries as a power cut leaves them
	time    int              // when it was put there
}

func newDir(mode fs.FileMode) *node {
	return &node{mode: fs.ModeDir | mode, entries: map[string]*node{}, synced: map[string]*node{}}
}

func newMemory() *memory {
	m := &memory{root: newDir(0o755), fuse: newFuse()}
	m.seed("/data", "")
	return m
}

// seed makes a file or, with a name that ends in a slash or no content, a directory, with its parents, durably.
func (m *memory) seed(name, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	parts := strings.Split(strings.Trim(name, "/"), "/")
	for i, part := range parts {
		next := n.entries[part]
		if next == nil {
			next = newDir(0o755)
			if i == len(parts)-1 && content != "" {
				next = &node{mode: 0o600, data: content}
			}
			n.entries[part] = next
		}
		n.synced[part] = next
		n = next
	}
}

// cut is a power cut: of each directory the un-synced part is lost if lose says so.
func (m *memory) cut(lose func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.root.cut(lose)
}

func (n *node) cut(lose func() bool) {
	if !n.mode.IsDir() {
		return
	}
	if !maps.Equal(n.entries, n.synced) && lose() {
		n.entries = maps.Clone(n.synced)
	}
	n.synced = maps.Clone(n.entries)
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		n.entries[name].cut(lose)
	}
}

// exists tells whether something is at a path.
func (m *memory) exists(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at(name) != nil
}

// put makes a file in a directory, or replaces it, durably. It tells whether the directory is there.
func (m *memory) put(dir, base, content string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.at(dir)
	if d == nil {
		return false
	}
	m.made++
	d.entries[base] = &node{mode: 0o600, data: content, time: m.made}
	d.synced[base] = d.entries[base]
	return true
}

// lose removes a directory as a person does; false if it isn't there.
func (m *memory) lose(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at(name) == nil {
		return false
	}
	dir, base := m.at(path.Dir(name)), path.Base(name)
	delete(dir.entries, base)
	delete(dir.synced, base)
	return true
}

// fill leaves no room on the disk, or makes some.
func (m *memory) fill(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// pipe puts a pipe into a directory, or takes it away.
func (m *memory) pipe(dir string, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at(dir).entries, "pipe")
	if there {
		m.at(dir).entries["pipe"] = &node{mode: fs.ModeNamedPipe}
	}
}

// at finds a path; nil if nothing is there. mu is held.
func (m *memory) at(name string) *node {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part != "" {
			if n == nil || !n.mode.IsDir() {
				return nil
			}
			n = n.entries[part]
		}
	}
	return n
}

// tree lists what is below a path, files with their contents.
func (m *memory) tree(name string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(name)
}

// list is tree while mu is held.
func (m *memory) list(name string) map[string]string {
	out := map[string]string{}
	var walk func(string, *node)
	walk = func(at string, n *node) {
		if !n.mode.IsDir() {
			out[at] = n.data
			return
		}
		for name, entry := range n.entries {
			walk(path.Join(at, name), entry)
		}
	}
	if n := m.at(name); n != nil {
		walk("", n)
	}
	return out
}

// durable tells whether a path, and all that is below it, would survive a power cut.
func (m *memory) durable(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.kept(name)
	return n != nil && n.durable()
}

// keeps tells whether a path itself would survive a power cut, whatever becomes of what is below it.
func (m *memory) keeps(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept(name) != nil
}

// kept is at for what would survive a power cut. mu is held.
func (m *memory) kept(name string) *node {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		next := n.entries[part]
		if next == nil || n.synced[part] != next {
			return nil
		}
		n = next
	}
	return n
}

func (n *node) durable() bool {
	if !n.mode.IsDir() {
		return true
	}
	for _, entry := range n.entries {
		if !entry.durable() {
			return false
		}
	}
	return maps.Equal(n.entries, n.synced)
}

func (m *memory) parent(op, name string) (*node, string, error) {
	if err := m.fuse.burn(); err != nil {
		return nil, "", err
	}
	dir := m.at(path.Dir(name))
	if dir == nil || !dir.mode.IsDir() {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return dir, path.Base(name), nil
}

// add makes a new entry.
func (m *memory) add(op, name string, n *node) error {
	dir, base, err := m.parent(op, name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	}
	if m.full {
		return &fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
	}
	dir.entries[base] = n
	return nil
}

func (m *memory) Lstat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("lstat", name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && dir.entries[base] == nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	return info{base, dir.entries[base]}, nil
}

func (m *memory) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fuse.burn(); err != nil {
		return nil, err
	}
	n := m.at(name)
	if n == nil || !n.mode.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	var out []fs.DirEntry
	for base, entry := range n.entries {
		out = append(out, fs.FileInfoToDirEntry(info{base, entry}))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return out, nil
}

func (m *memory) Readlink(string) (string, error)     { return "", errors.New("there are no links here") }
func (m *memory) Resolve(name string) (string, error) { return path.Clean(name), m.fuse.burn() }

func (m *memory) Mkdir(name string, mode fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add("mkdir", name, newDir(mode))
}

func (m *memory) Symlink(target, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add("symlink", name, &node{mode: fs.ModeSymlink, data: target})
}

func (m *memory) Write(name string, data []byte, mode fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add("write", name, &node{mode: mode, data: string(data)})
}

func (m *memory) Copy(step func() error, from, to string, mode fs.FileMode) error {
	if m.turns != nil {
		select {
		case <-m.turns:
		case <-m.fuse.dead:
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.at(from)
	if n == nil {
		return &sourceError{&fs.PathError{Op: "open", Path: from, Err: fs.ErrNotExist}}
	}
	return cmp.Or(step(), m.add("copy", to, &node{mode: mode, data: n.data}))
}

func (m *memory) Chown(string, int, int) error { return m.fuse.burn() }

func (m *memory) Sync(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fuse.burn(); err != nil {
		return err
	}
	n := m.at(name)
	if n == nil {
		return &fs.PathError{Op: "sync", Path: name, Err: fs.ErrNotExist}
	}
	n.synced = maps.Clone(n.entries)
	return nil
}

func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("rename", from)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	if n == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if there := m.at(to); there != nil && len(there.entries) > 0 {
		return &fs.PathError{Op: "rename", Path: to, Err: syscall.ENOTEMPTY}
	}
	m.renames = append(m.renames, rename{from, to, m.list(from), m.at(to) != nil, n.durable()})
	delete(dir.entries, base)
	m.at(path.Dir(to)).entries[path.Base(to)] = n
	return nil
}

// RemoveAll goes entry by entry: a kill leaves half.
func (m *memory) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removeAll(name)
}

func (m *memory) removeAll(name string) error {
	n := m.at(name)
	if n == nil {
		return m.fuse.burn()
	}
	if n.mode.IsDir() {
		for _, base := range slices.Sorted(maps.Keys(n.entries)) {
			if err := m.removeAll(path.Join(name, base)); err != nil {
				return err
			}
		}
	}
	dir, base, err := m.parent("remove", name)
	if err == nil {
		delete(dir.entries, base)
	}
	return err
}

type info struct {
	name string
	*node
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.data)) }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return start.Add(time.Duration(i.time)) }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
