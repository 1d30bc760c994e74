package builtin

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

//go:generate go run generate.go

//go:embed openapi/*.json.gz
var documents embed.FS

// OpenAPI is the published OpenAPI v3 document of a group and version, as JSON; false if there is none. It
// describes all of the group's kinds, those that aren't served too.
func OpenAPI(group, version string) ([]byte, bool) {
	name := "apis__" + group + "__" + version
	if group == "" {
		name = "api__" + version
	}
	packed, err := documents.ReadFile("openapi/" + name + ".json.gz")
	if err != nil {
		return nil, false
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, false
	}
	data, err := io.ReadAll(r)
	return data, err == nil
}

// typeConverter makes the field types of a group and version from its published document.
func typeConverter(group, version string) (managedfields.TypeConverter, error) {
	data, ok := OpenAPI(group, version)
	if !ok {
		return nil, fmt.Errorf("builtin: no OpenAPI document of %s/%s is built in", group, version)
	}
	var doc struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("builtin: OpenAPI document of %s/%s: %w", group, version, err)
	}
	types, err := managedfields.NewTypeConverter(doc.Components.Schemas, false)
	if err != nil {
		return nil, fmt.Errorf("builtin: field types of %s/%s: %w", group, version, err)
	}
	return types, nil
}
