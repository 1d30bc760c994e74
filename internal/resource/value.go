package resource

import (
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

// A stored value is
//
//	format byte · header length · header · JSON
//
// JSON is the object in its storage version without metadata.resourceVersion; the header holds a Meta and
// the offset in the JSON at which `"resourceVersion":"N",` belongs, so that an answer is prefix, revision,
// suffix, and nobody encodes again.

// Value is a stored value taken apart. It shares the stored bytes; nothing is copied.
type Value struct {
	JSON   []byte // without resourceVersion
	header []byte
	offset int
}
