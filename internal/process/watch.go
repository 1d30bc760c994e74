package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/process/shim"
)

// watcher notices what shims do: inotify says that one wrote a record, a pidfd that it has ended. It only
// gives hints, so nothing depends on its memory. One goroutine waits in epoll, one hands the hints out.
type watcher struct {
	r       *Runtime
	epoll   int
	inotify int
	wake    int // eventfd: close
	changed chan ID

	mu      sync.Mutex
	live    map[ID]*watched
	byPidfd map[int]ID
	byDir   map[int]ID
	pending map[ID]bool
	more    chan bool // of size 1: pending isn't empty
	stop    chan bool
	done    sync.WaitGroup
}

// watched is one living shim.
type watched struct {
	pidfd int // -1: the shim hasn't said who it is yet
	dir   int // inotify's watch descriptor
	child int // the shim's pid if it is our child, to be reaped; else 0
}

func newWatcher(r *Runtime) (*watcher, error) {
	w := &watcher{
		r: r, changed: make(chan ID), live: map[ID]*watched{}, byPidfd: map[int]ID{}, byDir: map[int]ID{},
		pending: map[ID]bool{}, more: make(chan bool, 1), stop: make(chan bool),
	}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		unix.Close(w.epoll)
		return nil, fmt.Errorf("inotify: %w (fs.inotify.max_user_instances may be too low)", err)
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(w.epoll)
		unix.Close(w.inotify)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	for _, fd := range []int{w.inotify, w.wake} {
		if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return nil, fmt.Errorf("epoll: %w", err)
		}
	}
	w.done.Add(2)
	go w.wait()
	go w.deliver()
	return w, nil
}

func (w *watcher) close() {
	w.mu.Lock()
	select {
	case <-w.stop:
		w.mu.Unlock()
		return
	default:
	}
	close(w.stop)
	w.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(w.wake, one[:])
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for fd := range w.byPidfd {
		unix.Close(fd)
	}
	clear(w.byPidfd)
	unix.Close(w.inotify)
	unix.Close(w.epoll)
	unix.Close(w.wake)
}

// hint says that something about a process has changed.
func (w *watcher) hint(id ID) {
	w.mu.Lock()
	w.pending[id] = true
	w.mu.Unlock()
	select {
	case w.more <- true:
	default:
	}
}

// deliver hands hints out one at a time. At most one per attempt waits.
func (w *watcher) deliver() {
	defer w.done.Done()
	defer close(w.changed)
	for {
		select {
		case <-w.more:
		case <-w.stop:
			return
		}
		for {
			w.mu.Lock()
			var id ID
			found := false
			for id = range w.pending {
				found = true
				break
			}
			delete(w.pending, id)
			w.mu.Unlock()
			if !found {
				break
			}
			select {
			case w.changed <- id:
			case <-w.stop:
				return
			}
		}
	}
}

// spawned watches a shim that was just started as our child. pidfd is -1 where the kernel gave none.
func (w *watcher) spawned(id ID, pid, pidfd int) {
	if pidfd < 0 {
		var err error
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil { // not reaped yet: it is the right one
			w.r.log.Error("can't watch a process: its end will be noticed late", "process", id.String(), "error", err)
		}
	}
	w.add(id, pidfd, pid)
}

// adopt watches a shim that another daemon has started.
func (w *watcher) adopt(id ID) {
	w.add(id, -1, 0)
	w.identify(id)
}

func (w *watcher) add(id ID, pidfd, child int) {
	w.forget(id) // a shim that ended before it had begun, if its end hasn't been noticed yet
	dir, err := unix.InotifyAddWatch(w.inotify, w.r.attempt(id).dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR)
	if err != nil {
		w.r.log.Error("can't watch a process's directory: changes will be noticed late", "process", id.String(), "error", err)
		dir = -1
	}
	w.mu.Lock()
	w.live[id] = &watched{pidfd: pidfd, dir: dir, child: child}
	if dir >= 0 {
		w.byDir[dir] = id
	}
	n := len(w.live)
	w.mu.Unlock()
	if pidfd >= 0 {
		w.arm(id, pidfd)
	}
	w.report(n)
	w.hint(id) // what it did before the watch was there
}

// arm has epoll tell when the process behind the pidfd ends; at once if it has ended.
func (w *watcher) arm(id ID, pidfd int) {
	w.mu.Lock()
	w.byPidfd[pidfd] = id
	w.mu.Unlock()
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pidfd)}); err != nil {
		w.r.log.Error("can't watch a process: its end will be noticed late", "process", id.String(), "error", err)
	}
}

// identify opens the pidfd of an adopted shim once it has said who it is. If the shim isn't there any
// more, that is a change too.
func (w *watcher) identify(id ID) {
	a := w.r.attempt(id)
	rec, err := a.record(shim.ShimFile)
	pid, _ := strconv.Atoi(rec.Get("pid"))
	if err != nil || pid == 0 {
		if alive, err := a.locked(); err == nil && !alive {
			w.forget(id)
		}
		return // inotify tells when it has
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	ticks, _ := startTicks(pid)
	// The lock last: the pidfd is the shim's if the shim is still alive now that it is open.
	alive, lockErr := a.locked()
	switch {
	case err == nil && strconv.FormatUint(ticks, 10) == rec.Get("start") && alive:
		w.mu.Lock()
		e := w.live[id]
		taken := e == nil || e.pidfd >= 0
		if !taken {
			e.pidfd = pidfd
		}
		w.mu.Unlock()
		if taken {
			unix.Close(pidfd)
			return
		}
		w.arm(id, pidfd)
		return
	case err == nil:
		unix.Close(pidfd)
	}
	if lockErr == nil && !alive {
		w.forget(id)
		return
	}
	w.r.log.Error("can't watch an adopted process: its end will be noticed late", "process", id.String(), "pid", pid, "error", err)
}

// forget stops watching a shim that has ended.
func (w *watcher) forget(id ID) {
	w.mu.Lock()
	e := w.live[id]
	if e == nil {
		w.mu.Unlock()
		return
	}
	delete(w.live, id)
	delete(w.byDir, e.dir)
	delete(w.byPidfd, e.pidfd)
	n := len(w.live)
	if e.pidfd >= 0 {
		unix.Close(e.pidfd) // leaves epoll with it
	}
	w.mu.Unlock()
	if e.dir >= 0 {
		_, _ = unix.InotifyRmWatch(w.inotify, uint32(e.dir))
	}
	if e.child != 0 {
		w.r.children.ended(e.child)
	}
	w.report(n)
	w.hint(id)
}

// misses tells whether a shim of a group (empty: of any) lives of which there is no record among views. It
// goes through every shim, in a few microseconds for a hundred.
func (w *watcher) misses(group string, views []view) bool {
	recorded := make(map[ID]bool, len(views))
	for _, v := range views {
		recorded[v.ID] = v.State != Created
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, e := range w.live {
		if (group == "" || id.Group == group) && !recorded[id] && e.pidfd >= 0 && !ended(e.pidfd) {
			return true
		}
	}
	return false
}

// wakeShim lets a shim that somebody stopped (SIGSTOP) go on, so that it reads its commands.
func (w *watcher) wakeShim(id ID) {
	w.mu.Lock()
	defer w.mu.Unlock() // so that the pidfd isn't closed meanwhile
	if e := w.live[id]; e != nil && e.pidfd >= 0 {
		_ = unix.PidfdSendSignal(e.pidfd, unix.SIGCONT, nil, 0)
	}
}

func (w *watcher) report(n int) {
	if w.r.listener.Running != nil {
		w.r.listener.Running(n)
	}
}

func (w *watcher) wait() {
	defer w.done.Done()
	var events [32]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.r.log.Error("can't watch processes any more", "error", err)
			return
		}
		for _, e := range events[:n] {
			switch fd := int(e.Fd); fd {
			case w.wake:
				return
			case w.inotify:
				w.readInotify()
			default:
				// The number may have come to mean another shim's since the event.
				w.mu.Lock()
				id, ok := w.byPidfd[fd]
				ok = ok && ended(fd)
				w.mu.Unlock()
				if ok {
					w.forget(id)
				}
			}
		}
	}
}

func (w *watcher) readInotify() {
	var buf [16 << 10]byte
	for {
		n, err := unix.Read(w.inotify, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return // EAGAIN: all read
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			dir := int(int32(binary.NativeEndian.Uint32(buf[at:])))
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			size := int(binary.NativeEndian.Uint32(buf[at+12:]))
			name := string(buf[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+size])
			at += unix.SizeofInotifyEvent + size
			w.inotified(dir, mask, strings.TrimRight(name, "\x00"))
		}
	}
}

func (w *watcher) inotified(dir int, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 { // something was missed: look at all
		w.mu.Lock()
		ids := make([]ID, 0, len(w.live))
		for id := range w.live {
			ids = append(ids, id)
		}
		w.mu.Unlock()
		for _, id := range ids {
			w.hint(id)
		}
		return
	}
	w.mu.Lock()
	id, ok := w.byDir[dir]
	unidentified := ok && w.live[id].pidfd < 0
	w.mu.Unlock()
	if !ok {
		return
	}
	switch name {
	case shim.ShimFile:
		if unidentified {
			w.identify(id)
		}
	case shim.PIDFile, shim.ExitFile, shim.LogErrorFile:
		w.hint(id)
	}
}
