package informer

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
)

// Key names one object of a kind. Namespace is empty for cluster-scoped kinds.
type Key = types.NamespacedName

// Object is a typed (or unstructured) API object.
type Object = resource.Object

// Query narrows a List. Zero fields narrow nothing.
type Query struct {
	Namespace string
	Prefix    string // of the name; with a Namespace too, other objects cost nothing
	Selector  labels.Selector
	Owner     types.UID // objects with an owner reference to it
}
