package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// neverReady is a template whose member runs and never gets ready.
var neverReady = []string{
	`template:`,
	`  spec:`,
	`    containers:`,
	`    - name: main`,
	`      image: host`,
	`      command: [sleep, "100000"]`,
	`      readinessProbe: {periodSeconds: 1, exec: {command: ["false"]}}`,
}

// createMany submits 40 one-member Clusters together: two without their backup, three that never get ready.
func createMany(e *env) (good, bad []string) {
	e.t.Helper()
	var group sync.WaitGroup
	for i := range 40 {
		name := fmt.Sprintf("many%d", i)
		var more []string
		switch {
		case i%20 == 7:
			more = []string{"restoreFrom: missing"}
		case i%13 == 5:
			more = neverReady
		}
		if more == nil {
			good = append(good, name)
		} else {
			bad = append(bad, name)
		}
		group.Go(func() {
			if err := e.Create(e.ctx, clusters, clusterYAML(name, 1, more...), nil); err != nil {
				e.t.Error(err)
			}
		})
	}
	group.Wait()
	return good, bad
}

// Point 5: a Cluster that can't be had delays no other.
func TestManyAtOnce(t *testing.T) {
	e := start(t)
	good, bad := createMany(e)
	if len(good) != 35 || len(bad) != 5 {
		t.Fatalf("%d good and %d bad Clusters", len(good), len(bad))
	}
	phases := map[string]string{}
	waiting := errors.New("not yet")
	err := e.Watch(e.ctx, clusters+"?watch=1", func(ev daemon.Event) bool {
		c := new(Cluster)
		if err := json.Unmarshal(ev.Object, c); err != nil {
			t.Error(err)
			return false
		}
		phases[c.Metadata.Name] = c.Status.Phase
		n := 0
		for _, name := range good {
			if phases[name] == "Ready" {
				n++
			}
		}
		if n == len(good) {
			waiting = nil
		}
		return waiting != nil
	})
	if waiting != nil {
		t.Fatalf("not all of the %d good ones got ready: %v; phases: %v", len(good), err, phases)
	}
	for _, name := range bad {
		c := e.cluster(name)
		if c.Status.Phase == "Ready" {
			t.Errorf("%s is Ready: %s", name, c)
		}
	}
	e.eventually("phases as metrics", func() error {
		if n := e.metric(`operatord_resources{kind="Cluster",phase="Ready"}`); n != 35 {
			return fmt.Errorf("%v Ready", n)
		}
		if n := e.metric(`operatord_resources{kind="Cluster",phase="Degraded"}`); n != 2 {
			return fmt.Errorf("%v Degraded", n)
		}
		return nil
	})
	if n := e.metric(`operatord_reconcile_total{controller="cluster",result="panic"}`); n != 0 {
		t.Errorf("%v panics", n)
	}
}

// What can't run says so, and says what to do.
func TestImageThatCannotBeHad(t *testing.T) {
	e := start(t, "--host-images", "host,busybox*")
	for name, image := range map[string]string{"foreign": "nginx:1.27", "meant": "busybox:1.36"} {
		pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec: {containers: [{name: main, image: %q, command: [sleep, \"1000\"]}]}\n", name, image)
		if err := e.Create(e.ctx, pods, pod, nil); err != nil {
			t.Fatal(err)
		}
	}
	e.kubectl("wait", "--for=condition=Ready", "pod/meant", "--timeout=60s")
	e.eventually("the other waits with the reason", func() error {
		out := e.kubectl("get", "pod", "foreign", "-o", "jsonpath={.status.containerStatuses[0].state.waiting}")
		if !strings.Contains(out, "ErrImagePull") || !strings.Contains(out, "--host-images") {
			return fmt.Errorf("waiting: %s", out)
		}
		return nil
	})
}
