package crd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func columnsOf(n int, path string) *apiextensionsv1.CustomResourceDefinitionVersion {
	v := &apiextensionsv1.CustomResourceDefinitionVersion{}
	for i := range n {
		v.AdditionalPrinterColumns = append(v.AdditionalPrinterColumns,
			apiextensionsv1.CustomResourceColumnDefinition{Name: fmt.Sprint("c", i), Type: "string", JSONPath: path})
	}
	return v
}

// However many columns there are, and whatever they look for, a row stays as large as its object.
func TestColumnsDoNotMultiply(t *testing.T) {
	long := `{"metadata":{"name":"a"},"spec":{"a":"` + strings.Repeat("x", 500<<10) + `"}}`
	deep := `{"metadata":{"name":"a"},"spec":` + strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000) + "}"
	for _, c := range []struct {
		name, path, object string
		columns            int
	}{
		{"a long value", ".spec.a", long, 200},
		{"a long value by a wildcard", ".spec.*", long, 200},
		{"a deep object", ".spec..a", deep, 50},
		{"searches in what was found", ".spec" + strings.Repeat("..a", 20), `{"spec":` + strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 61), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			cells, err := newColumns(columnsOf(c.columns, c.path)).Cells([]byte(c.object))
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			row, err := json.Marshal(cells)
			if err != nil {
				t.Fatal(err)
			}
			if len(cells) != 1+c.columns {
				t.Errorf("%d cells", len(cells))
			}
			if most := len(c.object) + freeCells + c.columns*(shortCell+8); len(row) > most {
				t.Errorf("the row has %d bytes, want at most %d", len(row), most)
			}
		})
	}
}

func TestColumnsPrintWhatTheyFind(t *testing.T) {
	for path, want := range map[string]any{
		".spec.a": "x", ".spec..b": "y", ".spec.list[*].b": "y", ".spec.none": nil,
	} {
		cells, err := newColumns(columnsOf(1, path)).Cells([]byte(`{"metadata":{"name":"n"},"spec":{"a":"x","list":[{"b":"y"},{"b":"z"}]}}`))
		if err != nil || len(cells) != 2 || cells[0] != "n" || cells[1] != want {
			t.Errorf("%s: %v, %v; want %v", path, cells, err, want)
		}
	}
}
