// Command run is what `make run` starts: it serves with a data directory, applies a sample, and says what
// to look at and try next. It shows the whole of what a user needs: a binary, a directory, and HTTP.
//
// Ctrl-C ends it and the daemon; members go on running, and the next run adopts them.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin/operatord", "the binary")
	dir := flag.String("data-dir", ".data", "data directory")
	sample := flag.String("sample", "deploy/samples/cluster.yaml", "a Cluster to apply")
	flag.Parse()
	if err := run(*bin, *dir, *sample); err != nil {
		say(os.Stderr, "run: %v\n", err)
		os.Exit(1)
	}
}

func run(bin, dir, sample string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	document, err := os.ReadFile(sample)
	if err != nil {
		return err
	}
	// The terminal sends Ctrl-C to the daemon too; this process waits for it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Somebody who stops reading (make run | head) ends neither this process nor, with it, the hold on the daemon.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	serve := exec.Command(bin, "serve", "--data-dir", dir)
	serve.Stdout, serve.Stderr = os.Stdout, os.Stderr
	if err := serve.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	api, err := ready(ctx, dir, serve.Process.Pid, ended)
	if err != nil {
		return err
	}
	if err := apply(ctx, api, dir, document); err != nil {
		say(os.Stderr, "run: apply %s: %v\n", sample, err)
	}
	say(os.Stdout, hints, dir)
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("the daemon has ended (%w); %s, and make run goes on where it was", err, left(dir))
		}
	case <-ctx.Done():
		serve.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			return err
		}
	}
	say(os.Stdout, "%s; make run adopts what runs\n", left(dir))
	return nil
}

// say prints, but waits no longer than a second for whoever reads that.
func say(to io.Writer, format string, args ...any) {
	printed := make(chan struct{})
	go func() {
		fmt.Fprintf(to, format, args...)
		close(printed)
	}()
	select {
	case <-printed:
	case <-time.After(time.Second):
	}
}

// left says how many processes the daemon has left running: each has a FIFO until it is over (docs/processes.md).
func left(dir string) string {
	switch running, _ := filepath.Glob(filepath.Join(dir, "run", "*", "*", "*", "control")); len(running) {
	case 0:
		return "nothing goes on running"
	case 1:
		return "one process of a member or Pod goes on running"
	default:
		return fmt.Sprintf("%d processes of members and Pods go on running", len(running))
	}
}

const hints = `
operatord keeps everything in %[1]s. In another terminal:

  make kubectl                                   # or any kubectl that you have
  export PATH=$PWD/bin:$PATH KUBECONFIG=%[1]s/admin.kubeconfig OPERATORD_DATA_DIR=%[1]s

  kubectl get clusters                           # demo: three members, demo-0 leads
  kubectl get pods -o wide                       # real processes of this machine
  kubectl describe cluster demo                  # conditions, and an Event for each action

Then break it:

  kill -9 $(kubectl get pod demo-0 -o jsonpath='{.status.containerStatuses[0].containerID}' | cut -d/ -f3)
                                                 # the leader: another one is elected, demo-0 comes back
  kubectl scale cluster demo --replicas=5        # grows and shrinks
  kill -9 $(cat %[1]s/lock)
                                                 # the daemon: make run again; members keep their pids, it adopts them

README.md goes on from here. Ctrl-C stops the daemon and leaves the members running; what ends them is
kubectl delete clusters --all

`

// ready waits until this daemon has written endpoints.json, and returns where its API is.
func ready(ctx context.Context, dir string, pid int, ended <-chan error) (api string, err error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(filepath.Join(dir, "endpoints.json"))
		var e struct {
			API string
			PID int
		}
		if err == nil && json.Unmarshal(data, &e) == nil && e.PID == pid {
			return e.API, nil
		}
		select {
		case err := <-ended:
			return "", fmt.Errorf("the daemon ended before it was ready: %w", err)
		case <-ctx.Done():
			return "", ctx.Err()
		case <-ticker.C:
		}
	}
}

// apply creates the Cluster; one that is there already stays as it is.
func apply(ctx context.Context, api, dir string, document []byte) error {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt is not PEM")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	req, err := http.NewRequestWithContext(ctx, "POST", api+"/apis/operatord.io/v1alpha1/namespaces/default/clusters", bytes.NewReader(document))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	req.Header.Set("Content-Type", "application/yaml")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusConflict {
		return errors.New(resp.Status + ": " + string(body))
	}
	return nil
}
