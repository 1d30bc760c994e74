//go:build ignore

// Command generate copies the published OpenAPI v3 documents of the groups that are served out of the
// k8s.io/kubernetes module that go.mod names, compressed, into openapi/; and the definitions that custom
// resources refer to into ../crd/definitions.json.
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

var documents = []string{
	"api__v1",
	"apis__apiextensions.k8s.io__v1",
	"apis__apps__v1",
	"apis__batch__v1",
	"apis__coordination.k8s.io__v1",
	"apis__events.k8s.io__v1",
}

func main() {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		log.Fatalf("find the k8s.io/kubernetes module: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "api", "openapi-spec", "v3")
	for _, name := range documents {
		data, err := os.ReadFile(filepath.Join(dir, name+"_openapi.json"))
		if err != nil {
			log.Fatal(err)
		}
		var small, packed bytes.Buffer
		if err := json.Compact(&small, data); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		// Without a time and a name in its header the same document makes the same bytes.
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if _, err := w.Write(small.Bytes()); err != nil {
			log.Fatal(err)
		}
		if err := w.Close(); err != nil {
			log.Fatal(err)
		}
		write(filepath.Join("openapi", name+".json.gz"), packed.Bytes())
	}
	definitions(filepath.Join(dir, "apis__apps__v1_openapi.json"))
}

// definitions writes Scale and everything that it refers to.
func definitions(document string) {
	data, err := os.ReadFile(document)
	if err != nil {
		log.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		log.Fatalf("%s: %v", document, err)
	}
	found := map[string]json.RawMessage{}
	var add func(name string)
	add = func(name string) {
		if found[name] != nil {
			return
		}
		found[name] = doc.Components.Schemas[name]
		for _, part := range strings.Split(string(found[name]), `"#/components/schemas/`)[1:] {
			ref, _, _ := strings.Cut(part, `"`)
			add(ref)
		}
	}
	add("io.k8s.api.autoscaling.v1.Scale")
	out, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		log.Fatal(err)
	}
	write(filepath.Join("..", "crd", "definitions.json"), append(out, '\n'))
}

func write(name string, data []byte) {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		log.Fatal(err)
	}
}
