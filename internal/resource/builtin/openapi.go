package builtin

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

//go:generate go run generate.go

//go:embed openapi/*.json.gz
var documents embed.FS

// OpenAPI is the published OpenAPI v3 document of a group and version, as JSON; false if there is none. It
// describes all of the group's kinds, those that aren't served too.
func OpenAPI(group, version string) ([]byte, bool) {
	data, err := unpack(documentName(schema.GroupVersion{Group: group, Version: version}) + ".json.gz")
	return data, err == nil
}

func documentName(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api__" + gv.Version
	}
	return "apis__" + gv.Group + "__" + gv.Version
}

// typeConverter makes the field types of the kinds in a set, which is named for its document.
func typeConverter(set string) (managedfields.TypeConverter, error) {
	data, err := unpack(set + ".types.json.gz")
	if err != nil {
		return nil, err
	}
	var schemas map[string]*spec.Schema
	if err := json.Unmarshal(data, &schemas); err != nil {
		return nil, fmt.Errorf("builtin: schemas of %s: %w", set, err)
	}
	types, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("builtin: field types of %s: %w", set, err)
	}
	return types, nil
}

// unpack reads a file that is built in.
func unpack(name string) ([]byte, error) {
	f, err := documents.Open("openapi/" + name)
	if err != nil {
		return nil, fmt.Errorf("builtin: %s isn't built in: %w", name, err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("builtin: %s: %w", name, err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("builtin: %s: %w", name, err)
	}
	return data, nil
}
