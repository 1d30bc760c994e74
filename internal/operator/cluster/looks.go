package cluster

import (
	"fmt"
	"sync"
	"time"

	"operatord.io/operatord/internal/controller"
)

const (
	looksAtOnce = 256         // those at mounts that hang keep a place for as long as they do; further ones wait
	looksKept   = time.Minute // what nobody asks for is forgotten
)

// looks are the looks at backups' directories, by path: they may be on a mount that hangs, so no worker takes one. All
// that ask for a path share one look, and what it saw, for backupAgain.
type looks struct {
	*outside
	look   func(path string) (seen, error)
	places chan struct{}

	mu     sync.Mutex
	byPath map[string]*look
}

// seen is where a backup's directory and the members' data really are, without links.
type seen struct{ from, clusters string }

// look is what is known about a path. Guarded by looks.mu.
type look struct {
	begun   time.Time // of the look that goes on; zero: none does
	entered bool      // that one has a place
	keys    map[controller.Key]bool
	ended   time.Time // of the last one that ended; zero: none has
	seen    seen
	err     error
	stalled *time.Timer
}

func newLooks(o *outside, at func(path string) (seen, error)) *looks {
	return &looks{outside: o, look: at, places: make(chan struct{}, looksAtOnce), byPath: make(map[string]*look)}
}

// at is what was last seen at a path. If that was too long ago, another look is begun, and the key is hinted when it has
// ended, or hangs. waits is why there is nothing to tell yet; hangs that the path doesn't answer.
func (ls *looks) at(key controller.Key, path string) (s seen, waits string, hangs bool, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.now()
	l := ls.byPath[path]
	if l == nil {
		ls.forget(now)
		l = &look{keys: make(map[controller.Key]bool)}
		ls.byPath[path] = l
	}
	if age := now.Sub(l.ended); l.begun.IsZero() && (l.ended.IsZero() || age >= backupAgain || age < 0) && ls.ctx.Err() == nil {
		l.begun, l.entered = now, false
		l.stalled = time.AfterFunc(stallAfter, func() { ls.tell(l) })
		ls.mu.Unlock()
		ls.launch(func() { ls.run(l, path) })
		ls.mu.Lock()
	}
	if !l.begun.IsZero() {
		l.keys[key] = true
		switch late := now.Sub(l.begun) >= stallAfter; {
		case late && !l.entered:
			return seen{}, fmt.Sprintf("%d other directories are being looked at and don't answer", looksAtOnce), true, nil
		case late:
			return seen{}, fmt.Sprintf("%s has not answered for %s: is its file system there?", path, stallAfter), true, nil
		case l.ended.IsZero():
			return seen{}, "looking at " + path, false, nil
		}
	}
	return l.seen, "", false, l.err
}

func (ls *looks) run(l *look, path string) {
	defer l.stalled.Stop()
	select {
	case ls.places <- struct{}{}:
	case <-ls.ctx.Done():
		return
	}
	ls.mu.Lock()
	l.entered = true
	ls.mu.Unlock()
	s, err := ls.look(path)
	<-ls.places
	ls.mu.Lock()
	l.begun, l.ended, l.seen, l.err = time.Time{}, ls.now(), s, err
	ls.mu.Unlock()
	ls.tell(l)
}

// tell hints all that asked.
func (ls *looks) tell(l *look) {
	ls.mu.Lock()
	var keys []controller.Key
	for key := range l.keys {
		keys = append(keys, key)
	}
	if l.begun.IsZero() {
		clear(l.keys)
	}
	ls.mu.Unlock()
	for _, key := range keys {
		ls.hint(key)
	}
}

// forget drops what nobody has asked for. ls.mu is held.
func (ls *looks) forget(now time.Time) {
	for path, l := range ls.byPath {
		if l.begun.IsZero() && (now.Sub(l.ended) >= looksKept || now.Before(l.ended)) {
			delete(ls.byPath, path)
		}
	}
}
