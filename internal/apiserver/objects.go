package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
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
		x.writeStored(code, o)
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

// writeStored answers with an object's JSON as it lies in the store.
func (x *exchange) writeStored(code int, o *watchcache.Object) {
	if x.accept.media != mediaJSON || x.accept.pretty {
		b, err := o.JSON(x.version)
		if err != nil {
			x.fail(err)
			return
		}
		x.sendJSON(code, x.accept, b)
		return
	}
	s := x.begin(code, mediaJSON, len(o.KV().Value))
	err := s.appending(func(dst []byte) ([]byte, error) {
		dst, err := o.AppendJSON(dst, x.version)
		return append(dst, '\n'), err
	})
	if err != nil {
		s.drop(err)
		return
	}
	s.end()
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
	if s, ok := obj.(*autoscalingv1.Scale); ok && x.accept.convert.Kind == "Table" {
		x.writeScaleTable(code, s)
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

func (x *exchange) writeScaleTable(code int, s *autoscalingv1.Scale) {
	opts, err := x.tableOptions()
	if err != nil {
		x.fail(err)
		return
	}
	obj, err := json.Marshal(s)
	if err != nil {
		x.fail(err)
		return
	}
	w := table.NewScale(opts)
	b, err := w.Begin(nil, table.Meta{ResourceVersion: s.ResourceVersion})
	if err == nil {
		b, err = w.Row(b, obj)
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.sendJSON(code, x.accept, w.End(b))
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
		var obj []byte
		x.writeItems(l, x.accept.convert.GroupVersion().String(), x.accept.convert.Kind, func(dst []byte, o *watchcache.Object) ([]byte, error) {
			var err error
			if obj, err = o.AppendJSON(obj[:0], x.version); err != nil {
				return dst, err
			}
			return table.AppendPartial(dst, obj, x.accept.convert.Version)
		})
	default:
		x.fail(notAcceptable(fmt.Sprintf("you requested %s, but the requested object is a list (%s)", x.accept.convert.Kind, goType(x.kind, x.kind.ListKind))))
	}
}

// itemWriter appends the JSON of one item.
type itemWriter func(dst []byte, o *watchcache.Object) ([]byte, error)

// item is an object as a list carries it: items of built-in kinds have neither apiVersion nor kind.
func (x *exchange) item(dst []byte, o *watchcache.Object) ([]byte, error) {
	from := len(dst)
	dst, err := o.AppendJSON(dst, x.version)
	if err != nil || x.kind.Custom {
		return dst, err
	}
	n, err := kindLength(dst[from:])
	if err != nil {
		return dst, err
	}
	return slices.Delete(dst, from+1, from+n), nil
}

// kindLength is where an object's other fields begin: encoders put kind and apiVersion in front.
func kindLength(obj []byte) (int, error) {
	n := 1
	for _, field := range [...]string{`"kind":"`, `"apiVersion":"`, `"kind":"`} {
		if !bytes.HasPrefix(obj[n:], []byte(field)) {
			continue
		}
		end := bytes.IndexByte(obj[n+len(field):], '"')
		if end < 0 {
			return 0, errors.New("apiserver: an object's JSON is broken at its kind")
		}
		n += len(field) + end + 1
		if n < len(obj) && obj[n] == ',' {
			n++
		}
	}
	return n, nil
}

// writeItems streams a list: its items stand one after the other as they lie in the store.
func (x *exchange) writeItems(l *watchcache.List, apiVersion, kind string, item itemWriter) {
	tail := "]}\n"
	if len(l.Objects) == 0 && !x.accept.convert.Empty() {
		tail = "null}\n" // as the real server does
	}
	size := 256
	for _, o := range l.Objects {
		if x.version != x.kind.Stored {
			// A conversion may fail: before the first byte is written.
			if _, err := o.JSON(x.version); err != nil {
				x.fail(err)
				return
			}
		}
		size += len(o.KV().Value)
	}
	write := func(dst []byte, i int) ([]byte, error) {
		if i > 0 {
			dst = append(dst, ',')
		}
		return item(dst, l.Objects[i])
	}
	if x.accept.media != mediaJSON || x.accept.pretty {
		b := x.listHead(make([]byte, 0, size), l, apiVersion, kind)
		var err error
		for i := 0; i < len(l.Objects) && err == nil; i++ {
			b, err = write(b, i)
		}
		if err != nil {
			x.fail(err)
			return
		}
		x.sendJSON(http.StatusOK, x.accept, append(b, tail...))
		return
	}
	s := x.begin(http.StatusOK, mediaJSON, size)
	s.buf = x.listHead(s.buf, l, apiVersion, kind)
	i := 0
	next := func(dst []byte) ([]byte, error) { return write(dst, i) }
	for ; i < len(l.Objects) && s.err == nil; i++ {
		if err := s.appending(next); err != nil {
			s.drop(err)
			return
		}
	}
	s.add([]byte(tail))
	s.end()
}

// listHead appends a list up to its items, the opening bracket included if there will be one.
func (x *exchange) listHead(b []byte, l *watchcache.List, apiVersion, kind string) []byte {
	b = append(b, `{"kind":`...)
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
	b = append(b, `},"items":`...)
	if len(l.Objects) > 0 || x.accept.convert.Empty() {
		b = append(b, '[')
	}
	return b
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
		if err == nil {
			err = x.ctx.Err()
		}
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
