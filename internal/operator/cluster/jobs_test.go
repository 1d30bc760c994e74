package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"operatord.io/operatord/internal/controller"
)

var keyA, keyB = controller.Key{Namespace: "default", Name: "a"}, controller.Key{Namespace: "default", Name: "b"}

func newTestJobs() *jobs { return newJobs(newOutside(time.Now, nil)) }

// TestJobsLeaveTheWorker: whoever begins one, or joins it, waits for nothing; the key is hinted when it has ended.
func TestJobsLeaveTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, in := newTestJobs(), newLane("copies", 4)
		defer js.close()
		var begun atomic.Int32
		slow := func(step func() error) error {
			begun.Add(1)
			time.Sleep(5 * time.Second) // of the bubble's clock
			return step()
		}
		before := time.Now()
		for range 3 {
			if err := js.do(keyA, "/dir", in, slow); !errors.Is(err, controller.ErrRunning) {
				t.Fatalf("got %v", err)
			}
		}
		synctest.Wait()
		if begun.Load() != 1 || !js.running("/dir") || !time.Now().Equal(before) {
			t.Errorf("waited %s, begun %d times, running %t", time.Since(before), begun.Load(), js.running("/dir"))
		}
		// Another directory is not delayed by it, and forgotten when it is made.
		err := js.do(keyB, "/other", in, func(func() error) error { return nil })
		if synctest.Wait(); err != nil {
			err = js.do(keyB, "/other", in, nil)
		}
		if err != nil || len(js.byDir) != 1 {
			t.Errorf("%v, %d jobs", err, len(js.byDir))
		}
		for key := range js.hints {
			if key == keyA {
				break
			}
		}
		if time.Since(before) != 5*time.Second || !js.running("/dir") {
			t.Errorf("hinted after %s, running %t: nobody was told that it has ended", time.Since(before), js.running("/dir"))
		}
		if err := js.do(keyA, "/dir", in, slow); err != nil || js.running("/dir") || begun.Load() != 1 {
			t.Errorf("%v, running %t, begun %d times", err, js.running("/dir"), begun.Load())
		}
	})
}

func TestFailedJobsAreToldOnceThenBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, in := newTestJobs(), newLane("copies", 4)
		defer js.close()
		var begun atomic.Int32
		full := errors.New("no space left on device")
		fails := func(func() error) error {
			begun.Add(1)
			time.Sleep(time.Second)
			return full
		}
		_ = js.do(keyA, "/dir", in, fails)
		<-js.hints
		if err := js.do(keyA, "/dir", in, fails); !errors.Is(err, full) || begun.Load() != 1 {
			t.Errorf("got %v, begun %d times", err, begun.Load())
		}
		if err := js.do(keyA, "/dir", in, fails); !errors.Is(err, controller.ErrRunning) {
			t.Errorf("got %v", err)
		}
		<-js.hints
		if at, err := js.failure("/dir"); !errors.Is(err, full) || !at.Equal(time.Now()) || begun.Load() != 2 {
			t.Errorf("failed with %v at %s, begun %d times", err, at, begun.Load())
		}
	})
}

// TestJobsEndWithTheirClusterAndWithTheOperator, which waits for none that hangs but at its own end, and then not long.
func TestJobsEndWithTheirClusterAndWithTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, in := newTestJobs(), newLane("copies", 4)
		hangs := make(chan struct{})
		var mu sync.Mutex
		var ended []string
		until := func(name string) func(func() error) error {
			return func(step func() error) error {
				if name == "hangs" {
					<-hangs
				}
				for step() == nil {
					time.Sleep(time.Second)
				}
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, name)
				return step()
			}
		}
		begin := time.Now()
		for name, key := range map[string]controller.Key{"a": keyA, "hangs": keyA, "b": keyB} {
			_ = js.do(key, "/"+name, in, until(name))
		}
		synctest.Wait() // all go on
		js.cancel(func(j *job) bool { return j.key == keyA })
		if js.running("/a") || js.running("/hangs") || !js.running("/b") || !time.Now().Equal(begin) {
			t.Errorf("a cancelled one goes on, or was waited for: %s", time.Since(begin))
		}
		over := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(ended, " ")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); over() != "a" {
			t.Errorf("ended %s", over())
		}
		begin = time.Now()
		js.close()
		if took := time.Since(begin); over() != "a b" || took != closeWait {
			t.Errorf("ended %s in %s", over(), took)
		}
		if err := js.do(keyA, "/a", in, until("late")); err == nil {
			t.Error("begun after the end")
		}
		close(hangs)
		js.close()
	})
}

func TestOnlySoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, in := newTestJobs(), newLane("copies", 4)
		defer js.close()
		var now, most atomic.Int32
		for n := range 9 {
			_ = js.do(keyA, fmt.Sprint(n), in, func(func() error) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			})
		}
		synctest.Wait()
		waiting := 0
		for n := range 9 {
			if js.waits(fmt.Sprint(n)) == "waits for others: 4 copies go on at once" {
				waiting++
			}
		}
		if waiting != 5 {
			t.Errorf("%d say that they wait for others", waiting)
		}
		for range 9 + 5 + 5 { // each that ended, began to wait, and went on
			<-js.hints
		}
		if most.Load() != 4 {
			t.Errorf("%d at once", most.Load())
		}
	})
}

// TestWhatHangsLendsItsPlace: four that hang delay others by seconds, not for ever, and their status says that they do;
// no more than so many may hang.
func TestWhatHangsLendsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, in := newTestJobs(), newLane("copies", 4)
		defer js.close()
		answers := make(chan struct{})
		hang := func(n int) {
			_ = js.do(keyA, fmt.Sprintf("/hangs/%d", n), in, func(step func() error) error {
				<-answers
				return step()
			})
		}
		drain := func() {
			for {
				select {
				case <-js.hints:
				default:
					return
				}
			}
		}
		for n := range 4 {
			hang(n)
		}
		synctest.Wait()
		_ = js.do(keyB, "/b", in, func(step func() error) error { return step() })
		time.Sleep(stallAfter)
		synctest.Wait()
		if err := js.wait("/b"); err != nil || js.waits("/b") != "" {
			t.Errorf("behind four that hang: %v, %q", err, js.waits("/b"))
		}
		if why := js.waits("/hangs/0"); !strings.Contains(why, "has not answered for 10s") {
			t.Errorf("it says %q", why)
		}
		for n := 4; n < stalledAtMost+10; n++ {
			hang(n)
			if n%4 == 3 {
				synctest.Wait()
				drain()
				time.Sleep(stallAfter)
				synctest.Wait()
				drain()
			}
		}
		if js.stalled != stalledAtMost || len(in.places) != 4 {
			t.Errorf("%d have lent their places, %d are in one", js.stalled, len(in.places))
		}
		close(answers)
		for range 100 {
			synctest.Wait()
			drain()
		}
		if js.stalled != 0 || len(in.places) != 0 {
			t.Errorf("at last %d have lent their places, %d are in one", js.stalled, len(in.places))
		}
	})
}
