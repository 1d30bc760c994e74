package bolt

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// rounds of TestPowerCutOfADisk. It needs root and changes what is mounted, so `make power-cut` alone asks for it.
const powerCutRounds = "OPERATORD_POWER_CUTS"

// Of the kernel's ext4: end all writing at once, also of what the journal has not got yet.
const (
	ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	noLogFlush   = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// disk is an ext4 file system in a file.
type disk struct {
	t            *testing.T
	image, mount string
}

func (d *disk) run(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func (d *disk) attach() { d.run("mount", "-o", "loop", d.image, d.mount) }
func (d *disk) detach() { d.run("umount", d.mount) }

// cut is what a power cut does to the file system.
func (d *disk) cut() {
	d.t.Helper()
	f, err := os.Open(d.mount)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush); err != nil {
		d.t.Fatalf("shut the file system down: %v", err)
	}
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{t: t, image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mount")}
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, 512<<20); err != nil {
		t.Fatal(err)
	}
	d.run("mkfs.ext4", "-q", "-F", d.image)
	d.attach()
	t.Cleanup(func() { exec.Command("umount", d.mount).Run() })
	return d
}

// TestPowerCutOfADisk shuts a real file system down under writers and checkpoints, without its journal, and looks on what
// is left for every write that was acknowledged.
func TestPowerCutOfADisk(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(powerCutRounds))
	if err != nil {
		t.Skip("run by make power-cut")
	}
	if os.Geteuid() != 0 {
		t.Fatal("mounting takes root: sudo make power-cut")
	}
	d := newDisk(t)
	dir := filepath.Join(d.mount, "store")
	acks, total := make(map[string]int), 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + rand.IntN(3000)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var i, n int
			var rev storage.Rev
			if got, _ := fmt.Sscanf(lines.Text(), "ack %d %d %d", &i, &n, &rev); got != 3 {
				continue
			}
			acks[fmt.Sprintf("/%d", i)] = n
			total++
			if left--; left == 0 {
				d.cut()
				_ = cmd.Process.Kill() // or it reads on
			}
		}
		_ = cmd.Wait()
		if left > 0 {
			t.Fatalf("round %d: the writers ended by themselves", round)
		}
		d.detach()
		d.attach()
		s, err := Open(t.Context(), killOptions(dir))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		v, err := s.View(t.Context(), storage.Latest())
		if err != nil {
			t.Fatal(err)
		}
		for key, n := range acks {
			found := 0
			if kv, ok := v.Get(key); ok {
				fmt.Sscan(string(kv.Value), &found)
				if len(kv.Value) != len(fmt.Sprint(found))+1+found%2000 {
					t.Fatalf("round %d: write %d of %s is not whole", round, found, key)
				}
			}
			if found < n {
				t.Fatalf("round %d: write %d of %s was acknowledged and write %d is there", round, n, key, found)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d power cuts, %d acknowledged writes, none lost", rounds, total)
}
