package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStopSignalIsObeyed: a Pod is asked to end by the signal that it declares.
func TestStopSignalIsObeyed(t *testing.T) {
	e := start(t)
	said := filepath.Join(t.TempDir(), "said")
	pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asked"},"spec":{"os":{"name":"linux"},"restartPolicy":"Never",
		"containers":[{"name":"main","image":"host","lifecycle":{"stopSignal":"SIGUSR1"},
		"command":["/bin/sh","-c","trap 'echo USR1 >%[1]s; exit' USR1; trap 'echo TERM >%[1]s; exit' TERM; touch %[1]s; while :; do sleep 0.05; done"]}]}}`, said)
	if err := e.Create(e.ctx, pods, pod, nil); err != nil {
		t.Fatal(err)
	}
	e.eventually("it listens", func() error { _, err := os.Stat(said); return err })
	e.kubectl("delete", "pod", "asked", "--timeout=60s")
	if data, err := os.ReadFile(said); err != nil || strings.TrimSpace(string(data)) != "USR1" {
		t.Errorf("it was asked by %q, %v", data, err)
	}
}
