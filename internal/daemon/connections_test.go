package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/apiserver/auth"
)

// crowd is a set of connections with names.
type crowd struct {
	t *testing.T
	*connections
	by     map[string]context.Context
	ends   map[string]net.Conn
	opens  int
	closes int
	told   strings.Builder
}

func newCrowd(t *testing.T, most int) *crowd {
	c := &crowd{t: t, by: map[string]context.Context{}, ends: map[string]net.Conn{}}
	c.connections = newConnections(most, slog.New(slog.NewTextHandler(&c.told, nil)), func(n int) { c.opens += n }, func() { c.closes++ })
	return c
}

func (c *crowd) connect(names ...string) {
	for _, name := range names {
		server, client := net.Pipe()
		c.t.Cleanup(func() { client.Close() })
		c.ends[name] = client
		c.by[name] = c.context(c.t.Context(), tls.Server(server, nil))
	}
}

// begin begins a request of somebody, or of nobody known; what is returned ends it.
func (c *crowd) begin(name string, known bool) (end func()) {
	started, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := c.count(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var who auth.Authenticator = auth.Anonymous{}
		if known {
			who = somebody{}
		}
		noticing{who}.Authenticate(r)
		close(started)
		<-release
	}))
	go func() {
		defer close(ended)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(c.by[name]))
	}()
	<-started
	return func() { close(release); <-ended }
}

type somebody struct{}

func (somebody) Authenticate(*http.Request) (user.Info, bool, error) {
	return &user.DefaultInfo{Name: "alice"}, true, nil
}

// gone tells whether a connection was closed by the server's side.
func (c *crowd) gone(name string) bool {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	n := c.by[name].Value(connectionKey{}).(*connection)
	return c.connections.open[n.conn] != n
}

func (c *crowd) want(gone string, all ...string) {
	c.t.Helper()
	var got []string
	for _, name := range all {
		if c.gone(name) {
			got = append(got, name)
			if _, err := c.ends[name].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				c.t.Errorf("%s is forgotten and not closed: %v", name, err)
			}
		}
	}
	if s := strings.Join(got, " "); s != gone {
		c.t.Errorf("closed: %q, want %q", s, gone)
	}
}

// What makes room, in order: connections of nobody known that do nothing, then idle ones of users, then requests of
// nobody known; a user's request never. A new one finds no room among those alone.
func TestConnectionsMakeRoom(t *testing.T) {
	c := newCrowd(t, 4)
	all := []string{"stranger", "alice", "bob", "asking"}
	c.connect(all...)
	c.begin("alice", true)()
	end := c.begin("bob", true)
	defer end()
	defer c.begin("asking", false)()
	c.want("", all...)

	c.connect("5")
	c.want("stranger", append(all, "5")...)
	defer c.begin("5", true)()
	c.connect("6")
	c.want("stranger alice", append(all, "5", "6")...)
	defer c.begin("6", true)()
	c.connect("7")
	c.want("stranger alice asking", append(all, "5", "6", "7")...)
	defer c.begin("7", true)()
	c.connect("8")
	if !c.gone("8") || c.gone("bob") || c.gone("7") {
		t.Error("a user's request made room")
	}
	if len(c.connections.open) != 4 || c.opens != 4 || c.closes != 4 {
		t.Errorf("%d open, counted %d, %d closed; want 4 each", len(c.connections.open), c.opens, c.closes)
	}
	if n := strings.Count(c.told.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one for all:\n%s", n, &c.told)
	}
	c.relieve()
	c.want("", "7")
}

// A connection that was used is younger than one that was not, and one that ended is none.
func TestConnectionsAgeByUse(t *testing.T) {
	c := newCrowd(t, 3)
	c.connect("a", "b", "c")
	for _, name := range []string{"c", "b", "a"} {
		c.begin(name, true)()
	}
	c.connect("d")
	c.want("c", "a", "b", "c", "d")
	c.state(c.by["b"].Value(connectionKey{}).(*connection).conn, http.StateClosed)
	c.connect("e")
	if c.gone("a") || c.gone("d") || c.opens != 3 {
		t.Errorf("somebody made room that was there; %d open", c.opens)
	}
}

// failing is a listener without descriptors.
type failing struct{ net.Listener }

func (failing) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: unix.EMFILE}
}

func TestAcceptWithoutDescriptorsClosesOne(t *testing.T) {
	c := newCrowd(t, 9)
	c.connect("a", "b")
	c.begin("a", true)()
	if _, err := (relieved{failing{}, c.connections}).Accept(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v: http.Server has to hear of it, to wait a moment", err)
	}
	c.want("b", "a", "b")
}

func TestShares(t *testing.T) {
	for of, want := range map[uint64][3]int{
		16: {4, 4, 4}, 100: {25, 12, 12}, 1024: {256, 128, 128}, 20000: {5000, 1024, 1024}, 1 << 40: {8192, 1024, 1024},
	} {
		got := [3]int{share(of, apiShare, apiMost), share(of, socketShare, socketMost), share(of, plainShare, plainMost)}
		if got != want {
			t.Errorf("of %d descriptors: %v, want %v", of, got, want)
		}
	}
}

// One cause is told once, wherever it comes from, and then counted; a client that hangs up is none.
func TestCausesAreToldOnce(t *testing.T) {
	var told strings.Builder
	counted := 0
	c := &causes{log: slog.New(slog.NewTextHandler(&told, nil)), counted: func() { counted++ }}
	for i := range 50 {
		c.logger().Printf("http: TLS handshake error from 127.0.0.1:%d: remote error: tls: bad certificate", 1000+i)
		c.logger().Printf("http: TLS handshake error from [fe80::1%%eth0]:%d: remote error: tls: bad certificate", 1000+i)
		c.logger().Printf("http: TLS handshake error from 127.0.0.1:%d: EOF", 1000+i)
		c.logger().Printf("http: TLS handshake error from 127.0.0.1:%d: read tcp 127.0.0.1:7443->127.0.0.1:%d: read: connection reset by peer", 1000+i, 1000+i)
		c.logger().Printf("http: Accept error: accept tcp 127.0.0.1:7443: accept4: too many open files; retrying in %dms", 5*i)
	}
	c.logger().Printf("http: panic serving 127.0.0.1:1: one\n%s", "goroutine 1")
	c.logger().Printf("http: panic serving 127.0.0.1:2: one\n%s", "goroutine 1")
	if n := strings.Count(told.String(), "\n"); n != 4 || counted != 252 {
		t.Errorf("%d lines (want the certificate, accept and both panics), %d counted (want 252):\n%s", n, counted, &told)
	}
	for i := range 2 * causesKept {
		fmt.Fprintf(c, "http: cause %s\n", strings.Repeat("x", i))
	}
	if n := strings.Count(told.String(), "\n"); n != 4+causesKept-2 {
		t.Errorf("%d lines of ever new causes", n)
	}
}
