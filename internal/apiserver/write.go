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

// sink gathers an answer's body and writes it in large pieces, compressed if that pays and the client takes it.
type sink struct {
	x   *exchange
	buf []byte
	gz  *gzip.Writer
	err error
}

// begin writes the header of an answer of about size bytes.
func (x *exchange) begin(code int, contentType string, size int) *sink {
	s := &sink{x: x, buf: make([]byte, 0, min(size+256, flushEvery+8<<10))}
	if size > gzipFrom && acceptsGzip(x.r) {
		x.w.Header().Set("Content-Encoding", "gzip")
		x.w.Header().Add("Vary", "Accept-Encoding")
		s.gz = gzips.Get().(*gzip.Writer)
		s.gz.Reset(writerFunc(x.write))
	}
	x.header(code, contentType)
	return s
}

// add appends bytes to the body. A large piece isn't copied.
func (s *sink) add(b []byte) {
	if s.err != nil {
		return
	}
	if len(s.buf)+len(b) > flushEvery {
		s.flush()
		if len(b) >= flushEvery {
			s.put(b)
			return
		}
	}
	s.buf = append(s.buf, b...)
}

func (s *sink) flush() {
	if len(s.buf) > 0 {
		s.put(s.buf)
		s.buf = s.buf[:0]
	}
}

func (s *sink) put(b []byte) {
	switch {
	case s.err != nil:
	case s.gz != nil:
		_, s.err = s.gz.Write(b)
	default:
		s.err = s.x.write(b)
	}
}

// end writes what is left. A client that went away or stopped reading is no error of ours: its connection is
// broken off, so that it can't take a part for the whole.
func (s *sink) end() {
	s.flush()
	if s.gz != nil {
		if err := s.gz.Close(); s.err == nil {
			s.err = err
		}
		s.gz.Reset(nil)
		gzips.Put(s.gz)
	}
	if s.err != nil {
		panic(http.ErrAbortHandler)
	}
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
	case len(body) > gzipFrom:
		s := x.begin(code, mediaJSON, len(body))
		s.add(body)
		s.add(newline)
		s.end()
	default:
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
		x.header(code, mediaJSON)
		if x.write(body) == nil {
			x.write(newline)
		}
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
