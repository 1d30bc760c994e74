package bolt

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"operatord.io/operatord/internal/storage"
)

const killDir = "STORAGE_KILL_TEST_DIR"

// killOptions keeps all history, so that the parent can look at every write.
func killOptions(dir string) Options { return small(dir, Options{RingEvents: 32}) }

// TestKilledChild is not a test but the process that TestS10Kill kills.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("the child process of TestS10Kill")
	}
	s, err := Open(context.Background(), killOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out sync.Mutex
	for i := range 8 {
		go func() {
			key, at := fmt.Sprintf("/%d", i), storage.Rev(0)
			n := 0
			v, err := s.View(context.Background(), storage.Latest())
			if err != nil {
				panic(err)
			}
			if kv, ok := v.Get(key); ok {
				at = kv.Rev
				fmt.Sscan(string(kv.Value), &n)
			}
			for {
				n++
				w := storage.Write{Key: key, Value: fmt.Append(nil, n, " ", strings.Repeat("x", n%2000)), If: at}
				kv, err := s.Commit(context.Background(), w)
				if err != nil {
					panic(err)
				}
				at = kv.Rev
				out.Lock()
				fmt.Printf("ack %d %d %d\n", i, n, kv.Rev) // one write: a pipe keeps it whole
				out.Unlock()
			}
		}()
	}
	select {}
}

// TestS10Kill kills a writing process at random moments. What was acknowledged is there, what was not is
// whole or absent, and the watch history agrees with both.
func TestS10Kill(t *testing.T) {
	dir := t.TempDir()
	type ack struct {
		key string
		n   int
	}
	acks := make(map[storage.Rev]ack)
	for round := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 100 + rand.IntN(600)
		for lines := bufio.NewScanner(out); lines.Scan(); left-- {
			if left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var a ack
			var i int
			var rev storage.Rev
			if n, _ := fmt.Sscanf(lines.Text(), "ack %d %d %d", &i, &a.n, &rev); n != 3 {
				continue
			}
			a.key = fmt.Sprintf("/%d", i)
			acks[rev] = a
		}
		_ = cmd.Wait() // it was killed
		if left > 0 {
			t.Fatalf("round %d: the child ended by itself", round)
		}

		s := mustOpen(t, killOptions(dir))
		last := s.Status().Rev
		w, err := s.Watch(t.Context(), "", firstRev)
		if err != nil {
			t.Fatal(err)
		}
		counts := make(map[string]int)
		seen := 0
		for at := storage.Rev(firstRev); at < last; {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Rev != at+1 {
					t.Fatalf("round %d: revision %d after %d", round, e.Rev, at)
				}
				at = e.Rev
				var n int
				fmt.Sscan(string(e.New.Value), &n)
				if n != counts[e.Key()]+1 || len(e.New.Value) != len(fmt.Sprint(n))+1+n%2000 {
					t.Fatalf("round %d: write %d of %s after write %d", round, n, e.Key(), counts[e.Key()])
				}
				counts[e.Key()] = n
				if a, ok := acks[e.Rev]; ok {
					seen++
					if a.key != e.Key() || a.n != n {
						t.Fatalf("round %d: revision %d is write %d of %s, acknowledged was write %d of %s", round, e.Rev, n, e.Key(), a.n, a.key)
					}
				}
			}
		}
		if seen != len(acks) {
			t.Fatalf("round %d: %d of %d acknowledged writes are there", round, seen, len(acks))
		}
		v, err := s.View(t.Context(), storage.Latest())
		if err != nil {
			t.Fatal(err)
		}
		for kv := range v.Range("", "") {
			var n int
			fmt.Sscan(string(kv.Value), &n)
			if n != counts[kv.Key] {
				t.Fatalf("round %d: %s is at write %d, its last event is write %d", round, kv.Key, n, counts[kv.Key])
			}
		}
		w.Close()
		s.Close()
	}
}
