package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// intoFIFO prepares a daemon whose standard error is a FIFO of one page, and opens that for reading.
func intoFIFO(t *testing.T) (*env, *os.File) {
	t.Helper()
	dir := t.TempDir()
	fifo, bin := filepath.Join(dir, "stderr"), filepath.Join(dir, "start")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" 2>%s\n", binary(t, "OPERATORD_RACE_BIN", "operatord-race"), fifo)
	if err := os.WriteFile(bin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0) // no end of file before the daemon writes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	const setPipeSize = 1031 // F_SETPIPE_SZ
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, reader.Fd(), setPipeSize, 4096); errno != 0 {
		t.Fatal(errno)
	}
	data, err := os.MkdirTemp("", "operatord-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	return prepareIn(t, daemon.Options{Bin: bin, Dir: data, Args: []string{"--log-level=debug"}}), reader
}

// makeKinds creates CRDs, each of which is logged, and uses the last one.
func (e *env) makeKinds(n int) {
	e.t.Helper()
	for i := range n {
		crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kind%[1]ds.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: kind%[1]ds, singular: kind%[1]d, kind: Kind%[1]d}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, i)
		if err := e.Create(e.ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, nil); err != nil {
			e.t.Fatal(err)
		}
	}
	e.eventually("the last kind is served", func() error {
		return e.Get(e.ctx, fmt.Sprintf("/apis/example.com/v1/kind%ds", n-1), nil)
	})
}

// `serve 2>&1 | head -1`: the reader of its output is gone. It goes on, counts what nobody reads, and stops when told.
func TestOutputWithoutAReader(t *testing.T) {
	e, reader := intoFIFO(t)
	if err := e.Launch(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(reader).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	reader.Close()
	if err := e.WaitReady(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.makeKinds(5)
	e.createCluster("demo", 2)
	e.ready("demo", 2)
	e.eventually("lines are counted", func() error {
		text, err := e.Metrics(e.ctx)
		if err == nil && strings.Contains(text, "\noperatord_log_lines_dropped_total 0\n") {
			err = fmt.Errorf("none was dropped")
		}
		return err
	})
	if err := e.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A reader that stalls: the pipe is full. Nothing waits for it, the end on SIGTERM among it.
func TestOutputWithAReaderThatStalls(t *testing.T) {
	e, _ := intoFIFO(t)
	e.start()
	e.makeKinds(45)
	e.createCluster("demo", 2)
	e.ready("demo", 2)
	if err := e.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
