package builtin

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"operatord.io/operatord/internal/resource"
)

// columns print one version's Go type as a row, as Kubernetes' own printers do.
type columns[T any] struct {
	definitions []metav1.TableColumnDefinition
	cells       func(*T) []any
}

func newColumns[T any](cells func(*T) []any, definitions ...metav1.TableColumnDefinition) resource.Columns {
	return &columns[T]{definitions, cells}
}

func (c *columns[T]) Definitions() []metav1.TableColumnDefinition { return c.definitions }

func (c *columns[T]) Cells(data []byte) ([]any, error) {
	obj := new(T)
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, err
	}
	return c.cells(obj), nil
}

func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// wide is a column that is shown when more is asked for.
func wide(name, kind, description string) metav1.TableColumnDefinition {
	d := column(name, kind, description)
	d.Priority = 1
	return d
}

func nameColumn() metav1.TableColumnDefinition {
	d := column("Name", "string", metaDoc("name"))
	d.Format = "name"
	return d
}

func ageColumn() metav1.TableColumnDefinition {
	return column("Age", "string", metaDoc("creationTimestamp"))
}

// age is how long ago t was, for people.
func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// orNone is s, or a mark that there is nothing.
func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
