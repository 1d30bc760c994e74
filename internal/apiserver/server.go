// Package apiserver speaks the Kubernetes API over HTTP.
//
// A request goes through the steps listed in Server.steps, top to bottom: what is asked for, by whom, may
// they, is there room, until when, and then the answer. A step either passes the request on or has answered
// it. Below the last step stand the verbs of package rest, which knows nothing of HTTP; here are paths,
// content types, query options, statuses, lists and watch streams.
//
// Answers are the bytes that the store shares: an object's JSON is written as it lies there, a list is its
// items one after the other, a watch event is two words around it. Only tables, YAML, protobuf and indented
// JSON are made for a request.
//
// Watches end when the context of the http.Server's BaseContext does; a client that doesn't read is cut off
// after Config.WriteTimeout and delays nobody else.
package apiserver

import (
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"

	"operatord.io/operatord/internal/apiserver/auth"
	"operatord.io/operatord/internal/apiserver/discovery"
	"operatord.io/operatord/internal/apiserver/openapi"
	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/resource"
)

// Limits of a request.
const (
	maxBody = 3 << 20 // bytes; above is 413

	defaultTimeout      = 60 * time.Second // of everything but watches
	defaultWriteTimeout = 30 * time.Second // of one write to a client
	defaultReads        = 400              // in flight at once; above is 429
	defaultWrites       = 200
)

// Config is what a Server needs. Verbs, Registry, Authenticator and Authorizer must be set.
type Config struct {
	Verbs         *rest.Verbs
	Registry      *resource.Registry
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer

	// Tokens answers TokenReviews; nil knows no token.
	Tokens auth.TokenAuthenticator
	// Planner shows and takes operators' next actions; nil means that no operator runs.
	Planner Planner
	// Ready says why the server isn't ready; nil, or a func that returns nil, means it is.
	Ready func() error
	// Version is what /version tells.
	Version version.Info
	// Published is the OpenAPI v3 document of a built-in group version; false for one that has none. It is
	// builtin.OpenAPI.
	Published func(group, version string) ([]byte, bool)

	Listener Listener
	Log      *slog.Logger

	Timeout      time.Duration // of a request that isn't a watch; 0 means 60 s
	WriteTimeout time.Duration // for a client to take what is written to it; 0 means 30 s
	MaxReads     int           // reads in flight, watches excepted; 0 means 400
	MaxWrites    int           // writes in flight; 0 means 200
}

// Listener is told what happens. Every func may be nil, and none may block.
type Listener struct {
	// Request reports one answered request. resource is PLURAL.GROUP, "" for other paths.
	Request func(verb, resource string, code int, d time.Duration)
	// Events reports events written to a watch.
	Events func(resource string, n int)
	// WatchCutOff reports a watch that was ended because its client didn't read.
	WatchCutOff func(resource string)
}

// Server is the http.Handler of the API. Safe for concurrent use.
type Server struct {
	cfg       Config
	steps     []step
	info      request.RequestInfoFactory
	discovery *discovery.Discovery
	openapi   *openapi.OpenAPI
	reviews   *reviewer
	reads     chan struct{}
	writes    chan struct{}
	yaml      chan struct{} // turns to decode a large YAML body
	failures  failures
	held      *semaphore.Weighted // bytes of large objects that watches write
}

// A step looks at a request and passes it on, or answers it and returns false.
type step func(x *exchange) bool

var _ http.Handler = (*Server)(nil)

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = defaultWriteTimeout
	}
	if cfg.MaxReads == 0 {
		cfg.MaxReads = defaultReads
	}
	if cfg.MaxWrites == 0 {
		cfg.MaxWrites = defaultWrites
	}
	if v := &cfg.Version; v.EmulationMajor == "" {
		// The server emulates no other version than its own.
		v.EmulationMajor, v.EmulationMinor = v.Major, v.Minor
		v.MinCompatibilityMajor, v.MinCompatibilityMinor = v.Major, v.Minor
	}
	if cfg.Published == nil {
		cfg.Published = func(string, string) ([]byte, bool) { return nil, false }
	}
	s := &Server{
		cfg: cfg,
		info: request.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		discovery: discovery.New(cfg.Registry, reviewKinds),
		reviews:   newReviewer(),
		reads:     make(chan struct{}, cfg.MaxReads),
		writes:    make(chan struct{}, cfg.MaxWrites),
		yaml:      make(chan struct{}, yamlTurns),
		failures:  failures{log: cfg.Log},
		held:      semaphore.NewWeighted(maxHeld),
	}
	s.openapi = openapi.New(cfg.Registry, cfg.Published)
	s.steps = []step{
		s.parse,        // what is asked for
		s.authenticate, // by whom
		s.impersonate,  // or whom they stand for
		s.authorize,    // 403 before the body is read
		s.admit,        // 429 when too much is going on
		s.limitTime,    // 504 when it takes too long
		s.answer,
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(s, w, r)
	defer x.finish()
	for _, next := range s.steps {
		if !next(x) {
			return
		}
	}
}
