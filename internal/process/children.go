package process

import (
	"os"
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// children are this process's. Each is waited for by whoever started it, without blocking anybody: a shim that a
// tracer holds can't be reaped before the tracer lets it go. Where orphans come to this process (it is pid 1
// of a container, or a subreaper) it also reaps those, which nobody has started: what a probe's command
// left behind, or what was a killed shim's.
type children struct {
	orphans bool

	births sync.RWMutex // held for reading from a fork until its pid is in started
	mu     sync.Mutex
	own    map[int]bool // started here; true: it has ended and is still to be reaped
	exits  chan os.Signal
	again  chan bool // of size 1: look again
	stop   chan bool
	done   sync.WaitGroup

	closing sync.Once
}

func newChildren() *children {
	c := &children{
		orphans: os.Getpid() == 1 || isSubreaper(),
		own:     map[int]bool{}, exits: make(chan os.Signal, 1), again: make(chan bool, 1), stop: make(chan bool),
	}
	signal.Notify(c.exits, unix.SIGCHLD)
	c.done.Go(c.run)
	return c
}

func (c *children) close() {
	c.closing.Do(func() {
		signal.Stop(c.exits)
		close(c.stop)
	})
	c.done.Wait()
}

// start runs what forks a child. The caller says waited when it has waited for it itself, or ended when it has
// ended and is to be reaped.
func (c *children) start(fork func() (int, error)) (int, error) {
	c.births.RLock()
	defer c.births.RUnlock()
	pid, err := fork()
	if err == nil {
		c.mu.Lock()
		c.own[pid] = false
		c.mu.Unlock()
	}
	return pid, err
}

func (c *children) waited(pid int) {
	c.mu.Lock()
	delete(c.own, pid)
	c.mu.Unlock()
	c.look() // an orphan may have stood behind it
}

func (c *children) ended(pid int) {
	c.mu.Lock()
	c.own[pid] = true
	c.mu.Unlock()
	c.look()
}

func (c *children) look() {
	select {
	case c.again <- true:
	default:
	}
}

func (c *children) run() {
	for {
		select {
		case <-c.exits:
		case <-c.again:
		case <-c.stop:
			return
		}
		c.reapOwn()
		if c.orphans {
			c.reapOrphans()
		}
	}
}

func (c *children) reapOwn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid, over := range c.own {
		if !over {
			continue
		}
		if got, err := wait(pid); got == pid || err == unix.ECHILD {
			delete(c.own, pid)
		}
	}
}

// reapOrphans reaps zombies in the order in which the kernel names them, up to the first that is somebody's own:
// who has started it will take it away, and say so.
func (c *children) reapOrphans() {
	c.births.Lock()
	defer c.births.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var si unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &si, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		pid := int((*[5]int32)(unsafe.Pointer(&si))[4]) // after signo, errno, code and their padding
		if _, own := c.own[pid]; err != nil || pid == 0 || own {
			return
		}
		if got, err := wait(pid); got != pid || err != nil {
			return // a tracer holds it
		}
	}
}

func wait(pid int) (int, error) {
	for {
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != unix.EINTR {
			return got, err
		}
	}
}

func isSubreaper() bool {
	var is int32
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0) == nil && is != 0
}
