package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"operatord.io/operatord/internal/apiserver/table"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// writeObject answers with an object in the form that was negotiated.
func (x *exchange) writeObject(code int, o *watchcache.Object) {
	switch x.accept.convert.Kind {
	case "":
		if x.accept.media == mediaProtobuf {
			x.writeProtobuf(code, o)
			return
		}
		b, err := o.JSON(x.version)
		if err != nil {
			x.fail(err)
			return
		}
		x.sendJSON(code, x.accept, b)
	case "Table":
		x.writeTable(code, []*watchcache.Object{o}, table.Meta{ResourceVersion: revision(o.Rev())})
	case "PartialObjectMetadata":
		b, err := o.JSON(x.version)
		if err != nil {
			x.fail(err)
			return
		}
		x.writePartial(code, b)
	default:
		x.fail(notAcceptable(fmt.Sprintf("you requested %s, but the requested object is not a list (%s)", x.accept.convert.Kind, goType(x.kind, x.kind.Kind))))
	}
}

func (x *exchange) writeProtobuf(code int, o *watchcache.Object) {
	hub, err := o.Hub(x.version)
	if err != nil {
		x.fail(err)
		return
	}
	b, err := x.version.Codec.Protobuf(hub)
	if err != nil {
		x.fail(err)
		return
	}
	x.send(code, mediaProtobuf, b)
}

// writePartial answers with the metadata of an object given as JSON.
func (x *exchange) writePartial(code int, obj []byte) {
	b, err := table.AppendPartial(nil, obj, x.accept.convert.Version)
	if err != nil {
		x.fail(err)
		return
	}
	if x.accept.media == mediaProtobuf {
		var p metav1.PartialObjectMetadata
		if err := json.Unmarshal(b, &p); err != nil {
			x.fail(err)
			return
		}
		x.encode(code, x.accept, &p)
		return
	}
	x.sendJSON(code, x.accept, b)
}

// writeBody answers with an object of another kind: a Scale, a Status.
func (x *exchange) writeBody(code int, obj runtime.Object) {
	if s, ok := obj.(*metav1.Status); ok {
		s = s.DeepCopy()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		if s.Code == 0 && s.Status == metav1.StatusSuccess && code == http.StatusCreated {
			s.Code = int32(code)
		}
		x.encode(code, accepted{media: x.accept.media, pretty: x.accept.pretty}, s)
		return
	}
	if x.accept.convert.Kind == "PartialObjectMetadata" {
		m, err := meta.Accessor(obj)
		if err != nil {
			x.fail(err)
			return
		}
		p := meta.AsPartialObjectMetadata(m)
		p.SetGroupVersionKind(x.accept.convert)
		x.encode(code, x.accept, p)
		return
	}
	x.encode(code, x.accept, obj)
}

// writeList answers with a list in the form that was negotiated.
func (x *exchange) writeList(l *watchcache.List) {
	switch x.accept.convert.Kind {
	case "":
		if x.accept.media == mediaProtobuf {
			x.writeProtobufList(l)
			return
		}
		x.writeItems(l, x.version.GVK.GroupVersion().String(), x.kind.ListKind, x.item)
	case "Table":
		x.writeTable(http.StatusOK, l.Objects, table.Meta{ResourceVersion: revision(l.Rev), Continue: l.Continue, Remaining: l.Remaining})
	case "PartialObjectMetadataList":
		if x.accept.media == mediaProtobuf {
			x.writePartialProtobufList(l)
			return
		}
		var scratch []byte
		x.writeItems(l, x.accept.convert.GroupVersion().String(), x.accept.convert.Kind, func(add func([]byte), o *watchcache.Object) error {
			b, err := o.JSON(x.version)
			if err != nil {
				return err
			}
			if scratch, err = table.AppendPartial(scratch[:0], b, x.accept.convert.Version); err == nil {
				add(scratch)
			}
			return err
		})
	default:
		x.fail(notAcceptable(fmt.Sprintf("you requested %s, but the requested object is a list (%s)", x.accept.convert.Kind, goType(x.kind, x.kind.ListKind))))
	}
}

// itemWriter hands the JSON of one item to add, piece by piece. add copies what it is given.
type itemWriter func(add func([]byte), o *watchcache.Object) error

// item is an object as a list carries it: items of built-in kinds have neither apiVersion nor kind.
func (x *exchange) item(add func([]byte), o *watchcache.Object) error {
	b, err := o.JSON(x.version)
	if err != nil {
		return err
	}
	if !x.kind.Custom {
		if b, err = withoutKind(b); err != nil {
			return err
		}
		add([]byte{'{'})
	}
	add(b)
	return nil
}

// withoutKind is an object behind its opening brace, kind and apiVersion, which encoders put in front.
func withoutKind(obj []byte) ([]byte, error) {
	rest := obj[1:]
	for _, field := range [...]string{`"kind":"`, `"apiVersion":"`, `"kind":"`} {
		if bytes.HasPrefix(rest, []byte(field)) {
			end := bytes.IndexByte(rest[len(field):], '"')
			if end < 0 {
				return nil, errors.New("apiserver: an object's JSON is broken at its kind")
			}
			rest = bytes.TrimPrefix(rest[len(field)+end+1:], []byte(","))
		}
	}
	return rest, nil
}

// writeItems streams a list: its items stand one after the other as they lie in the store.
func (x *exchange) writeItems(l *watchcache.List, apiVersion, kind string, item itemWriter) {
	head := x.listHead(l, apiVersion, kind)
	tail := "]}\n"
	if len(l.Objects) == 0 && !x.accept.convert.Empty() {
		head, tail = append(head, "null"...), "}\n" // as the real server does
	} else {
		head = append(head, '[')
	}

	// Whatever can fail fails before the first byte is written.
	size := len(head)
	for _, o := range l.Objects {
		if _, err := o.JSON(x.version); err != nil {
			x.fail(err)
			return
		}
		size += len(o.KV().Value)
	}
	if x.accept.media != mediaJSON || x.accept.pretty {
		b := bytes.NewBuffer(head)
		if err := eachItem(l, item, func(p []byte) { b.Write(p) }); err != nil {
			x.fail(err)
			return
		}
		b.WriteString(tail)
		x.sendJSON(http.StatusOK, x.accept, b.Bytes())
		return
	}
	s := x.begin(http.StatusOK, mediaJSON, size)
	s.add(head)
	if err := eachItem(l, item, s.add); err != nil && s.err == nil {
		s.err = err
	}
	s.add([]byte(tail))
	s.end()
}

// listHead is a list up to its items.
func (x *exchange) listHead(l *watchcache.List, apiVersion, kind string) []byte {
	b := append(make([]byte, 0, 256), `{"kind":`...)
	b = strconv.AppendQuote(b, kind)
	b = append(b, `,"apiVersion":`...)
	b = strconv.AppendQuote(b, apiVersion)
	b = append(b, `,"metadata":{"resourceVersion":"`...)
	b = append(b, revision(l.Rev)...)
	b = append(b, '"')
	if l.Continue != "" || x.kind.Custom && x.accept.convert.Empty() {
		b = append(b, `,"continue":`...)
		b = strconv.AppendQuote(b, l.Continue)
	}
	if l.Remaining != nil {
		b = append(b, `,"remainingItemCount":`...)
		b = strconv.AppendInt(b, *l.Remaining, 10)
	}
	return append(b, `},"items":`...)
}

func eachItem(l *watchcache.List, item itemWriter, add func([]byte)) error {
	for i, o := range l.Objects {
		if i > 0 {
			add([]byte{','})
		}
		if err := item(add, o); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) writeTable(code int, objects []*watchcache.Object, m table.Meta) {
	opts, err := x.tableOptions()
	if err != nil {
		x.fail(err)
		return
	}
	w := table.New(x.version, opts)
	b, err := w.Begin(nil, m)
	for _, o := range objects {
		if err != nil {
			break
		}
		var obj []byte
		if obj, err = o.JSON(x.version); err == nil {
			b, err = w.Row(b, obj)
		}
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.sendJSON(code, x.accept, w.End(b))
}

// tableOptions are those that the query has for a Table.
func (x *exchange) tableOptions() (table.Options, error) {
	var o metav1.TableOptions
	if err := decodeQuery(x.query, &o); err != nil {
		return table.Options{}, err
	}
	if errs := validation.ValidateTableOptions(&o); len(errs) == 1 {
		return table.Options{}, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v", errs[0].Error()))
	} else if len(errs) > 1 {
		return table.Options{}, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v", errs))
	}
	return table.Options{Version: x.accept.convert.Version, Include: o.IncludeObject}, nil
}

func (x *exchange) writeProtobufList(l *watchcache.List) {
	items := make([][]byte, 0, len(l.Objects))
	for _, o := range l.Objects {
		hub, err := o.Hub(x.version)
		if err != nil {
			x.fail(err)
			return
		}
		raw, err := rawProtobuf(x.version, hub)
		if err != nil {
			x.fail(err)
			return
		}
		items = append(items, raw)
	}
	b, err := protobufList(x.version.GVK.GroupVersion().String(), x.kind.ListKind, listMeta(l), items)
	if err != nil {
		x.fail(err)
		return
	}
	x.send(http.StatusOK, mediaProtobuf, b)
}

func (x *exchange) writePartialProtobufList(l *watchcache.List) {
	out := &metav1.PartialObjectMetadataList{ListMeta: *listMeta(l), Items: make([]metav1.PartialObjectMetadata, len(l.Objects))}
	out.SetGroupVersionKind(x.accept.convert)
	for i, o := range l.Objects {
		b, err := o.JSON(x.version)
		if err == nil {
			b, err = table.AppendPartial(nil, b, x.accept.convert.Version)
		}
		if err == nil {
			err = json.Unmarshal(b, &out.Items[i])
		}
		if err != nil {
			x.fail(err)
			return
		}
	}
	x.encode(http.StatusOK, x.accept, out)
}

func listMeta(l *watchcache.List) *metav1.ListMeta {
	return &metav1.ListMeta{ResourceVersion: revision(l.Rev), Continue: l.Continue, RemainingItemCount: l.Remaining}
}

func revision(r uint64) string {
	if r == 0 {
		return ""
	}
	return strconv.FormatUint(r, 10)
}

// goType is the name under which the real server's messages speak of a kind's objects.
func goType(k *resource.Kind, kind string) string {
	if k.Custom {
		if kind == k.ListKind {
			return "*unstructured.UnstructuredList"
		}
		return "*unstructured.Unstructured"
	}
	pkg := "core"
	if k.Group != "" {
		pkg, _, _ = strings.Cut(k.Group, ".")
	}
	return "*" + pkg + "." + kind
}
