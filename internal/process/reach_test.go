package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// catAs reads a file as another user, by its path.
func catAs(uid uint32, path string) error {
	cmd := exec.Command("cat", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run()
}

func TestReachLetsOneUserThrough(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; the daemon of an ordinary user runs everything as itself")
	}
	base, err := os.MkdirTemp("", "reach-") // not t.TempDir: its parents are private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "private")
	file := filepath.Join(dir, "file")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}

	const first, second, stranger = 60001, 60000, 60002
	if err := catAs(first, file); err == nil {
		t.Fatal("a private directory let somebody in before Reach")
	}
	for range 2 { // the second time finds it done
		for _, uid := range []uint32{first, second} {
			if err := Reach(dir, User{UID: uid, GID: uid}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for uid, want := range map[uint32]bool{first: true, second: true, stranger: false} {
		if err := catAs(uid, file); (err == nil) != want {
			t.Errorf("user %d reads below the directory: %v, want allowed %v", uid, err, want)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o710 {
		t.Errorf("mode %v, %v; want 0710: nobody but the owner may list it", info.Mode(), err)
	}
}

func TestReachOfManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const many = 50
	var users sync.WaitGroup
	for i := range many {
		users.Go(func() {
			if err := Reach(dir, User{UID: uint32(60000 + i)}); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
	list, err := readACL(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := 0
	for _, e := range list {
		if e.tag == aclUser {
			in++
		}
	}
	if in != many {
		t.Errorf("%d users were let in, want %d", in, many)
	}
}
