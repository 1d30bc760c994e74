package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"operatord.io/operatord/internal/controller"
)

var keyA, keyB = controller.Key{Namespace: "default", Name: "a"}, controller.Key{Namespace: "default", Name: "b"}

// TestLongCopiesLeaveTheWorker: an action waits a little, then leaves; the key is hinted when the copy has ended.
func TestLongCopiesLeaveTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopies(time.Now, 100*time.Millisecond)
		defer c.close()
		var begun atomic.Int32
		slow := func(ctx context.Context) error {
			begun.Add(1)
			time.Sleep(time.Minute) // of the bubble's clock
			return ctx.Err()
		}
		before := time.Now()
		for range 3 {
			if err := c.do(t.Context(), keyA, "/dir", slow); !errors.Is(err, controller.ErrRunning) {
				t.Fatalf("got %v", err)
			}
		}
		if waited := time.Since(before); waited != 300*time.Millisecond || begun.Load() != 1 || !c.running("/dir") {
			t.Errorf("waited %s, begun %d times, running %t", waited, begun.Load(), c.running("/dir"))
		}
		// Another directory is not delayed by it, and forgotten when it is made.
		if err := c.do(t.Context(), keyB, "/other", func(context.Context) error { return nil }); err != nil || len(c.jobs) != 1 {
			t.Errorf("%v, %d jobs", err, len(c.jobs))
		}
		if key := <-c.hints; key != keyA || time.Since(before) != time.Minute {
			t.Errorf("hinted %s after %s", key, time.Since(before))
		}
		if !c.running("/dir") {
			t.Error("nobody was told that it has ended")
		}
		if err := c.do(t.Context(), keyA, "/dir", slow); err != nil || c.running("/dir") || begun.Load() != 1 {
			t.Errorf("%v, running %t, begun %d times", err, c.running("/dir"), begun.Load())
		}
		select {
		case key := <-c.hints:
			t.Errorf("hinted %s again; who waited to the end needs no hint", key)
		default:
		}
	})
}

func TestFailedCopiesAreToldOnceThenBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopies(time.Now, 0)
		defer c.close()
		var begun atomic.Int32
		full := errors.New("no space left on device")
		fails := func(context.Context) error {
			begun.Add(1)
			time.Sleep(time.Second)
			return full
		}
		_ = c.do(t.Context(), keyA, "/dir", fails)
		<-c.hints
		if err := c.do(t.Context(), keyA, "/dir", fails); !errors.Is(err, full) || begun.Load() != 1 {
			t.Errorf("got %v, begun %d times", err, begun.Load())
		}
		if err := c.do(t.Context(), keyA, "/dir", fails); !errors.Is(err, controller.ErrRunning) {
			t.Errorf("got %v", err)
		}
		<-c.hints
		if at, err := c.failure("/dir"); !errors.Is(err, full) || !at.Equal(time.Now()) || begun.Load() != 2 {
			t.Errorf("failed with %v at %s, begun %d times", err, at, begun.Load())
		}
	})
}

func TestCopiesEndWithTheirClusterAndWithTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopies(time.Now, 0)
		var mu sync.Mutex
		var ended []string
		until := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) // it has something to finish
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, name)
				return ctx.Err()
			}
		}
		_ = c.do(t.Context(), keyA, "/a", until("a"))
		_ = c.do(t.Context(), keyB, "/b", until("b"))
		synctest.Wait() // both copy
		c.cancel(func(key controller.Key) bool { return key == keyA })
		if len(ended) != 1 || ended[0] != "a" || c.running("/a") || !c.running("/b") {
			t.Errorf("ended %v", ended)
		}
		c.close()
		if len(ended) != 2 {
			t.Errorf("ended %v", ended)
		}
		if err := c.do(t.Context(), keyA, "/a", until("late")); err == nil {
			t.Error("begun after the end")
		}
	})
}

func TestOnlySoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopies(time.Now, 0)
		defer c.close()
		var now, most atomic.Int32
		for _, dir := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			_ = c.do(t.Context(), keyA, dir, func(context.Context) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			})
		}
		for range 9 {
			<-c.hints
		}
		if most.Load() != copiesAtOnce {
			t.Errorf("%d at once", most.Load())
		}
	})
}
