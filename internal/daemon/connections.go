package daemon

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/apiserver/auth"
)

// A connection costs a descriptor, and the store, the processes of Pods and their probes need descriptors too. So
// each listener has its own share of them, half of all together, and where it is used up somebody else's
// connection makes room for a new one.

// Shares of the descriptors, and the most and the fewest connections whatever their number.
const (
	apiShare, apiMost       = 4, 8192
	socketShare, socketMost = 8, 1024
	plainShare, plainMost   = 8, 1024
	fewestConnections       = 4
	fewDescriptors          = 512 // below this a busy daemon runs short
)

// descriptors is how many files this process may have open.
func descriptors() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return limit.Cur
}

// share is a listener's part of the descriptors.
func share(of uint64, part, most int) int {
	return int(max(min(of/uint64(part), uint64(most)), fewestConnections))
}

// standing says how dear a connection is.
type standing int

// In this order connections make room, in each the one first that was used longest ago.
const (
	strange     standing = iota // nobody was authenticated on it, and no request is being answered
	idle                        // somebody was
	strangeBusy                 // a request of nobody known is being answered
	standings
	busy // somebody's request is being answered: never closed
)

// connections are those that one listener holds open, at most a fixed number.
type connections struct {
	most   int
	log    *slog.Logger
	opened func(delta int) // metrics
	closed func()

	mu    sync.Mutex
	open  map[net.Conn]*connection
	order [standings]list.List // of *connection
	full  bool                 // it was said that room is made
}

type connection struct {
	of       *connections
	conn     net.Conn // below TLS: to close it waits for nobody
	requests int
	known    bool
	standing standing
	place    *list.Element // in of.order[standing]; nil for busy
}

func newConnections(most int, log *slog.Logger, opened func(int), closed func()) *connections {
	return &connections{most: most, log: log, opened: opened, closed: closed, open: map[net.Conn]*connection{}}
}

type connectionKey struct{}

// context is for http.Server.ConnContext: it takes a new connection in and makes room for it.
func (s *connections) context(ctx context.Context, c net.Conn) context.Context {
	n := &connection{of: s, conn: below(c), standing: strange}
	s.mu.Lock()
	var victim *connection
	if len(s.open) >= s.most {
		victim = s.first()
		if victim == nil {
			victim = n
		}
	}
	s.open[n.conn] = n
	n.place = s.order[strange].PushBack(n)
	s.remove(victim)
	tell := victim != nil && !s.full
	s.full = s.full || tell
	s.mu.Unlock()
	s.opened(1)
	s.shut(victim)
	if tell {
		s.log.Warn("as many connections are open as there are descriptors for: for each new one that which was idle longest is closed (operatord_connections_closed_total counts them; `ulimit -n` allows more)", "most", s.most)
	}
	return context.WithValue(auth.ConnContext(ctx, n.conn), connectionKey{}, n)
}

// relieve closes one connection: there are no descriptors left.
func (s *connections) relieve() {
	s.mu.Lock()
	victim := s.first()
	s.remove(victim)
	s.mu.Unlock()
	s.shut(victim)
}

// first is the one that makes room first; nil if none can.
func (s *connections) first() *connection {
	for i := range s.order {
		if first := s.order[i].Front(); first != nil {
			return first.Value.(*connection)
		}
	}
	return nil
}

func (s *connections) remove(n *connection) {
	if n == nil {
		return
	}
	delete(s.open, n.conn)
	if n.place != nil {
		s.order[n.standing].Remove(n.place)
		n.place = nil
	}
}

func (s *connections) shut(n *connection) {
	if n == nil {
		return
	}
	s.opened(-1)
	s.closed()
	n.conn.Close()
}

// state is for http.Server.ConnState.
func (s *connections) state(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	s.mu.Lock()
	n, ok := s.open[below(c)]
	if ok {
		s.remove(n)
	}
	s.mu.Unlock()
	if ok {
		s.opened(-1)
	}
}

// below is the connection itself, without TLS.
func below(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// count has requests under way counted for their connections.
func (s *connections) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			n.change(func() { n.requests++ })
			defer n.change(func() { n.requests-- })
		}
		h.ServeHTTP(w, r)
	})
}

// change does something to a connection and puts it where it then belongs, as the one that was used last.
func (n *connection) change(f func()) {
	s := n.of
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.open[n.conn] != n {
		return // it made room, or has ended
	}
	if n.place != nil {
		s.order[n.standing].Remove(n.place)
		n.place = nil
	}
	switch {
	case n.known && n.requests > 0:
		n.standing = busy
		return
	case n.requests > 0:
		n.standing = strangeBusy
	case n.known:
		n.standing = idle
	default:
		n.standing = strange
	}
	n.place = s.order[n.standing].PushBack(n)
}

// noticing is an Authenticator that has connections on which somebody was authenticated remembered.
type noticing struct{ auth.Authenticator }

func (a noticing) Authenticate(r *http.Request) (user.Info, bool, error) {
	u, ok, err := a.Authenticator.Authenticate(r)
	if n, tracked := r.Context().Value(connectionKey{}).(*connection); tracked && ok && err == nil && u.GetName() != user.Anonymous {
		n.change(func() { n.known = true })
	}
	return u, ok, err
}

// relieved is a listener that, when there are no descriptors left, has one connection closed. http.Server waits a
// moment before it accepts again.
type relieved struct {
	net.Listener
	connections *connections
}

func (l relieved) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		l.connections.relieve()
	}
	return c, err
}
