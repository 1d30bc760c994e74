// Package api holds the CustomResourceDefinitions of the kinds that operatord defines. They are generated from
// the Go types in its subpackages by `make generate`, and the operators install them.
package api

import "embed"

//go:generate go build -C ../tools/controller-gen -o ../../bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
//go:generate ../bin/controller-gen object crd paths=./... output:crd:dir=crds

// CRDs holds crds/*.yaml, one CustomResourceDefinition a file.
//
//go:embed crds/*.yaml
var CRDs embed.FS
