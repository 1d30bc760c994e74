package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/internal/process/shim"
)

// hidden is a program with a grandchild that nobody finds by its environment, parent, group or session.
const hidden = "(env -i setsid sleep 1000 & echo $! >%s/hidden); exec sleep 1000"

// TestWhatRunsWithoutRecordsIsEnded takes records away while no daemon is there: whatever of them is gone, the
// next one starts nothing beside what runs.
func TestWhatRunsWithoutRecordsIsEnded(t *testing.T) {
	id := ID{"pod-uid", "c0", 0}
	for name, damage := range map[string]func(t *testing.T, run string){
		"the run directory": func(t *testing.T, run string) { remove(t, run) },
		"a group":           func(t *testing.T, run string) { remove(t, filepath.Join(run, id.Group)) },
		"an attempt":        func(t *testing.T, run string) { remove(t, filepath.Join(run, id.String())) },
		"put aside": func(t *testing.T, run string) {
			if err := os.Rename(run, run+".old"); err != nil {
				t.Fatal(err)
			}
		},
		"spec": func(t *testing.T, run string) { remove(t, filepath.Join(run, id.String(), shim.SpecFile)) },
		"lock": func(t *testing.T, run string) { remove(t, filepath.Join(run, id.String(), shim.LockFile)) },
		"lock and shim": func(t *testing.T, run string) {
			remove(t, filepath.Join(run, id.String(), shim.LockFile))
			remove(t, filepath.Join(run, id.String(), shim.ShimFile))
		},
		"lock and control": func(t *testing.T, run string) {
			remove(t, filepath.Join(run, id.String(), shim.LockFile))
			remove(t, filepath.Join(run, id.String(), shim.ControlFile))
		},
		"a directory for spec": func(t *testing.T, run string) { instead(t, filepath.Join(run, id.String(), shim.SpecFile)) },
		"a directory for shim": func(t *testing.T, run string) { instead(t, filepath.Join(run, id.String(), shim.ShimFile)) },
		"a directory for pid":  func(t *testing.T, run string) { instead(t, filepath.Join(run, id.String(), shim.PIDFile)) },
		"a directory for lock": func(t *testing.T, run string) { instead(t, filepath.Join(run, id.String(), shim.LockFile)) },
		"a file for the attempt": func(t *testing.T, run string) {
			remove(t, filepath.Join(run, id.String()))
			write(t, filepath.Join(run, id.String()))
		},
		"a file for the group": func(t *testing.T, run string) {
			remove(t, filepath.Join(run, id.Group))
			write(t, filepath.Join(run, id.Group))
		},
		"an empty pid":     func(t *testing.T, run string) { write(t, filepath.Join(run, id.String(), shim.PIDFile)) },
		"a link to itself": func(t *testing.T, run string) { loop(t, filepath.Join(run, id.String(), shim.SpecFile)) },
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, opts Options) {
				work, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
				daemon := startDaemon(t, run, strconv.FormatBool(opts.NoCgroups), "echo x >>"+work+"/ran; "+strings.ReplaceAll(hidden, "%s", work))
				pids := awaitHidden(t, run, work, id)
				if err := daemon.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = daemon.Wait()
				damage(t, run)

				r := open(t, run, opts)
				p, err := r.Get(id)
				if err != nil {
					t.Fatal(err)
				}
				if p.State != Lost || !strings.Contains(p.Error, "records") || p.Owner != "default/test" {
					t.Errorf("%+v", p)
				}
				if err := r.Kill(background, id); err != nil {
					t.Error(err)
				}
				await(t, r, id, empty)
				for _, pid := range pids {
					if alive(pid) {
						t.Errorf("%d still runs", pid)
					}
				}
				if p := ensure(t, r, script("c0", "echo x >>"+work+"/ran; exec sleep 1000")); !p.Over() {
					t.Errorf("the attempt was run again: %+v", p)
				}
				if data, _ := os.ReadFile(work + "/ran"); string(data) != "x\n" {
					t.Errorf("it ran %d times", strings.Count(string(data), "x"))
				}
			})
		})
	}
}

// What the records are lost of under a daemon is ended as soon as somebody asks for its group.
func TestRecordsLostUnderADaemon(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		work, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
		r := open(t, run, opts)
		for _, ask := range []func(ID) error{
			func(id ID) error { _, err := r.Group(id.Group); return err },
			func(id ID) error {
				if _, err := r.Ensure(background, script(id.Name, "exec sleep 1000")); !errors.Is(err, ErrAlive) {
					t.Errorf("Ensure: %v", err)
				}
				return nil
			},
		} {
			spec := script("c0", strings.ReplaceAll(hidden, "%s", work))
			ensure(t, r, spec)
			await(t, r, spec.ID, running)
			pids := awaitHidden(t, run, work, spec.ID)
			remove(t, filepath.Join(run, "pod-uid"))
			if err := ask(spec.ID); err != nil {
				t.Fatal(err)
			}
			if p := await(t, r, spec.ID, empty); p.State != Lost || !strings.Contains(p.Error, "without its records") {
				t.Errorf("%+v", p)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("%d still runs", pid)
				}
			}
			if err := r.Remove(background, spec.ID); err != nil {
				t.Fatal(err)
			}
			remove(t, filepath.Join(work, "hidden"))
		}
	})
}

// Two daemons on one machine never touch each other's processes, also not one that serves a data directory under
// the name that another's had before.
func TestOthersProcessesAreLeftAlone(t *testing.T) {
	modes(t, func(t *testing.T, opts Options) {
		top := t.TempDir()
		mine, others, moved := filepath.Join(top, "mine"), filepath.Join(top, "others"), filepath.Join(top, "moved")
		for _, data := range []string{mine, others} {
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			r := open(t, filepath.Join(data, "run"), opts)
			spec := script("c0", "exec sleep 1000")
			ensure(t, r, spec)
			p := await(t, r, spec.ID, running)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if data == others {
				continue
			}
			// The first is moved with everything in it, and another laid in its place.
			if err := os.Rename(mine, moved); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(mine, 0o700); err != nil {
				t.Fatal(err)
			}
			if found, err := open(t, filepath.Join(mine, "run"), opts).List(); err != nil || len(found) > 0 || !alive(p.PID) {
				t.Errorf("in the new directory: %+v, %v; the process runs: %v", found, err, alive(p.PID))
			}
		}
		for _, data := range []string{moved, others} {
			found, err := open(t, filepath.Join(data, "run"), opts).List()
			if err != nil || len(found) != 1 || found[0].State != Running {
				t.Errorf("%s: %+v, %v", data, found, err)
			}
		}
	})
}

func TestEmptyDirectoriesAreSwept(t *testing.T) {
	run := t.TempDir()
	for _, dir := range []string{"a", "b/main", "c/main/0"} {
		if err := os.MkdirAll(filepath.Join(run, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open(t, run, Options{})
	if left, err := subdirectories(run); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// awaitHidden waits until the program with a hidden grandchild has come as far as that, and gives both pids.
func awaitHidden(t *testing.T, run, work string, id ID) []int {
	t.Helper()
	a := (&Runtime{dir: run}).attempt(id)
	rec := shim.Record{}
	var grandchild int
	for rec.Get("pid") == "" || grandchild == 0 {
		var err error
		if rec, err = a.record(shim.PIDFile); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(filepath.Join(work, "hidden"))
		grandchild, _ = strconv.Atoi(strings.TrimSpace(string(data)))
	}
	main, _ := strconv.Atoi(rec.Get("pid"))
	return []int{main, grandchild}
}

func alive(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ") && syscall.Kill(pid, 0) == nil
}

func remove(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// instead puts a directory with something in it in a file's place.
func instead(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// write leaves an empty file.
func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func loop(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	if err := os.Symlink(path, path); err != nil {
		t.Fatal(err)
	}
}

// Damaged records of what doesn't run any more: it counts as lost, and nothing else is held up.
func TestDamagedRecordsOfTheDead(t *testing.T) {
	run := t.TempDir()
	r := open(t, run, Options{})
	for _, name := range []string{"spec", "exit", "good"} {
		spec := script(name, "exit 3")
		ensure(t, r, spec)
		await(t, r, spec.ID, empty)
	}
	instead(t, r.attempt(ID{"pod-uid", "spec", 0}).path(shim.SpecFile))
	instead(t, r.attempt(ID{"pod-uid", "exit", 0}).path(shim.ExitFile))
	for when, r := range map[string]*Runtime{"under the daemon": r, "at the next start": open(t, run, Options{})} {
		found, err := r.Group("pod-uid")
		if err != nil || len(found) != 3 {
			t.Fatalf("%s: %+v, %v", when, found, err)
		}
		for _, p := range found {
			if want := map[string]State{"spec": Lost, "exit": Lost, "good": Exited}[p.Name]; p.State != want || !p.Empty {
				t.Errorf("%s: %s is %s, empty %v: %s", when, p.ID, p.State, p.Empty, p.Error)
			}
		}
	}
}
