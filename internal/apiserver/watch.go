package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"operatord.io/operatord/internal/apiserver/table"
	"operatord.io/operatord/internal/watchcache"
)

// A watch without timeoutSeconds ends by itself after half an hour to an hour, so that clients spread out.
const (
	minWatch = 30 * time.Minute

	annotationInitialEventsEnd = "k8s.io/initial-events-end"
)

// stream answers with a watch.
func (x *exchange) stream(opts watchcache.ListOptions) {
	if x.accept.media == mediaYAML {
		x.fail(errNotAcceptable(true))
		return
	}
	if opts.Timeout <= 0 {
		opts.Timeout = minWatch + rand.N(minWatch)
	}
	enc := &frames{x: x}
	if x.accept.convert.Kind == "Table" {
		o, err := x.tableOptions()
		if err != nil {
			x.fail(err)
			return
		}
		enc.table = &o
	}
	w, err := x.s.cfg.Verbs.Watch(x.ctx, x.rest(x.info.Name), opts)
	if err != nil {
		x.fail(err)
		return
	}
	defer w.Close()

	contentType := x.accept.media
	if contentType == mediaProtobuf {
		contentType += ";stream=watch"
	}
	x.header(http.StatusOK, contentType)
	if x.rc.Flush() != nil {
		return
	}
	for {
		events, err := w.Next(x.ctx)
		if err != nil {
			x.endStream(enc, err)
			return
		}
		if err := x.writeEvents(enc, events); err != nil {
			if timedOut(err) || errors.Is(err, errHeld) {
				x.cutOff()
			}
			panic(http.ErrAbortHandler) // not an orderly end: the client must not take it for one
		}
	}
}

// writeEvents writes a batch in as few pieces as its size allows, and flushes it.
func (x *exchange) writeEvents(enc *frames, events []watchcache.Event) error {
	pooled := buffers.Get().(*[]byte) // an idle watch holds none
	buf := (*pooled)[:0]
	defer func() {
		if cap(buf) <= keptBuffer {
			*pooled = buf[:0]
			buffers.Put(pooled)
		}
	}()
	for i := range events {
		e := &events[i]
		if pieces, ok := enc.pieces(e); ok {
			if err := x.writeFlushed(append([][]byte{buf}, pieces...)...); err != nil {
				return err
			}
			buf = buf[:0]
			continue
		}
		release, err := x.hold(e)
		if err != nil {
			return err
		}
		buf, err = enc.append(buf, e)
		switch {
		case err != nil:
			buf = enc.appendError(buf, err)
			x.write(buf)
			x.rc.Flush()
		case len(buf) >= flushEvery:
			err = x.writeFlushed(buf)
			buf = buf[:0]
		}
		release()
		if err != nil {
			return err
		}
	}
	if f := x.s.cfg.Listener.Events; f != nil {
		f(x.resourceName(), len(events))
	}
	return x.writeFlushed(buf)
}

// Most of what a watch writes lies in the store already, and is written from there: a client that doesn't read holds
// none of its own. Large objects in other forms are made for one watch; what all watches hold of them is bounded.
const (
	sharedFrom = 16 << 10 // bytes of an object that is worth three writes
	maxHeld    = 256 << 20
	heldWait   = time.Second
)

// errHeld ends a watch for which there is no room, because too many others don't read.
var errHeld = errors.New("apiserver: watches that don't read hold too much")

// hold takes room for the encoded form of a large object, until release.
func (x *exchange) hold(e *watchcache.Event) (release func(), err error) {
	if e.Object == nil || len(e.Object.KV().Value) <= keptBuffer {
		return func() {}, nil
	}
	n := min(4*int64(len(e.Object.KV().Value)), maxHeld) // with what encoders copy
	ctx, cancel := context.WithTimeout(x.ctx, heldWait)
	defer cancel()
	if x.s.held.Acquire(ctx, n) != nil {
		return nil, errHeld
	}
	return func() { x.s.held.Release(n) }, nil
}

// writeFlushed writes to the connection itself, within the time that a client has.
func (x *exchange) writeFlushed(pieces ...[]byte) error {
	x.deadline = true
	if err := x.rc.SetWriteDeadline(time.Now().Add(x.s.cfg.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, b := range pieces {
		if len(b) == 0 {
			continue
		}
		if _, err := x.w.Write(b); err != nil {
			return err
		}
	}
	if err := x.rc.Flush(); err != nil {
		return err
	}
	if x.r.ProtoMajor == 2 {
		// HTTP/2 resets a stream when its deadline runs out, even if nothing is being written.
		return x.rc.SetWriteDeadline(time.Time{})
	}
	return nil
}

// endStream tells the client why its watch ends if it must know.
func (x *exchange) endStream(enc *frames, err error) {
	switch {
	case errors.Is(err, io.EOF), x.ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return
	}
	x.writeFlushed(enc.appendError(nil, err))
}

func (x *exchange) cutOff() {
	x.s.cfg.Log.Info("watch ended: its client doesn't read", "resource", x.resourceName(), "agent", x.r.UserAgent(), "remote", x.r.RemoteAddr)
	if f := x.s.cfg.Listener.WatchCutOff; f != nil {
		f(x.resourceName())
	}
}

// frames encodes watch events in the form that was negotiated.
type frames struct {
	x     *exchange
	table *table.Options // the next table's
}

func (f *frames) append(dst []byte, e *watchcache.Event) ([]byte, error) {
	if f.x.accept.media == mediaProtobuf {
		return f.appendProtobuf(dst, e)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, e.Type...)
	dst = append(dst, `","object":`...)
	dst, err := f.object(dst, e)
	return append(dst, "}\n"...), err
}

// pieces are the whole frame of a large object that is sent as it is stored.
func (f *frames) pieces(e *watchcache.Event) ([][]byte, bool) {
	if e.Type == watchcache.Bookmark || f.x.accept.media == mediaProtobuf || f.x.accept.convert.Kind != "" || len(e.Object.KV().Value) < sharedFrom {
		return nil, false
	}
	p, ok := e.Object.Pieces(f.x.version)
	if !ok {
		return nil, false
	}
	head := append([]byte(`{"type":"`), e.Type...)
	return [][]byte{append(head, `","object":`...), p[0], p[1], p[2], []byte("}\n")}, true
}

// object appends the event's object as JSON.
func (f *frames) object(dst []byte, e *watchcache.Event) ([]byte, error) {
	if f.x.accept.convert.Kind == "" && e.Type != watchcache.Bookmark {
		return e.Object.AppendJSON(dst, f.x.version)
	}
	var obj []byte
	if e.Type == watchcache.Bookmark {
		obj = f.bookmark(e)
	} else {
		var err error
		if obj, err = e.Object.JSON(f.x.version); err != nil {
			return dst, err
		}
	}
	convert := f.x.accept.convert
	switch convert.Kind {
	case "":
		return append(dst, obj...), nil
	case "Table":
		w := table.New(f.x.version, *f.table)
		f.table.NoHeaders = true
		dst, err := w.Begin(dst, table.Meta{ResourceVersion: revision(e.Rev)})
		if err != nil {
			return dst, err
		}
		if e.Type == watchcache.Bookmark {
			dst, err = w.Bookmark(dst, obj)
		} else {
			dst, err = w.Row(dst, obj)
		}
		return w.End(dst), err
	default:
		return table.AppendPartial(dst, obj, convert.Version)
	}
}

// bookmark is an object of the kind with nothing but a revision.
func (f *frames) bookmark(e *watchcache.Event) []byte {
	gvk := f.x.version.GVK
	b := append(make([]byte, 0, 192), `{"kind":`...)
	b = strconv.AppendQuote(b, gvk.Kind)
	b = append(b, `,"apiVersion":`...)
	b = strconv.AppendQuote(b, gvk.GroupVersion().String())
	b = append(b, `,"metadata":{"resourceVersion":"`...)
	b = strconv.AppendUint(b, e.Rev, 10)
	b = append(b, '"')
	if e.InitialEventsEnd {
		b = append(b, `,"annotations":{"`+annotationInitialEventsEnd+`":"true"}`...)
	}
	return append(b, "}}"...)
}

// appendError appends the ERROR event that ends a watch.
func (f *frames) appendError(dst []byte, err error) []byte {
	status := statusOf(err)
	if f.x.accept.media == mediaProtobuf {
		if raw, err := runtime.Encode(protobufEncoder, status); err == nil {
			dst, _ = appendFrame(dst, "ERROR", raw)
		}
		return dst
	}
	b, err := json.Marshal(status)
	if err != nil {
		return dst
	}
	dst = append(dst, `{"type":"ERROR","object":`...)
	dst = append(dst, b...)
	return append(dst, "}\n"...)
}

func (f *frames) appendProtobuf(dst []byte, e *watchcache.Event) ([]byte, error) {
	if f.x.accept.convert.Kind == "" && e.Type != watchcache.Bookmark {
		hub, err := e.Object.Hub(f.x.version)
		if err != nil {
			return dst, err
		}
		raw, err := f.x.version.Codec.Protobuf(hub)
		if err != nil {
			return dst, err
		}
		return appendFrame(dst, string(e.Type), raw)
	}
	// Bookmarks and PartialObjectMetadata have nothing but metadata; in protobuf both look the same, for
	// every kind has its ObjectMeta as field 1.
	b, err := f.object(nil, e)
	if err != nil {
		return dst, err
	}
	var p metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &p); err != nil {
		return dst, err
	}
	raw, err := runtime.Encode(protobufEncoder, &p)
	if err != nil {
		return dst, err
	}
	return appendFrame(dst, string(e.Type), raw)
}

// appendFrame appends one event of a protobuf stream: its length in four bytes, then a WatchEvent.
func appendFrame(dst []byte, eventType string, object []byte) ([]byte, error) {
	b, err := (&metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		return dst, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}
