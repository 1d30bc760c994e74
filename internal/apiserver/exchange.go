package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"operatord.io/operatord/internal/resource"
)

// exchange is one request and its answer on the way through the steps. It is for one goroutine.
type exchange struct {
	s   *Server
	r   *http.Request
	ctx context.Context
	w   http.ResponseWriter
	rc  *http.ResponseController

	info  *request.RequestInfo
	user  user.Info
	query url.Values

	// Set for resources that are served.
	kind    *resource.Kind
	version *resource.Version

	accept   accepted // negotiated for the resource
	warnings warnings

	read bool // the body, to its end

	start    time.Time
	code     int // 0 until the answer's header is written
	deadline bool
	undo     []func()
}

func newExchange(s *Server, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{s: s, r: r, w: w, ctx: r.Context(), rc: http.NewResponseController(w), start: time.Now()}
	if r.URL.RawQuery != "" {
		x.query = r.URL.Query()
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	return x
}

// finally has f run when the request is over.
func (x *exchange) finally(f func()) { x.undo = append(x.undo, f) }

// finish ends the exchange: it turns a panic into a 500, undoes what the steps did, and reports.
func (x *exchange) finish() {
	p := recover()
	if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // the value itself is the mark
		x.s.cfg.Log.Error("request panicked", "method", x.r.Method, "path", x.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		if x.code == 0 {
			x.text(http.StatusInternalServerError, "This request caused apiserver to panic. Look in the logs for details.\n")
			p = nil
		} else {
			p = http.ErrAbortHandler // the answer is half written: break the connection
		}
	}
	if x.deadline {
		x.rc.SetWriteDeadline(time.Time{})
	}
	for i := len(x.undo) - 1; i >= 0; i-- {
		x.undo[i]()
	}
	x.report()
	if p != nil {
		panic(p)
	}
}

func (x *exchange) report() {
	d := time.Since(x.start)
	if f := x.s.cfg.Listener.Request; f != nil {
		f(x.verb(), x.resourceName(), x.code, d)
	}
	if x.s.cfg.Log.Enabled(x.ctx, slog.LevelDebug) {
		name := ""
		if x.user != nil {
			name = x.user.GetName()
		}
		x.s.cfg.Log.Debug("request", "method", x.r.Method, "uri", x.r.RequestURI, "user", name, "code", x.code, "took", d, "agent", x.r.UserAgent())
	}
}

// verb is the label under which a request is measured: one of a fixed set.
func (x *exchange) verb() string {
	if x.info != nil {
		switch v := x.info.Verb; v {
		case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "post", "put":
			return v
		}
	}
	return "other"
}

// resourceName is the label under which a resource is measured; "" unless it is served, so that nobody can
// make up labels.
func (x *exchange) resourceName() string {
	if x.kind == nil {
		return ""
	}
	return x.kind.GroupResource().String()
}

// warn adds texts to the answer's Warning headers.
func (x *exchange) warn(texts ...string) { x.warnings.add(x.w.Header(), texts...) }

// header writes the answer's status line and headers.
func (x *exchange) header(code int, contentType string) {
	x.skipBody()
	x.code = code
	if contentType != "" {
		x.w.Header().Set("Content-Type", contentType)
	}
	x.w.WriteHeader(code)
}

// write sends bytes of the answer's body. A client that doesn't take them in time is given up.
func (x *exchange) write(b []byte) error {
	if len(b) > smallWrite {
		x.deadline = true
		if err := x.rc.SetWriteDeadline(time.Now().Add(x.s.cfg.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("apiserver: write deadline: %w", err)
		}
	}
	if _, err := x.w.Write(b); err != nil {
		return fmt.Errorf("apiserver: writing to the client: %w", err)
	}
	return nil
}

// smallWrite is what surely fits into a connection's buffers, in bytes: no deadline is set for it.
const smallWrite = 16 << 10

// timedOut tells whether a write failed because the client didn't read.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// text answers with plain text.
func (x *exchange) text(code int, body string) {
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.header(code, "text/plain; charset=utf-8")
	x.write([]byte(body))
}

// notFound is the answer for paths that nobody serves.
func (x *exchange) notFound() { x.text(http.StatusNotFound, "404 page not found\n") }
