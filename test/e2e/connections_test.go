package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"operatord.io/operatord/test/daemon"
)

// With 100 descriptors, a client that nobody knows opens 150 connections to each address and does nothing with
// them, or only begins something: a handshake, the head of a request. Users are answered, on all listeners, Pods are
// started and probed, and the store goes on.
func TestConnectionsOfNobody(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "start")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n 100\nexec %s \"$@\"\n", binary(t, "OPERATORD_RACE_BIN", "operatord-race"))
	if err := os.WriteFile(bin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "operatord-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	e := prepareIn(t, daemon.Options{Bin: bin, Dir: dir})
	e.start()

	api, plain := strings.TrimPrefix(e.Endpoints.API, "https://"), strings.TrimPrefix(e.Endpoints.HTTP, "http://")
	var open []net.Conn
	crowd := func() {
		t.Helper()
		for range 50 {
			for address, begins := range map[string][]string{
				api:   {"", "\x16\x03\x01\x02\x00\x01\x00", "tls"}, // a record of 512 bytes, of which 2 come
				plain: {"", "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"},
			} {
				for _, begin := range begins {
					c, err := net.DialTimeout("tcp", address, 10*time.Second)
					if err != nil {
						t.Fatalf("the listener is out of reach: %v", err)
					}
					open = append(open, c)
					if begin == "tls" {
						// A whole handshake, and then the head of a request that doesn't end.
						c.SetDeadline(time.Now().Add(10 * time.Second))
						fmt.Fprint(tls.Client(c, &tls.Config{InsecureSkipVerify: true}), "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: ")
						continue
					}
					fmt.Fprint(c, begin)
				}
			}
		}
	}
	t.Cleanup(func() {
		for _, c := range open {
			c.Close()
		}
	})
	crowd()
	e.createCluster("demo", 3)
	e.ready("demo", 3)
	crowd()
	// A new connection, as kubectl makes one each time.
	e.kubectl("create", "configmap", "one", "--from-literal=a=b")
	if _, err := e.Metrics(e.ctx); err != nil {
		t.Errorf("metrics: %v", err)
	}
	resp, err := e.Socket().Get("http://operatord/api/v1/namespaces/default/configmaps/one")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("over the socket: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if code, body, err := e.Do(e.ctx, "GET", "/readyz", "", nil); err != nil || code != 200 {
		t.Errorf("/readyz: %d %s %v", code, body, err)
	}
	for _, listener := range []string{"api", "http"} {
		if closed := e.metric(fmt.Sprintf("operatord_connections_closed_total{listener=%q}", listener)); closed < 200 {
			t.Errorf("%s: %v connections made room", listener, closed)
		}
	}
	if n := strings.Count(e.Log(), "as many connections are open"); n != 2 {
		t.Errorf("said %d times, want once for each listener:\n%s", n, e.Log())
	}
	for _, line := range strings.Split(e.Log(), "\n") {
		if strings.Contains(line, "too many open files") || strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
	}
}
