package daemon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"operatord.io/operatord/internal/metrics"
)

const (
	// maxSocketPath is what fits into a sockaddr_un, less the closing zero.
	maxSocketPath = 107
	// drainTimeout bounds how long stopping waits for requests under way.
	drainTimeout = 10 * time.Second
	// maxStreams is how many requests, watches among them, one HTTP/2 connection may have open.
	maxStreams = 1000
	// headerTimeout bounds how long a client may take for its handshake, and for the head of a request.
	headerTimeout = 30 * time.Second
)

// listeners are the addresses on which the daemon is reached. They accept from the start, so that ports
// are known; connections wait until serve.
type listeners struct {
	api    net.Listener // TLS
	plain  net.Listener // metrics and health
	socket net.Listener // nil where its path is too long
}

// listen opens the listeners.
func listen(c Config, d *dataDir, ca *authority) (*listeners, error) {
	l := &listeners{}
	tcp, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("daemon: listen for the API: %w%s", err, elsewhere("--listen", "OPERATORD_LISTEN", c.Listen))
	}
	l.api = tcp
	cert, err := newServerCertificate(ca, tcp.Addr())
	if err != nil {
		l.close()
		return nil, err
	}
	l.api = tls.NewListener(tcp, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: cert.get,
		ClientAuth:     tls.RequestClientCert, // judged by auth.Certificates: a bad one is a 401
	})
	if l.plain, err = net.Listen("tcp", c.HTTP); err != nil {
		l.close()
		return nil, fmt.Errorf("daemon: listen for metrics and health: %w%s", err, elsewhere("--http", "OPERATORD_HTTP", c.HTTP))
	}
	if l.socket, err = listenSocket(d.file(socketFile), c.Log); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// elsewhere says how to listen on another address, also to whom make run has started this.
func elsewhere(flag, variable, address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		host = "127.0.0.1"
	}
	free := net.JoinHostPort(host, "0")
	return fmt.Sprintf(": give another address, or port 0 for a free one: %s %s, or %s=%s in the environment (as in: %[3]s=%[4]s make run)", flag, free, variable, free)
}

// sayWhoReaches warns of addresses that others than this machine's users reach.
func (l *listeners) sayWhoReaches(log *slog.Logger) {
	if a, ok := l.api.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.Warn("the API can be reached from other machines, by whoever has credentials; for them: operatord kubeconfig --user NAME --server https://THIS-MACHINE:PORT. For this machine alone: --listen 127.0.0.1:7443 (or OPERATORD_LISTEN)", "listen", a.String())
	}
	if a, ok := l.plain.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.Warn("metrics and health can be read from other machines, by anybody. For this machine alone: --http 127.0.0.1:7480 (or OPERATORD_HTTP)", "http", a.String())
	}
}

// listenSocket opens the unix socket, which only this process's user may connect to.
func listenSocket(path string, log *slog.Logger) (net.Listener, error) {
	if len(path) > maxSocketPath {
		log.Warn("no unix socket: its path is too long; use the API over TLS, or a shorter --data-dir", "path", path, "bytes", len(path), "most", maxSocketPath)
		return nil, nil
	}
	s, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("daemon: listen on the unix socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		s.Close()
		return nil, fmt.Errorf("daemon: make the unix socket private: %w", err)
	}
	return s, nil
}

func (l *listeners) close() {
	for _, x := range []net.Listener{l.api, l.plain, l.socket} {
		if x != nil {
			x.Close()
		}
	}
}

// endpoints is what endpoints.json holds.
func (l *listeners) endpoints() Endpoints {
	return Endpoints{
		API:  "https://" + reachable(l.api.Addr()),
		HTTP: "http://" + reachable(l.plain.Addr()),
		PID:  os.Getpid(),
	}
}

// reachable is an address that a client on this machine can connect to.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
}

// announce writes endpoints.json: the last thing before readiness.
func (d *dataDir) announce(e Endpoints) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return d.write(endpointsFile, 0o644, append(data, '\n'), false)
}

// web is the HTTP servers over the listeners.
type web struct {
	servers []*http.Server
	hangUp  context.CancelFunc // ends watches and whatever else is under way
	brief   inFlight           // requests that are no watches
	group   sync.WaitGroup
	failed  chan error // the first server that ended by itself
}

// serve starts answering. api serves TLS and the socket; plain the second address. Each listener has its own share
// of the descriptors, so that none is out of reach because of another's clients.
func (l *listeners) serve(api, plain http.Handler, log *slog.Logger, m *metrics.Set) *web {
	ctx, cancel := context.WithCancel(context.Background())
	w := &web{hangUp: cancel, failed: make(chan error, 3)}
	start := func(name string, on net.Listener, h http.Handler, most int) {
		if on == nil {
			return
		}
		m.Listener(name)
		log := log.With("listener", name)
		connections := newConnections(most, log, func(n int) { m.Connections(name, n) }, func() { m.ConnectionClosed(name) })
		trouble := &causes{log: log, counted: func() { m.ConnectionError(name) }}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
		s := &http.Server{
			Handler:           connections.count(w.brief.count(h)),
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ConnContext:       connections.context,
			ConnState:         connections.state,
			ReadHeaderTimeout: headerTimeout, // a TLS handshake too
			IdleTimeout:       5 * time.Minute,
			ErrorLog:          trouble.logger(),
			Protocols:         protocols,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		}
		w.servers = append(w.servers, s)
		w.group.Go(func() {
			if err := s.Serve(relieved{on, connections}); !errors.Is(err, http.ErrServerClosed) {
				w.failed <- fmt.Errorf("daemon: serve on %s: %w", on.Addr(), err)
			}
		})
	}
	n := descriptors()
	if n < fewDescriptors {
		log.Warn("there are few file descriptors: connections and Pods may have to wait for them (`ulimit -n` allows more)", "descriptors", n)
	}
	start("api", l.api, api, share(n, apiShare, apiMost))
	start("socket", l.socket, api, share(n, socketShare, socketMost))
	start("http", l.plain, plain, share(n, plainShare, plainMost))
	return w
}

// drain stops accepting, waits for requests under way, but not for ever, and ends watches.
func (w *web) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, s := range w.servers {
		group.Go(func() {
			if s.Shutdown(ctx) != nil {
				s.Close()
			}
		})
	}
	select {
	case <-w.brief.idle():
	case <-ctx.Done():
	}
	w.hangUp()
	group.Wait()
	w.group.Wait()
}

// inFlight counts requests under way, watches excepted: those only end when they are told to.
type inFlight struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil while nobody waits for that
}

func (f *inFlight) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			h.ServeHTTP(w, r)
			return
		}
		f.add(1)
		defer f.add(-1)
		h.ServeHTTP(w, r)
	})
}

func isWatch(r *http.Request) bool {
	asked := r.URL.Query().Get("watch")
	return asked == "1" || asked == "true" || strings.Contains(r.URL.Path, "/watch/")
}

func (f *inFlight) add(delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += delta
	if f.n == 0 && f.none != nil {
		close(f.none)
		f.none = nil
	}
}

// idle is closed when no request is under way.
func (f *inFlight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	if f.n == 0 {
		close(c)
		return c
	}
	f.none = c
	return c
}
