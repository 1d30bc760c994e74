// Package daemon starts operatord as its users do, as a process of its own, and talks to it over HTTP.
// It knows nothing of the server's code: it finds a daemon by the files in its data directory.
//
// What a Daemon starts ends with Close, processes of Pods included: they outlive the daemon, but not the
// test. Nothing else on the machine is touched.
package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say which daemon to start.
type Options struct {
	Bin  string   // the binary
	Dir  string   // data directory; made if need be
	Args []string // of serve, beside --data-dir, --listen and --http
	Env  []string // beside this process's own
	// User runs it as somebody else; nil: as whoever runs the test.
	User *syscall.Credential
	// Ready bounds the wait for readiness; 0: one minute.
	Ready time.Duration
}

// Daemon is one running operatord, or one that was stopped and can be started again.
type Daemon struct {
	opts      Options
	Endpoints Endpoints
	Token     string
	HTTP      *http.Client // trusts the daemon's authority

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // how cmd ended
	log  buffer
}

// Endpoints are what endpoints.json says.
type Endpoints struct {
	API  string `json:"api"`
	HTTP string `json:"http"`
	PID  int    `json:"pid"`
}

// buffer keeps what the daemon logs.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// New prepares a daemon; Start starts it.
func New(o Options) *Daemon {
	if o.Ready == 0 {
		o.Ready = time.Minute
	}
	return &Daemon{opts: o}
}

// Dir is the data directory.
func (d *Daemon) Dir() string { return d.opts.Dir }

// File is a path in the data directory.
func (d *Daemon) File(name string) string { return filepath.Join(d.opts.Dir, name) }

// Log is everything that the daemon has logged, over all starts.
func (d *Daemon) Log() string { return d.log.String() }

// PID is the process of the last start.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Start starts the daemon and waits until it is ready. The arguments of Options come first, then extra.
func (d *Daemon) Start(ctx context.Context, extra ...string) error {
	if err := d.Launch(extra...); err != nil {
		return err
	}
	return d.WaitReady(ctx)
}

// Launch starts the daemon and waits for nothing.
func (d *Daemon) Launch(extra ...string) error {
	if err := os.MkdirAll(d.opts.Dir, 0o700); err != nil {
		return err
	}
	args := append([]string{"serve", "--data-dir", d.opts.Dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, d.opts.Args...)
	cmd := exec.Command(d.opts.Bin, append(args, extra...)...)
	cmd.Env = append(os.Environ(), d.opts.Env...)
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	// A group of its own: a signal to the test's group, as a terminal sends, must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: d.opts.User}
	// Processes of Pods never have these descriptors, but a daemon that is killed leaves nobody to wait for.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	d.mu.Lock()
	d.cmd, d.done = cmd, done
	d.mu.Unlock()
	go func() {
		d.err = cmd.Wait()
		close(done)
	}()
	return nil
}

// Done is closed when the daemon has ended.
func (d *Daemon) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// WaitReady waits for endpoints.json, reads it, and waits for /readyz.
func (d *Daemon) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Ready)
	defer cancel()
	err := WaitFile(ctx, d.File("endpoints.json"), d.Done(), func() bool {
		data, err := os.ReadFile(d.File("endpoints.json"))
		return err == nil && json.Unmarshal(data, &d.Endpoints) == nil && d.Endpoints.PID == d.PID()
	})
	if err != nil {
		return fmt.Errorf("operatord doesn't get ready: %w\n%s", err, tail(d.Log()))
	}
	ca, err := os.ReadFile(d.File("ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(d.File("admin.token"))
	if err != nil {
		return err
	}
	d.Token = strings.TrimSpace(string(token))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt is not PEM")
	}
	if d.HTTP != nil {
		d.HTTP.CloseIdleConnections()
	}
	d.HTTP = &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		MaxIdleConnsPerHost: 256,
	}}
	return Poll(ctx, 5*time.Millisecond, func() error {
		code, body, err := d.Do(ctx, "GET", "/readyz", "", nil)
		if err == nil && code != 200 {
			err = fmt.Errorf("/readyz: %d %s", code, body)
		}
		return err
	})
}

func tail(s string) string {
	const most = 8000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// Signal sends a signal to the daemon alone.
func (d *Daemon) Signal(sig os.Signal) error { return d.cmd.Process.Signal(sig) }

// Kill is kill -9, and waits for the end.
func (d *Daemon) Kill() {
	d.cmd.Process.Kill()
	<-d.Done()
}

// Stop is SIGTERM, and waits for the end.
func (d *Daemon) Stop() error {
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.Done():
		return d.err
	case <-time.After(30 * time.Second):
		d.Signal(syscall.SIGQUIT)
		<-d.Done()
		return fmt.Errorf("no end 30 s after SIGTERM; goroutines:\n%s", tail(d.Log()))
	}
}

// Running tells whether the daemon runs.
func (d *Daemon) Running() bool {
	done := d.Done()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Close ends the daemon and every process that it or a predecessor started in its data directory.
func (d *Daemon) Close() {
	if d.Running() {
		d.Kill()
	}
	KillProcessesOf(d.opts.Dir)
}

// KillProcessesOf ends the processes of Pods of a data directory whose daemon doesn't run. Each has the
// directory in its environment or, as a shim, in its arguments.
func KillProcessesOf(dir string) {
	for {
		pids := ProcessesOf(dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// ProcessesOf lists the living processes that belong to a data directory, except its daemon and zombies.
func ProcessesOf(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	// The directory itself, or something in it: never another one whose name begins the same.
	mark := []byte(filepath.Join(dir, "run") + "/")
	var pids []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil || pid == os.Getpid() {
			continue
		}
		args, err1 := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, err2 := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if (err1 != nil || !bytes.Contains(args, mark)) && (err2 != nil || !bytes.Contains(env, mark)) {
			continue
		}
		if Alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Alive tells whether a process exists and is no zombie.
func Alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(data), ") ")
	return ok && after[0] != 'Z' && after[0] != 'X'
}

// Do sends a request as the administrator and reads the whole answer.
func (d *Daemon) Do(ctx context.Context, method, path, contentType string, body []byte) (int, []byte, error) {
	resp, err := d.Open(ctx, method, path, contentType, body)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// Open sends a request as the administrator and leaves the answer's body to the caller.
func (d *Daemon) Open(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.Endpoints.API+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+d.Token)
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return d.HTTP.Do(req)
}

// Socket is a client over the unix socket; any host in the URL will do.
func (d *Daemon) Socket() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.File("operatord.sock"))
		},
	}}
}

// Metrics scrapes the daemon.
func (d *Daemon) Metrics(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", d.Endpoints.HTTP+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("/metrics: %s", resp.Status)
	}
	return string(data), err
}
