package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// recordedBoot stands in testdata/run-v* for the boot id of the machine that they were recorded on.
const recordedBoot = "11111111-2222-3333-4444-555555555555"

// TestAdoptsRecordedRunDirectories opens a run directory of each format version, as a daemon of that version left
// it when it was killed: one attempt had exited, one was killed, one ran. testdata/run-vN is what was recorded;
// git can't hold its FIFOs. A new version needs a recording of its own, made in the same way.
func TestAdoptsRecordedRunDirectories(t *testing.T) {
	boot, err := readBoot()
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version <= layoutVersion; version++ {
		for name, here := range map[string]bool{"after a reboot": false, "on this boot": true} {
			t.Run(strconv.Itoa(version)+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				copyRecorded(t, "testdata/run-v"+strconv.Itoa(version), dir, func(record string) string {
					if !here {
						return record
					}
					lines := strings.Split(strings.ReplaceAll(record, recordedBoot, boot.id), "\n")
					for i, line := range lines {
						if strings.HasPrefix(line, "epoch ") {
							lines[i] = "epoch " + boot.epoch
						}
					}
					return strings.Join(lines, "\n")
				})
				control := filepath.Join(dir, "running", "main", "0", shim.ControlFile)
				if err := unix.Mkfifo(control, 0o600); err != nil {
					t.Fatal(err)
				}
				r := open(t, dir, Options{NoCgroups: true}) // it also removes every attempt
				for group, want := range map[string]Process{
					"exited": {State: Exited, ExitCode: 3, Empty: true},
					"killed": {State: Exited, ExitCode: 137, Signal: 9, Empty: true},
					// Nobody can know what a dead shim left on this boot before it was looked for, by Kill.
					"running": {State: Lost, Empty: !here},
				} {
					p, err := r.Get(ID{group, "main", 0})
					if err != nil {
						t.Fatal(err)
					}
					if p.State != want.State || p.ExitCode != want.ExitCode && want.State == Exited || p.Signal != want.Signal || p.Empty != want.Empty || p.Rebooted == here {
						t.Errorf("%s: state %s, exit code %d, signal %d, empty %v, rebooted %v, error %q; want %s, exit code %d, signal %d, empty %v, rebooted %v", group, p.State, p.ExitCode, p.Signal, p.Empty, p.Rebooted, p.Error, want.State, want.ExitCode, want.Signal, want.Empty, !here)
					}
					if p.Owner != "default/"+group || p.PID == 0 || p.Started.IsZero() {
						t.Errorf("%s: owner %q, pid %d, started %v", group, p.Owner, p.PID, p.Started)
					}
				}
			})
		}
	}
}

// copyRecorded copies a recorded directory, changing each record.
func copyRecorded(t *testing.T, from, to string, change func(string) string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(change(string(data))), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
