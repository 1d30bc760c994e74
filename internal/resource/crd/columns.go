package crd

import (
	"context"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
)

const (
	// freeCells is by how many bytes the cells of a row may be larger than the object.
	freeCells = 64 << 10
	// shortCell is what a cell is cut to when there is no more room, in bytes.
	shortCell = 1 << 10
	// maxVisits is how many values the columns of a row may visit that look for them (wildcards, filters, "..").
	maxVisits = 1_000_000
)

// columns are a version's additionalPrinterColumns behind Name; Age where it declares none. A row costs in
// proportion to the object, however many columns there are.
type columns struct {
	columns []column
	headers func() []metav1.TableColumnDefinition
}

type column struct {
	convertor rest.TableConvertor // of Name and this column
	searches  bool                // its path visits more than one value of each level
	endless   bool                // its path searches in what it finds: what it visits multiplies
}

func newColumns(v *apiextensionsv1.CustomResourceDefinitionVersion) resource.Columns {
	declared := v.AdditionalPrinterColumns
	if len(declared) == 0 {
		declared = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name:        "Age",
			Type:        "date",
			Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			JSONPath:    ".metadata.creationTimestamp",
		}}
	}
	c := &columns{}
	for i, d := range declared {
		convertor, err := tableconvertor.New(declared[i : i+1])
		if err != nil {
			// A column whose path can't be read leaves those before it, as upstream prints them.
			declared = declared[:i]
			break
		}
		c.columns = append(c.columns, column{
			convertor: convertor,
			searches:  strings.Contains(d.JSONPath, "..") || strings.ContainsAny(d.JSONPath, "*?:,"),
			endless:   strings.Count(d.JSONPath, "..") > 1,
		})
	}
	c.headers = sync.OnceValue(func() []metav1.TableColumnDefinition {
		all, _ := tableconvertor.New(declared)
		table, err := all.ConvertToTable(context.Background(), &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}, nil)
		if err != nil {
			return nil
		}
		return table.ColumnDefinitions
	})
	return c
}

func (c *columns) Definitions() []metav1.TableColumnDefinition { return c.headers() }

func (c *columns) Cells(json []byte) ([]any, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(json, &u.Object); err != nil {
		return nil, err
	}
	cells := make([]any, 1, 1+len(c.columns))
	cells[0] = u.GetName()
	room, visits, visit := len(json)+freeCells, maxVisits, 0
	for _, column := range c.columns {
		if column.searches {
			if visit == 0 {
				visit = visited(u.Object, 1)
			}
			if visits -= visit; visits < 0 || column.endless {
				cells = append(cells, nil)
				continue
			}
		}
		table, err := column.convertor.ConvertToTable(context.Background(), u, &metav1.TableOptions{NoHeaders: true})
		if err != nil {
			return nil, err
		}
		cell := table.Rows[0].Cells[1]
		if text, ok := cell.(string); ok {
			if len(text) > max(room, shortCell) {
				text = strings.ToValidUTF8(text[:shortCell], "")
				cell = text
			}
			room -= len(text)
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// visited is how many values a search looks at in a value of a level: each once for each level around it, since the
// library collects what is inside a level once for that level.
func visited(v any, level int) int {
	sum := level
	switch v := v.(type) {
	case map[string]any:
		for _, f := range v {
			sum += visited(f, level+1)
		}
	case []any:
		for _, e := range v {
			sum += visited(e, level+1)
		}
	}
	return sum
}
