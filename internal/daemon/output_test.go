package daemon

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A reader that stalls holds up nobody: what fits is kept, the rest is counted, and both come when it reads again.
func TestOutputWithAReaderThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := NewOutput(w)
		line := strings.Repeat("x", 1023) + "\n"
		fmt.Fprint(o, line)
		synctest.Wait() // the writer holds it
		const extra = 45
		for range outputBytes/len(line) + extra {
			fmt.Fprint(o, line)
		}
		if o.Dropped() != extra {
			t.Errorf("%d lines dropped, want %d", o.Dropped(), extra)
		}
		fmt.Fprint(o, "a short one\n") // there would be room for a part of it, but it would stand out of order
		read := make(chan string)
		go func() {
			all, _ := io.ReadAll(r)
			read <- string(all)
		}()
		synctest.Wait()
		fmt.Fprint(o, "goes on\n")
		o.Close()
		w.Close()
		got := strings.Split(strings.TrimSpace(<-read), "\n")
		if n := outputBytes/len(line) + 3; len(got) != n {
			t.Fatalf("%d lines, want %d", len(got), n)
		}
		if notice := got[len(got)-2]; !strings.Contains(notice, fmt.Sprintf("lines=%d", extra+1)) || got[len(got)-1] != "goes on" {
			t.Errorf("it ends with %q", got[len(got)-2:])
		}
	})
}

// What is being written isn't touched by what comes meanwhile, also after the writer had nothing to do.
func TestOutputKeepsWhatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := NewOutput(w)
		read := func() string {
			line := make([]byte, 64)
			n, _ := r.Read(line)
			synctest.Wait()
			return string(line[:n])
		}
		for n := range 4 {
			said, next := fmt.Sprintf("said %d\n", n), fmt.Sprintf("next %d\n", n)
			fmt.Fprint(o, said)
			synctest.Wait() // the writer holds it
			fmt.Fprint(o, next)
			if got := read() + read(); got != said+next {
				t.Errorf("got %q, want %q", got, said+next)
			}
		}
		o.Close()
	})
}

// Closing waits for a reader, but not for ever.
func TestOutputIsClosedAlthoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := NewOutput(w)
		fmt.Fprintln(o, "last words")
		before := time.Now()
		o.Close()
		if waited := time.Since(before); waited != outputWait {
			t.Errorf("it waited %s, want %s", waited, outputWait)
		}
		fmt.Fprintln(o, "too late")
		if o.Dropped() != 1 {
			t.Errorf("%d dropped after the end, want 1", o.Dropped())
		}
		r.Close()
	})
}

// breaking fails while broken is set.
type breaking struct {
	mu     sync.Mutex
	broken bool
	got    strings.Builder
}

func (b *breaking) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return 0, errors.New("broken pipe")
	}
	return b.got.Write(p)
}

func (b *breaking) set(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

func TestOutputThatBreaksAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaking{}
		o := NewOutput(b)
		say := func(line string) {
			fmt.Fprintln(o, line)
			synctest.Wait()
		}
		say("one")
		b.set(true)
		say("two")
		say("three")
		b.set(false)
		say("four") // brings the line that says what is missing, itself among it
		say("five")
		o.Close()
		got := strings.Split(b.got.String(), "\n")
		if len(got) != 4 || got[0] != "one" || !strings.Contains(got[1], "lines=3") || got[2] != "five" || o.Dropped() != 3 {
			t.Errorf("%d dropped, and written:\n%s", o.Dropped(), &b.got)
		}
	})
}
