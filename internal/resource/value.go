package resource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Meta is what the header of a stored value holds: what selectors, the garbage collector and deletion
// need, so that they never decode the object.
type Meta struct {
	UID               types.UID
	Labels            map[string]string
	OwnerReferences   []metav1.OwnerReference
	Finalizers        []string
	DeletionTimestamp *metav1.Time
	Generation        int64
}

// MetaOf is the header of an object. It shares maps and slices with the object.
func MetaOf(obj metav1.Object) Meta {
	return Meta{
		UID:               obj.GetUID(),
		Labels:            obj.GetLabels(),
		OwnerReferences:   obj.GetOwnerReferences(),
		Finalizers:        obj.GetFinalizers(),
		DeletionTimestamp: obj.GetDeletionTimestamp(),
		Generation:        obj.GetGeneration(),
	}
}

// A stored value is
//
//	format byte · flags byte · splice offset · header length · header · JSON
//
// with lengths and offsets as uvarints. JSON is the object in its storage version without
// metadata.resourceVersion; the offset is where `"resourceVersion":"N",` belongs in it, so that an answer is
// prefix, revision, suffix, and nobody encodes again. The header holds a Meta.

const (
	valueFormat = 1

	// metadata has no other field, so no comma follows the revision.
	flagAlone = 1 << 0
	// The JSON has no metadata at all: one is written around the revision.
	flagNoMetadata = 1 << 1
)

// Value is a stored value taken apart. It shares the stored bytes; nothing is copied.
type Value struct {
	JSON   []byte // without resourceVersion
	header []byte
	offset int
	flags  byte
}

// ErrValue is returned for bytes that EncodeValue didn't write.
var ErrValue = errors.New("resource: not a stored value")

// EncodeValue makes the stored form of an object's JSON in its storage version. metadata.resourceVersion is
// left out if it is there; nothing else is changed. The result shares nothing with its arguments.
func EncodeValue(json []byte, meta Meta) []byte {
	json = withoutRevision(json)
	offset, flags := splice(json)
	header := meta.append(nil)
	out := make([]byte, 0, 2+2*binary.MaxVarintLen32+len(header)+len(json))
	out = append(out, valueFormat, flags)
	out = binary.AppendUvarint(out, uint64(offset))
	out = binary.AppendUvarint(out, uint64(len(header)))
	out = append(out, header...)
	return append(out, json...)
}

// ParseValue takes a stored value apart in constant time.
func ParseValue(stored []byte) (Value, error) {
	if len(stored) < 4 {
		return Value{}, fmt.Errorf("%w: %d bytes", ErrValue, len(stored))
	}
	if stored[0] != valueFormat {
		return Value{}, fmt.Errorf("%w: format %d, this version knows %d", ErrValue, stored[0], valueFormat)
	}
	flags, rest := stored[1], stored[2:]
	offset, n := binary.Uvarint(rest)
	if n <= 0 {
		return Value{}, fmt.Errorf("%w: bad splice offset", ErrValue)
	}
	rest = rest[n:]
	length, n := binary.Uvarint(rest)
	if n <= 0 || length > uint64(len(rest)-n) {
		return Value{}, fmt.Errorf("%w: bad header length", ErrValue)
	}
	rest = rest[n:]
	json := rest[length:]
	if offset > uint64(len(json)) {
		return Value{}, fmt.Errorf("%w: splice offset %d is beyond the %d bytes of JSON", ErrValue, offset, len(json))
	}
	return Value{JSON: json, header: rest[:length:length], offset: int(offset), flags: flags}, nil
}

// Meta reads the header. Each call makes new maps and slices; a damaged header gives what could be read.
func (v Value) Meta() Meta {
	r := reader{b: v.header}
	return r.meta()
}

// AppendJSON appends the object's JSON with metadata.resourceVersion set to rev.
func (v Value) AppendJSON(dst []byte, rev uint64) []byte {
	dst = append(dst, v.JSON[:v.offset]...)
	dst = v.appendRevision(dst, rev)
	return append(dst, v.JSON[v.offset:]...)
}

// Pieces are what AppendJSON appends, in three pieces of which the large ones are shared with the value.
func (v Value) Pieces(rev uint64) [3][]byte {
	return [3][]byte{v.JSON[:v.offset], v.appendRevision(nil, rev), v.JSON[v.offset:]}
}

func (v Value) appendRevision(dst []byte, rev uint64) []byte {
	if v.flags&flagNoMetadata != 0 {
		dst = append(dst, `"metadata":{`...)
	}
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, rev, 10)
	dst = append(dst, '"')
	if v.flags&flagNoMetadata != 0 {
		dst = append(dst, '}')
	}
	if v.flags&flagAlone == 0 {
		dst = append(dst, ',')
	}
	return dst
}

// append writes the header: a field number and a payload for each field that is set.
func (m *Meta) append(b []byte) []byte {
	if m.UID != "" {
		b = appendString(append(b, fieldUID), string(m.UID))
	}
	if len(m.Labels) > 0 {
		b = binary.AppendUvarint(append(b, fieldLabels), uint64(len(m.Labels)))
		keys := make([]string, 0, len(m.Labels))
		for k := range m.Labels {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			b = appendString(appendString(b, k), m.Labels[k])
		}
	}
	if len(m.OwnerReferences) > 0 {
		b = binary.AppendUvarint(append(b, fieldOwners), uint64(len(m.OwnerReferences)))
		for i := range m.OwnerReferences {
			o := &m.OwnerReferences[i]
			b = appendString(b, o.APIVersion)
			b = appendString(b, o.Kind)
			b = appendString(b, o.Name)
			b = appendString(b, string(o.UID))
			b = append(b, optional(o.Controller)|optional(o.BlockOwnerDeletion)<<2)
		}
	}
	if len(m.Finalizers) > 0 {
		b = binary.AppendUvarint(append(b, fieldFinalizers), uint64(len(m.Finalizers)))
		for _, f := range m.Finalizers {
			b = appendString(b, f)
		}
	}
	if m.DeletionTimestamp != nil {
		b = binary.AppendVarint(append(b, fieldDeletion), m.DeletionTimestamp.Unix())
	}
	if m.Generation != 0 {
		b = binary.AppendVarint(append(b, fieldGeneration), m.Generation)
	}
	return b
}

// Numbers of header fields. They lie on disk: never reuse one.
const (
	fieldUID = iota + 1
	fieldLabels
	fieldOwners
	fieldFinalizers
	fieldDeletion
	fieldGeneration
)

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// optional is two bits: unset, false, true.
func optional(p *bool) byte {
	switch {
	case p == nil:
		return 0
	case *p:
		return 2
	default:
		return 1
	}
}

// reader reads a header; after the first bad byte it reads zeros.
type reader struct{ b []byte }

func (r *reader) meta() (m Meta) {
	for len(r.b) > 0 {
		field := r.b[0]
		r.b = r.b[1:]
		switch field {
		case fieldUID:
			m.UID = types.UID(r.string())
		case fieldLabels:
			n := r.count(2)
			m.Labels = make(map[string]string, n)
			for range n {
				k := r.string()
				m.Labels[k] = r.string()
			}
		case fieldOwners:
			n := r.count(5)
			m.OwnerReferences = make([]metav1.OwnerReference, n)
			for i := range m.OwnerReferences {
				o := &m.OwnerReferences[i]
				o.APIVersion, o.Kind, o.Name, o.UID = r.string(), r.string(), r.string(), types.UID(r.string())
				bits := r.byte()
				o.Controller, o.BlockOwnerDeletion = boolean(bits&3), boolean(bits>>2&3)
			}
		case fieldFinalizers:
			n := r.count(1)
			m.Finalizers = make([]string, n)
			for i := range m.Finalizers {
				m.Finalizers[i] = r.string()
			}
		case fieldDeletion:
			t := metav1.NewTime(time.Unix(r.varint(), 0))
			m.DeletionTimestamp = &t
		case fieldGeneration:
			m.Generation = r.varint()
		default:
			r.b = nil
		}
	}
	return m
}

// count reads a number of items of at least size bytes each, so that damage can't ask for much memory.
func (r *reader) count(size int) int {
	n, used := binary.Uvarint(r.b)
	if used <= 0 || n > uint64(len(r.b)/size) {
		r.b = nil
		return 0
	}
	r.b = r.b[used:]
	return int(n)
}

func (r *reader) string() string {
	n := r.count(1)
	if n > len(r.b) {
		r.b = nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) varint() int64 {
	n, used := binary.Varint(r.b)
	if used <= 0 {
		r.b = nil
		return 0
	}
	r.b = r.b[used:]
	return n
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func boolean(bits byte) *bool {
	switch bits {
	case 1:
		v := false
		return &v
	case 2:
		v := true
		return &v
	}
	return nil
}
