package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"operatord.io/operatord/test/daemon"
)

// recordedDirectories are data directories that commit f14d261 left, with its processes, over limits that came
// later and of templates that may be refused today; beside each stands what it answered of them.
const recordedDirectories = "../../internal/storage/bolt/testdata/recorded"

// identity is what an object keeps over an upgrade.
type identity struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// recordedDirectory gives a daemon on a copy of a recorded directory, and what was answered of it, by
// "collection namespace/name".
func recordedDirectory(t *testing.T, name string, args ...string) (*env, map[string]identity) {
	t.Helper()
	dir, err := os.MkdirTemp("", "operatord-recorded-")
	if err != nil {
		t.Fatal(err)
	}
	e := prepareIn(t, daemon.Options{Bin: binary(t, "OPERATORD_RACE_BIN", "operatord-race"), Dir: dir, Args: args})
	archive := filepath.Join(recordedDirectories, name+".tar.gz")
	if out, err := exec.CommandContext(e.ctx, "tar", "--no-same-owner", "-xpzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, out)
	}
	data, err := os.ReadFile(filepath.Join(recordedDirectories, name+".api.json"))
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]identity{}
	if err := json.Unmarshal(data, &answered); err != nil {
		t.Fatal(err)
	}
	return e, answered
}

// identities lists the collections that were recorded.
func (e *env) identities(answered map[string]identity) map[string]identity {
	e.t.Helper()
	found, seen := map[string]identity{}, map[string]bool{}
	for object := range answered {
		collection, _, _ := strings.Cut(object, " ")
		if seen[collection] {
			continue
		}
		seen[collection] = true
		var list struct {
			Items []struct {
				Metadata struct {
					Namespace, Name string
					identity
				} `json:"metadata"`
			} `json:"items"`
		}
		if err := e.Get(e.ctx, collection, &list); err != nil {
			e.t.Errorf("%s was served and is not: %v", collection, err)
			continue
		}
		for _, o := range list.Items {
			found[fmt.Sprintf("%s %s/%s", collection, o.Metadata.Namespace, o.Metadata.Name)] = o.Metadata.identity
		}
	}
	return found
}

// TestServesRecordedDirectories: each object that an earlier daemon served is served under the same uid at the same
// revision, whatever today's limits would say of it.
func TestServesRecordedDirectories(t *testing.T) {
	for _, name := range []string{"killed", "stopped", "both"} {
		t.Run(name, func(t *testing.T) {
			e, answered := recordedDirectory(t, name, "--operators", "")
			e.start()
			found := e.identities(answered)
			for object, was := range answered {
				is := found[object]
				if strings.HasSuffix(object, "/customresourcedefinitions /leases.coordination.k8s.io") {
					was.ResourceVersion = is.ResourceVersion // its conditions say now that it isn't served
				}
				if is != was {
					t.Errorf("%s: %+v, was %+v", object, is, was)
				}
			}
			if len(found) != len(answered) {
				t.Errorf("%d objects, were %d: %v", len(found), len(answered), found)
			}
			// What is over a limit of today's can still be changed where it doesn't get worse, and deleted.
			e.kubectl("label", "cluster", "vast", "touched=yes")
			e.kubectl("label", "configmap", "large-1", "touched=yes")
			e.kubectl("annotate", "pod", "gated", "touched=yes")
			e.kubectl("delete", "cluster", "vast")

			// A CRD that was taken for Lease's own goes, and no Lease goes with it.
			leases := e.kubectl("get", "leases", "-A", "-o", "name")
			e.kubectl("delete", "crd", "leases.coordination.k8s.io", "--timeout", "30s")
			if left := e.kubectl("get", "leases", "-A", "-o", "name"); left != leases {
				t.Errorf("Leases were %q and are %q", leases, left)
			}
		})
	}
}

// TestRunsRecordedDirectories starts the operators on a recorded directory, as after a reboot: Pods run again as they
// were, Clusters have dead members replaced, and nothing that was paused begins.
func TestRunsRecordedDirectories(t *testing.T) {
	e, answered := recordedDirectory(t, "both")
	e.start()
	e.eventually("what ran runs again", func() error {
		for _, name := range []string{"demo-0", "demo-1", "gated-0", "gated", "plain"} {
			var p Pod
			if err := e.Get(e.ctx, pods+"/"+name, &p); err != nil {
				return err
			}
			if !daemon.Alive(p.pid()) {
				return fmt.Errorf("%s doesn't run: phase %s", name, p.Status.Phase)
			}
		}
		return nil
	})
	e.ready("demo", 2)
	e.ready("gated", 1)
	// A member of a Cluster that is older than the judging of Pods is replaced, and says what it goes without.
	dead := e.pod("gated-0")
	if err := syscall.Kill(dead.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.eventually("a member that asks for much is replaced", func() error {
		for _, p := range e.pods("gated") {
			if p.Metadata.UID != dead.Metadata.UID && daemon.Alive(p.pid()) {
				if why := e.kubectl("get", "pod", p.Metadata.Name, "-o", `jsonpath={.status.conditions[?(@.type=="operatord.io/Honoured")].message}`); !strings.HasPrefix(why, "runs without spec.") {
					return fmt.Errorf("%s says %q", p.Metadata.Name, why)
				}
				return nil
			}
		}
		return fmt.Errorf("%v", e.pods("gated"))
	})
	found := e.identities(answered)
	for object, was := range answered {
		collection, name, _ := strings.Cut(object, " ")
		switch {
		case strings.HasSuffix(collection, "/events"): // they are for a while
		case collection == "/api/v1/pods" && name != "default/gated" && name != "default/plain": // members
		case found[object].UID != was.UID:
			t.Errorf("%s has uid %q, had %q", object, found[object].UID, was.UID)
		}
	}
	if pods := e.pods("vast"); len(pods) != 0 {
		t.Errorf("a paused Cluster has got members: %v", pods)
	}
}
