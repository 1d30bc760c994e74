package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// laid is a data directory as a daemon leaves it, with one of each kind of file.
func laid(t *testing.T) string {
	t.Helper()
	path := private(t)
	for _, dir := range []string{"store/log", "run/uid/c/0", "pods/uid", "clusters/uid/0"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{lockFile, caKeyFile, tokenFile, kubeconfigFile, "store/present.db", "store/log/log-0000", "run/version", "run/uid/c/0/spec", "clusters/uid/0/x"} {
		put(t, filepath.Join(path, name), 0o600)
	}
	for _, name := range []string{caCertFile, "pods/uid/labels"} {
		put(t, filepath.Join(path, name), 0o644)
	}
	return path
}

func put(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), mode); err != nil {
		t.Fatal(err)
	}
}

// refusal opens a data directory and gives the words with which that was refused; "" if it wasn't.
func refusal(t *testing.T, path string) string {
	t.Helper()
	d, err := openDataDir(path, slog.New(slog.DiscardHandler))
	if err != nil {
		return err.Error()
	}
	d.release()
	return ""
}

// cure runs the commands that a refusal prints.
func cure(t *testing.T, refused string) {
	t.Helper()
	for line := range strings.SplitSeq(refused, "\n") {
		for _, program := range []string{"chown ", "chmod ", "find ", "cp "} {
			if command := strings.TrimSpace(line); strings.HasPrefix(command, program) {
				if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v %s", command, err, out)
				}
			}
		}
	}
}

// What somebody else could have laid or could change is refused by name, and what the refusal says helps.
func TestDataDirThatIsNotTrusted(t *testing.T) {
	if got := refusal(t, laid(t)); got != "" {
		t.Fatalf("a sound directory: %s", got)
	}
	give := func(names ...string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			for _, name := range names {
				if err := os.Lchown(filepath.Join(path, name), nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	chmod := func(name string, mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Chmod(filepath.Join(path, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		root  bool // only root can make it so
		spoil func(t *testing.T, path string)
		want  string
	}{
		"directory":    {true, give("."), "belongs to "},
		"token":        {true, give(tokenFile), tokenFile},
		"key and cert": {true, give(caKeyFile, caCertFile), caKeyFile},
		"lock":         {true, give(lockFile), lockFile},
		"store":        {true, give("store"), "store belongs"},
		"log":          {true, give("store/log/log-0000"), "log-0000"},
		"attempt":      {true, give("run/uid/c/0"), "run/uid/c/0"},
		"spec":         {true, give("run/uid/c/0/spec"), "spec"},
		"Pod":          {true, give("pods/uid"), "pods/uid"},
		"Cluster":      {true, give("clusters/uid"), "clusters/uid"},
		"everything": {true, func(t *testing.T, path string) {
			if out, err := exec.Command("chown", "-R", "65534", path).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		}, "and "},
		"member":         {true, give("clusters/uid/0", "clusters/uid/0/x"), ""},
		"open":           {false, chmod(".", 0o755), "its mode is 0755"},
		"to its group":   {false, chmod(".", 0o710), "its mode is 0710"},
		"token read":     {false, chmod(tokenFile, 0o640), tokenFile},
		"key read":       {false, chmod(caKeyFile, 0o604), caKeyFile},
		"store written":  {false, chmod("store/present.db", 0o660), "present.db"},
		"run written":    {false, chmod("run/uid", 0o777), "run/uid"},
		"member's files": {false, chmod("clusters/uid/0/x", 0o666), ""},
		"hard link": {false, func(t *testing.T, path string) {
			if err := os.Link(filepath.Join(path, tokenFile), filepath.Join(filepath.Dir(path), "other")); err != nil {
				t.Fatal(err)
			}
		}, "hard link"},
		"linked token": {true, func(t *testing.T, path string) {
			if err := os.Rename(filepath.Join(path, tokenFile), filepath.Join(filepath.Dir(path), "t")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../t", filepath.Join(path, tokenFile)); err != nil {
				t.Fatal(err)
			}
			give(tokenFile)(t, path)
		}, tokenFile},
		"other things beside an authority": {false, func(t *testing.T, path string) { put(t, filepath.Join(path, "alice.kubeconfig"), 0o644) }, ""},
		"what a crash left":                {false, func(t *testing.T, path string) { put(t, filepath.Join(path, ".ca.key.tmp"), 0o600) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Log("only root can give files away")
				return
			}
			path := laid(t)
			c.spoil(t, path)
			before := modes(t, path)
			got := refusal(t, path)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Fatalf("refused with %q, want %q", got, c.want)
			}
			if got == "" {
				return
			}
			if after := modes(t, path); after != before {
				t.Errorf("refused, and changed:\n%s\nwas\n%s", after, before)
			}
			cure(t, got)
			if again := refusal(t, path); again != "" {
				t.Errorf("after what helps: %s", again)
			}
		})
	}
}

// modes lists everything below path.
func modes(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			b.WriteString(info.Mode().String() + " " + path + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A directory that is somebody's home, or /tmp, is refused and left as it is.
func TestDataDirThatHoldsOtherThings(t *testing.T) {
	for _, names := range [][]string{{"notes.txt"}, {".bash_history"}, {"lock", "spool"}, {"run", "lib"}, {"lost+found", "photos"}, {caCertFile, "ssl.conf"}} {
		path := t.TempDir()
		for _, name := range names {
			put(t, filepath.Join(path, name), 0o644)
		}
		before := modes(t, path)
		got := refusal(t, path)
		if !strings.Contains(got, "holds other things ("+names[len(names)-1]) {
			t.Errorf("%v: %q", names, got)
		}
		if after := modes(t, path); after != before {
			t.Errorf("%v: refused, and changed:\n%s\nwas\n%s", names, after, before)
		}
	}
	disk := t.TempDir() // 0755
	if err := os.Mkdir(filepath.Join(disk, lostAndFound), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, disk); got != "" {
		t.Errorf("a fresh file system: %s", got)
	}
	if info, err := os.Stat(disk); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("it was not made private: %v %v", info.Mode(), err)
	}
	if got := refusal(t, disk); got != "" {
		t.Errorf("the second start on it: %s", got)
	}
}

// The way to the directory: nobody may be able to put another one in its place.
func TestDataDirBehindSomebodyElse(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(open, "a", "data")
	got := refusal(t, path)
	if !strings.Contains(got, "everybody may write") {
		t.Errorf("below a directory that everybody may write: %q", got)
	}
	if names, err := os.ReadDir(open); err != nil || len(names) > 0 {
		t.Errorf("refused, and made %v %v", names, err)
	}
	cure(t, got)
	if got := refusal(t, path); got != "" {
		t.Errorf("after what helps: %s", got)
	}
	if err := os.Chmod(open, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, path); got != "" {
		t.Errorf("below a sticky directory: %s", got)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, link); got != "" {
		t.Errorf("through a link of one's own: %s", got)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Lchown(link, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for _, through := range []string{link, filepath.Join(link, "below")} {
		if got := refusal(t, through); !strings.Contains(got, "symbolic link of ") {
			t.Errorf("through a link of somebody else: %q", got)
		}
	}
	if err := os.Chown(open, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	var warned strings.Builder
	d, err := openDataDir(path, slog.New(slog.NewTextHandler(&warned, nil)))
	if err != nil {
		t.Fatal(err)
	}
	d.release()
	if !strings.Contains(warned.String(), open) {
		t.Errorf("no warning of somebody else's directory on the way: %q", &warned)
	}
}

// Loops, files and long names on the way end in an error.
func TestDataDirThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "file"), 0o600)
	for path, want := range map[string]error{
		loop: unix.ELOOP, filepath.Join(dir, "file"): unix.ENOTDIR, filepath.Join(dir, "file", "data"): unix.ENOTDIR,
		filepath.Join(dir, strings.Repeat("x", 300)): unix.ENAMETOOLONG,
	} {
		if d, err := openDataDir(path, slog.New(slog.DiscardHandler)); !errors.Is(err, want) {
			t.Errorf("%s: %v %v, want %v", path, d, err, want)
		}
	}
}
