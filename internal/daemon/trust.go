package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A data directory gives away everything: who has its authority's key or its token is its administrator, and what
// lies in run decides what is signalled and started. So nothing in it is believed unless it is this user's and
// nobody else could have changed it. The check goes as deep as operatord's own files do; members' data, which belong
// to whomever the member runs as, are nobody's business.

// own lists what operatord keeps in its directory.
var own = map[string]entry{
	lockFile:       {secret: true},
	caKeyFile:      {secret: true},
	tokenFile:      {secret: true},
	kubeconfigFile: {secret: true},
	caCertFile:     {},
	endpointsFile:  {},
	socketFile:     {},
	judgedFile:     {},
	storeDir:       {depth: everything},
	runDir:         {depth: everything},
	podsDir:        {depth: 1}, // one directory a Pod
	clustersDir:    {depth: 1}, // one directory a Cluster; members' data below
}

type entry struct {
	secret bool // nobody else may read it either
	depth  int  // how far down it is operatord's
}

const everything = 1 << 10

// lostAndFound stands in the root of a file system.
const lostAndFound = "lost+found"

// ours tells whether a directory with these names in it is operatord's, or free to become that. Its authority is
// made before anything else, so beside one a user may keep other things.
func ours(names []string) (others []string, ok bool) {
	if slices.Contains(names, caCertFile) && slices.Contains(names, caKeyFile) {
		return nil, true
	}
	for _, name := range names {
		hidden, _ := strings.CutPrefix(name, ".")
		written, temporary := strings.CutSuffix(hidden, ".tmp") // what a crash leaves of dataDir.write
		if !temporary {
			written = name
		}
		if _, known := own[written]; !known && name != lostAndFound {
			others = append(others, name)
		}
	}
	return others, len(others) == 0
}

// inspection collects what keeps a data directory from being believed.
type inspection struct {
	path   string
	acl    bool
	faults []string
	more   int // faults that aren't named
	// What helps, by the directory directly in path that it is about; the key is "" for path and what lies
	// directly in it.
	foreign, open map[string][]string
	linked        []string
}

const namedFaults = 5

func (i *inspection) fault(format string, args ...any) {
	if len(i.faults) == namedFaults {
		i.more++
		return
	}
	i.faults = append(i.faults, fmt.Sprintf(format, args...))
}

// inspect looks at the directory itself. acl: some users were let in.
func inspect(path string, st *unix.Stat_t, acl bool) *inspection {
	i := &inspection{path: path, acl: acl, foreign: map[string][]string{}, open: map[string][]string{}}
	if int(st.Uid) != os.Geteuid() {
		i.foreign[""] = append(i.foreign[""], i.path)
		i.fault("%s belongs to %s", i.path, userName(st.Uid))
	}
	if !closed(st.Mode, acl) {
		i.open[""] = append(i.open[""], i.path)
		i.fault("%s is open to others: its mode is %04o", i.path, st.Mode&0o7777)
	}
	return i
}

// closed tells whether a directory's mode keeps out everybody whom nobody let in. 0710 is how 0700 shows when some
// users may pass through (process.Reach).
func closed(mode uint32, acl bool) bool {
	return mode&0o077 == 0 || mode&0o077 == 0o010 && acl
}

// contents looks at operatord's own files. What goes away meanwhile is fine: processes of Pods live on.
func (i *inspection) contents() error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if err := i.entry(name, filepath.Join(i.path, name), own[name], 0); err != nil {
			return err
		}
	}
	return nil
}

// entry looks at one of operatord's files, and at those below it. top is the name in the data directory.
func (i *inspection) entry(top, path string, e entry, level int) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return ignoreMissing(path, err)
	}
	i.judge(top, path, &st, e, level)
	// A link of one's own may lead to another disk. What is there is judged like what it stands for.
	if level == 0 && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if err := unix.Stat(path, &st); err != nil {
			return ignoreMissing(path, err)
		}
		i.judge(top, path, &st, e, level)
	}
	if level >= e.depth || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	names, err := readNames(path)
	if err != nil {
		return ignoreMissing(path, err)
	}
	for _, name := range names {
		if err := i.entry(top, filepath.Join(path, name), e, level+1); err != nil {
			return err
		}
	}
	return nil
}

func (i *inspection) judge(top, path string, st *unix.Stat_t, e entry, level int) {
	under := top
	if level == 0 {
		under = ""
	}
	if int(st.Uid) != os.Geteuid() {
		i.foreign[under] = append(i.foreign[under], path)
		i.fault("%s belongs to %s", path, userName(st.Uid))
	}
	kind, shut := st.Mode&unix.S_IFMT, uint32(0o022)
	if e.secret {
		shut = 0o077
	}
	if kind != unix.S_IFLNK && kind != unix.S_IFSOCK && st.Mode&shut != 0 {
		i.open[under] = append(i.open[under], path)
		i.fault("%s is open to others: its mode is %04o", path, st.Mode&0o7777)
	}
	if kind == unix.S_IFREG && st.Nlink > 1 {
		i.linked = append(i.linked, path)
		i.fault("%s has another name somewhere (a hard link), by which it may be changed", path)
	}
}

// err is nil if there was no fault; otherwise it says what, and the commands that help.
func (i *inspection) err() error {
	if len(i.faults) == 0 {
		return nil
	}
	me := userName(uint32(os.Geteuid()))
	var b strings.Builder
	fmt.Fprintf(&b, "daemon: the data directory %s can't be trusted: all of it has to belong to %s, and nobody else may change it:\n", i.path, me)
	for _, f := range i.faults {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if i.more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", i.more)
	}
	b.WriteString("Whoever laid it may know its keys: give another --data-dir (with make run: DATA_DIR=…). If you laid it yourself, this takes it over:")
	if os.Geteuid() != 0 && len(i.foreign) > 0 {
		// Nothing in a directory of an ordinary user's daemon belongs to anybody else.
		fmt.Fprintf(&b, "\n  sudo chown -hR %s %s", me, quote(i.path))
	} else {
		i.cure(&b, i.foreign, "chown -h "+me, "! -user "+me)
	}
	for _, path := range i.open[""] {
		fmt.Fprintf(&b, "\n  chmod %s %s", i.shut(path), quote(path))
	}
	delete(i.open, "")
	i.cure(&b, i.open, "chmod go-w", "! -type l -perm /022")
	for _, path := range i.linked {
		fmt.Fprintf(&b, "\n  cp -p %[1]s %[2]s && mv %[2]s %[1]s", quote(path), quote(path+".copy"))
	}
	return errors.New(b.String())
}

// cure writes one command for what lies directly in the directory, and one for each tree below it.
func (i *inspection) cure(b *strings.Builder, faulty map[string][]string, command, which string) {
	if paths := faulty[""]; len(paths) > 0 {
		fmt.Fprintf(b, "\n  %s", command)
		for _, path := range paths {
			b.WriteString(" " + quote(path))
		}
	}
	for _, top := range []string{storeDir, runDir, podsDir, clustersDir} {
		if len(faulty[top]) == 0 {
			continue
		}
		depth := ""
		if e := own[top]; e.depth != everything {
			depth = " -maxdepth " + strconv.Itoa(e.depth)
		}
		fmt.Fprintf(b, "\n  find %s%s %s -exec %s {} +", quote(filepath.Join(i.path, top)+"/"), depth, which, command)
	}
}

// shut is what chmod takes to close a file that lies directly in the directory, or the directory itself.
func (i *inspection) shut(path string) string {
	switch {
	case path == i.path && i.acl:
		return "0710" // for the sake of those who were let in
	case path == i.path:
		return "0700"
	case own[filepath.Base(path)].secret:
		return "0600"
	}
	return "go-w"
}

func ignoreMissing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return fmt.Errorf("daemon: data directory: look at %s: %w", path, err)
}

func readNames(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// userName is a user's name, as chown takes it; the number where it has none.
func userName(uid uint32) string {
	id := strconv.Itoa(int(uid))
	u, err := user.LookupId(id)
	if err != nil {
		return id
	}
	return u.Username
}

// quote has a shell read a path as one word.
func quote(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@%,"
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
