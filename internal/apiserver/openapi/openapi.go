// Package openapi serves the OpenAPI documents of what is served: one v3 document a group version, and one v2
// document of everything.
//
// Built-in group versions have a published document. That of a declared kind is built here around the kind's
// schema; parameters, answers and the shared meta types are taken from a published document, so that clients
// find the very words they know. Documents are made when somebody asks and kept until the registry changes.
package openapi

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
)

// Registry is what this package needs of resource.Registry.
type Registry interface {
	Kinds() []*resource.Kind
	Generation() uint64
}

// Published returns the OpenAPI v3 document of a built-in group version; false when there is none.
type Published func(group, version string) ([]byte, bool)

// Document is one document in JSON. It is immutable.
type Document struct {
	JSON []byte
	ETag string // without quotes
}

// OpenAPI makes documents. Safe for concurrent use.
type OpenAPI struct {
	reg       Registry
	published Published

	turn       chan struct{} // of capacity 1: full while somebody makes or looks up documents
	generation uint64
	index      *Document
	groups     map[schema.GroupVersion]*group
	v2         *Document
	v2Protobuf *Document
	model      *model                     // of declared kinds' documents
	shared     map[string]json.RawMessage // its schemas in v2, as far as they were asked for
}

// group is one group version: its declared kinds if it has any, else it is published.
type group struct {
	custom []*resource.Kind
	doc    *Document
	v2     *part
}

// New makes an OpenAPI of what reg serves.
func New(reg Registry, published Published) *OpenAPI {
	return &OpenAPI{reg: reg, published: published, turn: make(chan struct{}, 1)}
}

// enter waits for its turn, as long as the context allows: documents are made one at a time. leave ends it.
func (o *OpenAPI) enter(ctx context.Context) (leave func(), err error) {
	select {
	case o.turn <- struct{}{}:
		o.refresh()
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Index lists the documents and where they are.
func (o *OpenAPI) Index(ctx context.Context) (*Document, error) {
	leave, err := o.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if o.index != nil {
		return o.index, nil
	}
	type place struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]place{}
	for gv := range o.groups {
		if err := ctx.Err(); err != nil {
			return nil, err // what is made so far is kept
		}
		doc, err := o.document(gv)
		if err != nil {
			return nil, err
		}
		if doc != nil {
			paths[pathOf(gv)] = place{URL: URL(gv, doc.ETag)}
		}
	}
	b, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return nil, fmt.Errorf("openapi: index: %w", err)
	}
	o.index = newDocument(b)
	return o.index, nil
}

// Group is the v3 document of a group version; nil when it isn't served.
func (o *OpenAPI) Group(ctx context.Context, gv schema.GroupVersion) (*Document, error) {
	leave, err := o.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return o.document(gv)
}

// URL is where the document with an ETag can be had.
func URL(gv schema.GroupVersion, etag string) string {
	return "/openapi/v3/" + pathOf(gv) + "?hash=" + url.QueryEscape(etag)
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

func newDocument(b []byte) *Document {
	return &Document{JSON: b, ETag: fmt.Sprintf("%X", sha512.Sum512(b))}
}

// refresh forgets what no longer holds: documents of group versions whose declared kinds have changed.
func (o *OpenAPI) refresh() {
	generation := o.reg.Generation()
	if o.groups != nil && generation == o.generation {
		return
	}
	groups := map[schema.GroupVersion]*group{}
	for _, k := range o.reg.Kinds() {
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			g := groups[gv]
			if g == nil {
				g = &group{}
				groups[gv] = g
			}
			if k.Custom {
				g.custom = append(g.custom, k)
			}
		}
	}
	for gv, g := range groups {
		if old := o.groups[gv]; old != nil && slices.Equal(old.custom, g.custom) {
			g.doc, g.v2 = old.doc, old.v2
		}
	}
	o.groups, o.generation, o.index, o.v2 = groups, generation, nil, nil
}

func (o *OpenAPI) document(gv schema.GroupVersion) (*Document, error) {
	g := o.groups[gv]
	if g == nil {
		return nil, nil
	}
	if g.doc != nil {
		return g.doc, nil
	}
	if len(g.custom) == 0 {
		b, ok := o.published(gv.Group, gv.Version)
		if !ok {
			return nil, nil
		}
		g.doc = newDocument(b)
		return g.doc, nil
	}
	b, err := o.build(gv, g.custom)
	if err != nil {
		return nil, fmt.Errorf("openapi: %s: %w", gv, err)
	}
	g.doc = newDocument(b)
	return g.doc, nil
}

// ParsePath takes the path behind /openapi/v3/ apart.
func ParsePath(p string) (schema.GroupVersion, bool) {
	parts := strings.Split(strings.Trim(p, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}
