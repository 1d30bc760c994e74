//go:build ignore

// Command generate takes out of the k8s.io/kubernetes module that go.mod names, for the groups that are
// served:
//
//	openapi/NAME.json.gz       the published OpenAPI v3 document
//	openapi/SET.types.json.gz  schemas of kinds that are served, without descriptions; usually all of a
//	                           document's, but what has many types is a set of its own
//	../crd/definitions.json    the definitions that custom resources refer to
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sets have the definitions of the kinds that are served, and of subresources' bodies. Their names begin with
// their document's.
var sets = map[string][]string{
	"api__v1": {
		"io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Event", "io.k8s.api.core.v1.Namespace",
		"io.k8s.api.core.v1.Node", "io.k8s.api.core.v1.Secret", "io.k8s.api.core.v1.ServiceAccount",
	},
	"api__v1.Pod":                    {"io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Binding"},
	"apis__apiextensions.k8s.io__v1": {"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"},
	"apis__apps__v1": {
		"io.k8s.api.apps.v1.Deployment", "io.k8s.api.apps.v1.ReplicaSet", "io.k8s.api.apps.v1.StatefulSet", "io.k8s.api.autoscaling.v1.Scale",
	},
	"apis__batch__v1":               {"io.k8s.api.batch.v1.CronJob", "io.k8s.api.batch.v1.Job"},
	"apis__coordination.k8s.io__v1": {"io.k8s.api.coordination.v1.Lease"},
	"apis__events.k8s.io__v1":       {"io.k8s.api.events.v1.Event"},
	"apis__rbac.authorization.k8s.io__v1": {
		"io.k8s.api.rbac.v1.ClusterRole", "io.k8s.api.rbac.v1.ClusterRoleBinding", "io.k8s.api.rbac.v1.Role", "io.k8s.api.rbac.v1.RoleBinding",
	},
}

func main() {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		log.Fatalf("find the k8s.io/kubernetes module: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "api", "openapi-spec", "v3")
	for name, kinds := range sets {
		data := read(document(dir, name))
		types, err := json.Marshal(undescribed(reachable(data, kinds...)))
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		pack(filepath.Join("openapi", name+".types.json.gz"), types)
		if strings.HasSuffix(name, ".Pod") {
			continue // its document belongs to another set
		}
		var small bytes.Buffer
		if err := json.Compact(&small, data); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		pack(filepath.Join("openapi", name+".json.gz"), small.Bytes())
	}
	scale := reachable(read(document(dir, "apis__apps__v1")), "io.k8s.api.autoscaling.v1.Scale")
	out, err = json.MarshalIndent(scale, "", " ")
	if err != nil {
		log.Fatal(err)
	}
	write(filepath.Join("..", "crd", "definitions.json"), append(out, '\n'))
}

func document(dir, set string) string {
	return filepath.Join(dir, strings.TrimSuffix(set, ".Pod")+"_openapi.json")
}

// reachable are a document's schemas of these names and all that they refer to.
func reachable(text []byte, names ...string) map[string]any {
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		log.Fatal(err)
	}
	found := map[string]any{}
	var add func(name string)
	add = func(name string) {
		if found[name] != nil {
			return
		}
		raw, ok := doc.Components.Schemas[name]
		if !ok {
			log.Fatalf("no schema %s in the document", name)
		}
		found[name] = raw
		for _, part := range strings.Split(string(raw), `"#/components/schemas/`)[1:] {
			ref, _, _ := strings.Cut(part, `"`)
			add(ref)
		}
	}
	for _, name := range names {
		add(name)
	}
	return found
}

// undescribed is JSON without descriptions. A property that is called description is an object and stays.
func undescribed(v any) any {
	switch v := v.(type) {
	case json.RawMessage:
		var inside any
		if err := json.Unmarshal(v, &inside); err != nil {
			log.Fatal(err)
		}
		return undescribed(inside)
	case map[string]any:
		for name, value := range v {
			if _, text := value.(string); text && name == "description" {
				delete(v, name)
				continue
			}
			v[name] = undescribed(value)
		}
	case []any:
		for i := range v {
			v[i] = undescribed(v[i])
		}
	}
	return v
}

func read(name string) []byte {
	data, err := os.ReadFile(name)
	if err != nil {
		log.Fatal(err)
	}
	return data
}

// pack writes compressed. Without a time and a name in its header the same content makes the same bytes.
func pack(name string, data []byte) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	write(name, packed.Bytes())
}

func write(name string, data []byte) {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		log.Fatal(err)
	}
}
