package e2e

import (
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"operatord.io/operatord/test/daemon"
)

// S80: many daemons with port 0, in parallel pairs, ended at random: no clash of ports, one line that says
// where it serves, and nothing left behind.
func TestS80ManyStarts(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range rounds(t, 6) {
				startAndEnd(t)
			}
		})
	}
	group.Wait()
}

func startAndEnd(t *testing.T) {
	dir, err := os.MkdirTemp("", "operatord-s80-")
	if err != nil {
		t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	d := daemon.New(daemon.Options{Bin: binary(t, "OPERATORD_RACE_BIN", "operatord-race"), Dir: dir})
	defer d.Close()
	if rand.IntN(3) == 0 {
		// Killed while it starts: the next start on the directory must not mind.
		if err := d.Launch(); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-d.Done():
			t.Errorf("ended by itself:\n%s", d.Log())
		case <-time.After(time.Duration(rand.IntN(400)) * time.Millisecond):
		}
		d.Kill()
	}
	before := strings.Count(d.Log(), "operatord serves")
	if err := d.Start(t.Context()); err != nil {
		t.Error(err)
		return
	}
	if n := strings.Count(d.Log(), "operatord serves") - before; n != 1 {
		t.Errorf("it said %d times where it serves:\n%s", n, d.Log())
	}
	if rand.IntN(2) == 0 {
		d.Kill()
	} else if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if pids := daemon.ProcessesOf(dir); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
}

// A data directory whose path is too long for a unix socket still serves, with a warning.
func TestLongDataDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "operatord-"+strings.Repeat("long-", 20))
	if err != nil {
		t.Fatal(err)
	}
	e := prepareIn(t, daemon.Options{Bin: binary(t, "OPERATORD_RACE_BIN", "operatord-race"), Dir: dir})
	e.start()
	if _, err := os.Stat(e.File("operatord.sock")); !os.IsNotExist(err) {
		t.Errorf("there is a socket: %v", err)
	}
	if !strings.Contains(e.Log(), "no unix socket") {
		t.Error("no warning")
	}
	e.createCluster("demo", 1)
	e.ready("demo", 1)
}

// Flags come from the environment too, and what can't be meant is refused with advice.
func TestFlags(t *testing.T) {
	e := prepareIn(t, daemon.Options{
		Bin: binary(t, "OPERATORD_RACE_BIN", "operatord-race"), Dir: t.TempDir(), Env: []string{"OPERATORD_OPERATORS=-pod,-cluster"},
	})
	e.start()
	if code, _, err := e.Do(e.ctx, "GET", "/apis/operatord.io/v1alpha1", "", nil); err != nil || code != 404 {
		t.Errorf("our kinds are served although their operator is off: %d %v", code, err)
	}
	for _, c := range [][2]string{
		{"--operators=podd", `"podd"`}, {"--workers=0", "at least one"}, {"--listen=nonsense", "HOST:PORT"}, {"--storage=etcd://x", "embedded store"},
	} {
		out, err := e.operatord("serve", "--data-dir", t.TempDir(), "--listen=127.0.0.1:0", "--http=127.0.0.1:0", c[0])
		if err == nil || !strings.Contains(out, c[1]) {
			t.Errorf("serve %s: %v %s", c[0], err, out)
		}
	}
}

// Addresses: one that is taken is refused with a way out that works from make run too; one that others reach is served
// under the name that this machine reaches it by, and the log says which it is.
func TestAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	e := prepare(t)
	for flag, variable := range map[string]string{"--listen": "OPERATORD_LISTEN", "--http": "OPERATORD_HTTP"} {
		args := []string{"serve", "--data-dir", t.TempDir(), "--listen=127.0.0.1:0", "--http=127.0.0.1:0", flag + "=" + taken.Addr().String()}
		out, err := e.operatord(args...)
		if want := variable + "=127.0.0.1:0 make run"; err == nil || !strings.Contains(out, "address already in use") || !strings.Contains(out, want) {
			t.Errorf("%s taken: %v %s, want %q", flag, err, out, want)
		}
	}
	// 127.0.0.0/8 is this machine's alone, and yet more than one address.
	if err := e.Start(e.ctx, "--listen=127.0.0.9:0", "--http=[::1]:0"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(e.Endpoints.API, "https://127.0.0.9:") || !strings.HasPrefix(e.Endpoints.HTTP, "http://[::1]:") {
		t.Errorf("%+v", e.Endpoints)
	}
	if _, err := e.Metrics(e.ctx); err != nil {
		t.Error(err)
	}
	e.kubectl("get", "namespaces")
	for _, want := range []string{" listen=127.0.0.9:", " http-listen=[::1]:"} {
		if !strings.Contains(e.Log(), want) {
			t.Errorf("the log doesn't say %q", want)
		}
	}
	if strings.Contains(e.Log(), "other machines") {
		t.Error("it warns of a loopback address")
	}
}
