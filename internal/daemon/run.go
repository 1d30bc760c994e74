package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/informer"
	"operatord.io/operatord/internal/metrics"
	"operatord.io/operatord/internal/process"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/builtin"
	"operatord.io/operatord/internal/resource/crd"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"

	"k8s.io/apimachinery/pkg/runtime"
)

// server is a daemon under construction, in order of construction.
type server struct {
	cfg         Config
	on          map[string]bool // operators
	metrics     *metrics.Set
	health      *health
	dir         *dataDir
	ca          *authority
	token       string
	judgedSince time.Time // zero: always
	listeners   *listeners

	scheme    *runtime.Scheme
	registry  *resource.Registry
	store     storage.Store
	cache     *watchcache.Cache
	verbs     *rest.Verbs
	informers *informer.Set
	processes *process.Runtime // nil while the pod operator is off
	operators []*operator

	served bool // it was ready
}

// Run serves until ctx ends, then stops in order. It returns nil after an orderly stop, also one that was asked for
// while it started.
func Run(ctx context.Context, cfg Config) error {
	started := time.Now()
	if err := process.StartClean(); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	if err := cfg.check(); err != nil {
		return err
	}
	on, err := selectOperators(cfg.Operators, OperatorNames())
	if err != nil {
		return err
	}
	s := &server{cfg: cfg, on: on, metrics: metrics.New(cfg.Version), health: newHealth()}
	if cfg.LogDropped != nil {
		s.metrics.LogDropped(cfg.LogDropped)
	}
	err = s.run(ctx, started)
	if err != nil && ctx.Err() != nil && !s.served {
		cfg.Log.Info("operatord was told to stop before it served", "data-dir", cfg.DataDir, "interrupted", err)
		return nil
	}
	return err
}

func (s *server) run(ctx context.Context, started time.Time) (err error) {
	cfg, on := s.cfg, s.on
	pauseGC()

	// The directory, and who we are.
	if s.dir, err = openDataDir(cfg.DataDir, cfg.Log); err != nil {
		return err
	}
	defer s.dir.release()
	if s.judgedSince, err = s.dir.podsJudgedSince(started, cfg.Log); err != nil {
		return err
	}
	if s.ca, err = openAuthority(s.dir, cfg.Log); err != nil {
		return err
	}
	if s.token, err = openToken(s.dir); err != nil {
		return err
	}
	if s.listeners, err = listen(cfg, s.dir, s.ca); err != nil {
		return err
	}
	defer s.listeners.close()
	s.listeners.sayWhoReaches(cfg.Log)

	// What is kept, and what is served of it.
	s.scheme = newScheme()
	s.registry = resource.NewRegistry(builtin.Kinds(), crd.Compile)
	if err := s.openStore(ctx); err != nil {
		return err
	}
	defer s.closeStore()
	s.cache = watchcache.New(s.store, s.registry, watchcache.Options{Log: cfg.Log, Listener: s.cacheListener()})
	defer s.cache.Close()
	s.verbs = rest.New(rest.Config{Store: s.store, Registry: s.registry, Cache: s.cache, Unattended: unattended(on)})
	s.informers = informer.New(s.cache, s.registry, s.scheme, cfg.Log)
	gcCtx, stopGC := context.WithCancel(ctx)
	defer stopGC()
	tendGC(gcCtx)

	// Who acts on it.
	if on["pod"] {
		if err := obeyStopSignals(); err != nil {
			return err
		}
		if err := s.openProcesses(); err != nil {
			return err
		}
		defer s.processes.Close()
	}
	if err := s.makeOperators(); err != nil {
		return err
	}
	defer s.closeOperators()
	s.observe()
	if err := s.ensureNamespaces(ctx); err != nil {
		return err
	}

	// Everything runs. Work outlives ctx, so that requests can be drained while operators still act.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	group, work := errgroup.WithContext(work)
	group.Go(func() error { return s.follow(work) })
	group.Go(func() error { return clean(work, s.informers.Run(work)) })
	for _, o := range s.operators {
		group.Go(func() error { return clean(work, o.run(work)) })
	}
	api := s.apiHandler()
	web := s.listeners.serve(api, s.plainHandler(api), cfg.Log, s.metrics)

	err = s.becomeReady(ctx, work)
	if err == nil {
		s.served = true
		e := s.listeners.endpoints()
		cfg.Log.Info("operatord serves", "api", e.API, "http", e.HTTP,
			"listen", s.listeners.api.Addr().String(), "http-listen", s.listeners.plain.Addr().String(), "data-dir", cfg.DataDir,
			"kubeconfig", s.dir.file(kubeconfigFile), "version", cfg.Version, "took", time.Since(started).Round(time.Millisecond))
		select {
		case <-ctx.Done():
		case <-work.Done(): // something that runs for ever has ended
		case err = <-web.failed:
		}
	}

	cfg.Log.Info("operatord stops", "data-dir", cfg.DataDir)
	s.health.set(errStopping)
	web.drain()
	stopWork()
	if failed := group.Wait(); failed != nil && err == nil {
		err = failed
	}
	s.sayWhatIsLeft()
	return err
}

// sayWhatIsLeft logs how many processes outlive this daemon.
func (s *server) sayWhatIsLeft() {
	if s.processes == nil {
		return
	}
	processes, err := s.processes.List()
	if err != nil {
		s.cfg.Log.Warn("the processes that go on running can't be counted", "err", err)
		return
	}
	running := 0
	for _, p := range processes {
		if !p.Empty {
			running++
		}
	}
	if running > 0 {
		s.cfg.Log.Info("processes of Pods go on running; the next daemon on the data directory adopts them", "count", running)
	}
}

// clean is err unless it only says that ctx has ended.
func clean(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// becomeReady does what must be true before /readyz is 200, endpoints.json last.
func (s *server) becomeReady(ctx, work context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(work, cancel)()
	if err := s.informers.WaitForSync(ctx); err != nil {
		return fmt.Errorf("daemon: fill the informers' views: %w", err)
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	e := s.listeners.endpoints()
	config, err := s.ca.makeKubeconfig(e.API, adminName, []string{adminGroup}, adminLifetime)
	if err != nil {
		return err
	}
	if err := s.withoutRoom(s.dir.write(kubeconfigFile, 0o600, config, false), "the last one stays, and is good if the address is the same"); err != nil {
		return err
	}
	if err := s.withoutRoom(s.dir.announce(e), "`operatord` commands don't find this daemon until it is started again with room"); err != nil {
		return err
	}
	s.health.set(nil)
	return nil
}

// withoutRoom is the error of a write that serving can't go on without. A full disk is none: deletes are what makes room
// on it, and they need a daemon.
func (s *server) withoutRoom(err error, effect string) error {
	if err != nil && noRoom(err) {
		s.cfg.Log.Warn("no room in the data directory: "+effect, "err", err)
		return nil
	}
	return err
}

// plainHandler serves the second address: metrics, and health as the API serves it.
func (s *server) plainHandler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.Handle(path, api)
		mux.Handle(path+"/", api)
	}
	return mux
}
