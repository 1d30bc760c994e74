// Package table renders objects as rows of a meta.k8s.io Table, and as PartialObjectMetadata.
//
// Both are made from an object's JSON: cells by the version's columns, metadata by cutting it out of the
// bytes. Nothing is decoded that isn't shown.
package table

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"operatord.io/operatord/internal/resource"
)

// Options of a table.
type Options struct {
	Version   string // of meta.k8s.io: v1 or v1beta1
	NoHeaders bool   // leave the columns' definitions out
	Include   metav1.IncludeObjectPolicy
}

// Meta is what a table says beside its rows. All fields may be empty.
type Meta struct {
	ResourceVersion string
	Continue        string
	Remaining       *int64
}

// Writer appends one Table to a byte slice, row by row.
type Writer struct {
	columns resource.Columns
	opts    Options
	rows    int
}

// New makes a Writer of tables of a kind's version.
func New(v *resource.Version, opts Options) *Writer {
	w := &Writer{columns: v.Columns, opts: opts}
	if w.columns == nil {
		w.columns = nameAndAge{}
	}
	return w
}

// Begin appends everything in front of the rows.
func (w *Writer) Begin(dst []byte, m Meta) ([]byte, error) {
	w.rows = 0
	head := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Definitions     []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.GroupName + "/" + w.opts.Version},
		ListMeta: metav1.ListMeta{ResourceVersion: m.ResourceVersion, Continue: m.Continue, RemainingItemCount: m.Remaining},
	}
	if !w.opts.NoHeaders {
		head.Definitions = w.columns.Definitions()
	}
	b, err := json.Marshal(head)
	if err != nil {
		return dst, fmt.Errorf("table: columns: %w", err)
	}
	dst = append(dst, b[:len(b)-1]...)
	return append(dst, `,"rows":[`...), nil
}

// Row appends one object, given as JSON in the Writer's version.
func (w *Writer) Row(dst, obj []byte) ([]byte, error) {
	return w.row(dst, obj, w.opts.Include)
}

// Bookmark appends the row of a bookmark, which carries metadata whatever else is asked for.
func (w *Writer) Bookmark(dst, obj []byte) ([]byte, error) {
	include := w.opts.Include
	if include == metav1.IncludeNone {
		include = metav1.IncludeMetadata
	}
	return w.row(dst, obj, include)
}

func (w *Writer) row(dst, obj []byte, include metav1.IncludeObjectPolicy) ([]byte, error) {
	cells, err := w.columns.Cells(obj)
	if err != nil {
		return dst, fmt.Errorf("table: cells: %w", err)
	}
	b, err := json.Marshal(cells)
	if err != nil {
		return dst, fmt.Errorf("table: cells: %w", err)
	}
	if w.rows > 0 {
		dst = append(dst, ',')
	}
	w.rows++
	dst = append(dst, `{"cells":`...)
	dst = append(dst, b...)
	dst = append(dst, `,"object":`...)
	switch include {
	case metav1.IncludeObject:
		dst = append(dst, obj...)
	case metav1.IncludeNone:
		dst = append(dst, "null"...)
	default:
		if dst, err = AppendPartial(dst, obj, w.opts.Version); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// End appends everything behind the rows.
func (w *Writer) End(dst []byte) []byte { return append(dst, "]}"...) }

// AppendPartial appends the PartialObjectMetadata of an object given as JSON; version is of meta.k8s.io.
func AppendPartial(dst, obj []byte, version string) ([]byte, error) {
	metadata, err := Field(obj, "metadata")
	if err != nil {
		return dst, err
	}
	if metadata == nil {
		metadata = []byte("{}")
	}
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	dst = append(dst, version...)
	dst = append(dst, `","metadata":`...)
	dst = append(dst, metadata...)
	return append(dst, '}'), nil
}

// nameAndAge are the columns of a kind that declares none.
type nameAndAge struct{}

func (nameAndAge) Definitions() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Age", Type: "date", Description: docs["creationTimestamp"]},
	}
}

func (nameAndAge) Cells(obj []byte) ([]any, error) {
	var o struct {
		Metadata struct {
			Name              string      `json:"name"`
			CreationTimestamp metav1.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(obj, &o); err != nil {
		return nil, err
	}
	return []any{o.Metadata.Name, age(o.Metadata.CreationTimestamp)}, nil
}

// age is how long ago t was, for people.
func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
