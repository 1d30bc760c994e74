// Package v1alpha1 holds the kinds that operatord defines, as Go types of the API group operatord.io/v1alpha1.
//
// A Cluster is a declaration: so many members, one of which leads, with the contents of a Backup if it names
// one. People write spec; the cluster operator observes the members and writes status. A Backup is what a
// Cluster may start from.
//
// The CustomResourceDefinitions in ../crds and zz_generated.deepcopy.go are generated from these types by
// `make generate`; what stands in a field's comment is what `kubectl explain` prints.
//
// +kubebuilder:object:generate=true
// +groupName=operatord.io
package v1alpha1
