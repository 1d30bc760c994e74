package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"operatord.io/operatord/test/daemon"
)

// A stop that is asked for while the daemon starts, at whatever moment, ends it with 0 and harms nothing: one
// directory goes through all of it, and is then served.
func TestStopWhileStarting(t *testing.T) {
	e := prepare(t)
	stop := func(when string, reached func() error) {
		t.Helper()
		if err := e.Launch(); err != nil {
			t.Fatal(err)
		}
		if err := daemon.Poll(e.ctx, time.Millisecond/4, reached); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := e.Stop(); err != nil {
			t.Errorf("stopped when %s: %v\n%s", when, err, e.Log())
		}
		os.Remove(e.File("lock")) // so that the next start is seen to make it
	}
	for _, name := range []string{"lock", "ca.key", "admin.token", "operatord.sock", "store", "store/present.db", "run", "pods", "admin.kubeconfig", "endpoints.json"} {
		stop(name+" is there", func() error {
			if _, err := os.Stat(e.File("lock")); err != nil {
				return err
			}
			_, err := os.Stat(e.File(name))
			return err
		})
	}
	// What was made stays, so what comes after it is told by time.
	for i := range 6 {
		delay := time.Duration(i) * 40 * time.Millisecond
		var locked time.Time
		stop(fmt.Sprintf("it has had the lock for %s", delay), func() error {
			if _, err := os.Stat(e.File("lock")); err != nil {
				return err
			}
			if locked.IsZero() {
				locked = time.Now()
			}
			if wait := delay - time.Since(locked); wait > 0 {
				return fmt.Errorf("%s to go", wait)
			}
			return nil
		})
	}
	e.start()
	e.createCluster("demo", 1)
	e.ready("demo", 1)
}

// Signals are listened for before anything large is initialised: that takes longer than all the rest of a start.
func TestSignalsAreHeardEarly(t *testing.T) {
	cmd := exec.Command(binary(t, "OPERATORD_RACE_BIN", "operatord-race"), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var order []string
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @`).FindAllStringSubmatch(string(out), -1) {
		order = append(order, m[1])
	}
	at := slices.Index(order, "operatord.io/operatord/internal/interrupt")
	for i, name := range order {
		if large := strings.HasPrefix(name, "k8s.io/api/") || name == "net/http" || strings.HasPrefix(name, "google.golang.org/protobuf/types"); large && i < at || at < 0 {
			t.Fatalf("%s comes before internal/interrupt (%d of %d)", name, at, len(order))
		}
	}
}
