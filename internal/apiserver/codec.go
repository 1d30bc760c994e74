package apiserver

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"operatord.io/operatord/internal/resource"
)

// protobufPrefix is in front of every Kubernetes protobuf body.
const protobufPrefix = "k8s\x00"

var protobufEncoder = protobuf.NewSerializer(nil, nil)

// rawProtobuf is the message inside the envelope that Codec.Protobuf makes.
func rawProtobuf(v *resource.Version, obj resource.Object) ([]byte, error) {
	b, err := v.Codec.Protobuf(obj)
	if err != nil {
		return nil, err
	}
	if len(b) < len(protobufPrefix) || string(b[:len(protobufPrefix)]) != protobufPrefix {
		return nil, fmt.Errorf("apiserver: protobuf of %s has no envelope", v.GVK)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(b[len(protobufPrefix):]); err != nil {
		return nil, fmt.Errorf("apiserver: protobuf of %s: %w", v.GVK, err)
	}
	return u.Raw, nil
}

// protobufList is a list in protobuf. Every list of the API has its ListMeta as field 1 and its items as
// field 2, and items carry neither apiVersion nor kind.
func protobufList(apiVersion, kind string, meta *metav1.ListMeta, items [][]byte) ([]byte, error) {
	m, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("apiserver: protobuf of a list: %w", err)
	}
	size := len(m) + 16
	for _, it := range items {
		size += len(it) + 8
	}
	raw := appendMessage(make([]byte, 0, size), 1, m)
	for _, it := range items {
		raw = appendMessage(raw, 2, it)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		return nil, fmt.Errorf("apiserver: protobuf of a list: %w", err)
	}
	return append([]byte(protobufPrefix), b...), nil
}

// appendMessage appends one embedded message.
func appendMessage(dst []byte, field int, m []byte) []byte {
	dst = append(dst, byte(field<<3|2))
	n := uint64(len(m))
	for n >= 0x80 {
		dst = append(dst, byte(n)|0x80)
		n >>= 7
	}
	dst = append(dst, byte(n))
	return append(dst, m...)
}
