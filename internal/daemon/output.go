package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// outputBytes is how much of an Output waits to be written. What is more is dropped.
	outputBytes = 1 << 20
	// outputWait bounds how long Close waits for a reader.
	outputWait = time.Second
)

// Output writes lines to a file whose reader may stall or go away, as that of a pipe or a journal can: Write never
// waits and never fails. Lines for which there is no room, or that can't be written, are dropped and counted, and
// when it goes on a line says how many. It may be used concurrently; each Write is one or more whole lines.
type Output struct {
	to   io.Writer
	wake chan struct{} // there is something to write, or it is closed
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	pending []byte
	closed  bool
	missing int // lines dropped since the last line that said so
	dropped int // lines dropped in all
}

// NewOutput writes to w, in a goroutine that ends with Close.
func NewOutput(w io.Writer) *Output {
	o := &Output{to: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

// Write implements io.Writer. Its error is always nil.
func (o *Output) Write(lines []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Once one is missing all are, until a line has said so: they stand in order.
	if o.closed || o.missing > 0 || len(o.pending)+len(lines) > outputBytes {
		o.drop(bytes.Count(lines, newline))
	} else {
		o.pending = append(o.pending, lines...)
	}
	o.signal()
	return len(lines), nil
}

var newline = []byte("\n")

func (o *Output) drop(lines int) {
	o.missing += lines
	o.dropped += lines
}

func (o *Output) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Dropped is how many lines have been dropped.
func (o *Output) Dropped() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

// Close writes what is left, unless that takes longer than a second. What is written from now on is dropped.
func (o *Output) Close() {
	o.mu.Lock()
	o.closed = true
	o.signal()
	o.mu.Unlock()
	timer := time.NewTimer(outputWait)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

// run writes until the Output is closed and nothing is left.
func (o *Output) run() {
	defer close(o.done)
	var spare []byte
	for range o.wake {
		for {
			chunk, said, closed := o.take(spare)
			spare = chunk // the one given is what comes next by now
			if len(chunk) == 0 {
				if closed {
					return
				}
				break
			}
			n, err := o.to.Write(chunk)
			if err != nil {
				o.failed(chunk[n:], said)
				if closed {
					return
				}
				break // the next line tries again
			}
		}
	}
}

// take gives what is to be written, and how many lines it says are missing. spare is used for what comes next.
func (o *Output) take(spare []byte) (chunk []byte, said int, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	chunk, said = o.pending, o.missing
	o.pending, o.missing = spare[:0], 0
	if said > 0 {
		b := bytes.NewBuffer(chunk)
		slog.New(slog.NewTextHandler(b, nil)).Warn("log lines were dropped: who reads this output stalled or went away", "lines", said)
		chunk = b.Bytes()
	}
	return chunk, said, o.closed
}

// failed counts what could not be written. The line that said how many are missing, its last one, is none of them.
func (o *Output) failed(rest []byte, said int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := bytes.Count(rest, newline)
	if said > 0 {
		lines--
	}
	o.missing += said
	o.drop(max(lines, 0))
}
