package apiserver

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	gzipFrom   = 128 << 10 // bytes; smaller answers cost more to compress than to send
	flushEvery = 64 << 10  // bytes gathered before they are written
)

// gzips holds idle compressors: one is 800 KiB.
var gzips = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// buffers holds idle buffers of at most flushEvery bytes or a little more.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keptBuffer is the largest buffer that is worth keeping, in bytes.
const keptBuffer = flushEvery + 32<<10

// sink gathers an answer's body and writes it in large pieces, compressed if that pays and the client takes
// it. The header is written with the first piece, so what fails before can still be answered with its error.
type sink struct {
	x           *exchange
	code        int
	contentType string
	size        int // expected, in bytes

	pooled *[]byte
	buf    []byte
	gz     *gzip.Writer
	err    error // of the client's connection
}

// begin starts an answer of about size bytes. It must be ended, or dropped.
func (x *exchange) begin(code int, contentType string, size int) *sink {
	p := buffers.Get().(*[]byte)
	return &sink{x: x, code: code, contentType: contentType, size: size, pooled: p, buf: (*p)[:0]}
}

// add appends bytes to the body. A large piece isn't copied.
func (s *sink) add(b []byte) {
	if len(s.buf)+len(b) > flushEvery {
		s.flush()
		if len(b) >= flushEvery {
			s.put(b)
			return
		}
	}
	s.buf = append(s.buf, b...)
}

// appending has f append to the body.
func (s *sink) appending(f func(dst []byte) ([]byte, error)) error {
	b, err := f(s.buf)
	if err != nil {
		return err
	}
	s.buf = b
	if len(s.buf) >= flushEvery {
		s.flush()
	}
	return nil
}

func (s *sink) flush() {
	if len(s.buf) > 0 {
		s.put(s.buf)
		s.buf = s.buf[:0]
	}
}

func (s *sink) put(b []byte) {
	if s.x.code == 0 {
		if s.size > gzipFrom && acceptsGzip(s.x.r) {
			s.x.w.Header().Set("Content-Encoding", "gzip")
			s.x.w.Header().Add("Vary", "Accept-Encoding")
			s.gz = gzips.Get().(*gzip.Writer)
			s.gz.Reset(writerFunc(s.x.write))
		}
		s.x.header(s.code, s.contentType)
	}
	switch {
	case s.err != nil:
	case s.gz != nil:
		_, s.err = s.gz.Write(b)
	default:
		s.err = s.x.write(b)
	}
}

// end writes what is left. When that isn't possible, the connection is broken off, so that nobody takes a
// part for the whole.
func (s *sink) end() {
	if s.x.code == 0 && s.size <= gzipFrom {
		s.x.w.Header().Set("Content-Length", strconv.Itoa(len(s.buf)))
	}
	s.flush()
	if s.gz != nil {
		if err := s.gz.Close(); s.err == nil {
			s.err = err
		}
	}
	s.release()
	if s.err != nil {
		panic(http.ErrAbortHandler)
	}
}

// drop gives up an answer because of err, and tells the client if nothing has been written yet.
func (s *sink) drop(err error) {
	s.release()
	s.x.fail(err)
	if s.x.code != 0 && s.x.code < 400 {
		panic(http.ErrAbortHandler)
	}
}

func (s *sink) release() {
	if s.gz != nil {
		s.gz.Reset(nil)
		gzips.Put(s.gz)
		s.gz = nil
	}
	if cap(s.buf) <= keptBuffer {
		*s.pooled = s.buf[:0]
		buffers.Put(s.pooled)
	}
	s.buf, s.pooled = nil, nil
}

type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

var _ io.Writer = writerFunc(nil)

func acceptsGzip(r *http.Request) bool {
	for _, v := range r.Header["Accept-Encoding"] {
		for _, e := range strings.Split(v, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(e), ";")
			if name == "gzip" && strings.TrimSpace(params) != "q=0" {
				return true
			}
		}
	}
	return false
}

// send answers with a whole body.
func (x *exchange) send(code int, contentType string, body []byte) {
	if len(body) > gzipFrom {
		s := x.begin(code, contentType, len(body))
		s.add(body)
		s.end()
		return
	}
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.header(code, contentType)
	x.write(body)
}

// sendJSON answers with JSON that lies ready, indented or as YAML if the client wants that.
func (x *exchange) sendJSON(code int, a accepted, body []byte) {
	switch {
	case a.media == mediaYAML:
		b, err := yaml.JSONToYAML(body)
		if err != nil {
			x.fail(fmt.Errorf("apiserver: encoding YAML: %w", err))
			return
		}
		x.send(code, mediaYAML, b)
	case a.pretty:
		var b bytes.Buffer
		if err := json.Indent(&b, body, "", "  "); err != nil {
			x.fail(fmt.Errorf("apiserver: indenting JSON: %w", err))
			return
		}
		x.send(code, mediaJSON, b.Bytes())
	default:
		s := x.begin(code, mediaJSON, len(body)+1)
		s.add(body)
		s.add(newline)
		s.end()
	}
}

var newline = []byte{'\n'}

// writeJSON answers with a value that is no API object.
func (x *exchange) writeJSON(code int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		x.fail(fmt.Errorf("apiserver: encoding JSON: %w", err))
		return
	}
	x.send(code, mediaJSON, b)
}

// encode answers with an API object whose apiVersion and kind are set.
func (x *exchange) encode(code int, a accepted, obj runtime.Object) {
	if a.media == mediaProtobuf {
		b, err := runtime.Encode(protobufEncoder, obj)
		if err != nil {
			x.fail(notAcceptable(err.Error()))
			return
		}
		x.send(code, mediaProtobuf, b)
		return
	}
	b, err := json.Marshal(obj)
	if err != nil {
		x.fail(fmt.Errorf("apiserver: encoding JSON: %w", err))
		return
	}
	x.sendJSON(code, a, b)
}
