package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"operatord.io/operatord/internal/apiserver/discovery"
	"operatord.io/operatord/internal/apiserver/openapi"
)

// servePath answers requests that name no resource: what is served, how the server is, which version it has.
func (x *exchange) servePath() {
	path := strings.TrimSuffix(x.info.Path, "/")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "":
		x.readOnly(x.root)
	case path == "/version":
		x.readOnly(func() { x.writeJSON(http.StatusOK, x.s.cfg.Version) })
	case parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz":
		x.readOnly(func() { x.health(parts) })
	case path == "/openapi/v2":
		x.readOnly(x.openAPIv2)
	case path == "/openapi/v3":
		x.readOnly(x.openAPIIndex)
	case strings.HasPrefix(path, "/openapi/v3/"):
		x.readOnly(func() { x.openAPIGroup(strings.TrimPrefix(path, "/openapi/v3/")) })
	case parts[0] == "api" && len(parts) <= 2, parts[0] == "apis" && len(parts) <= 3:
		x.discovery(parts)
	default:
		x.notFound()
	}
}

// readOnly answers GET and HEAD with f.
func (x *exchange) readOnly(f func()) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		x.fail(errNoMethod())
		return
	}
	f()
}

func (x *exchange) root() {
	doc, err := x.s.discovery.Document()
	if err != nil {
		x.fail(err)
		return
	}
	paths := []string{"/api", "/api/v1", "/apis"}
	for _, g := range doc.Groups.Groups {
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	paths = append(paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version")
	x.writeJSON(http.StatusOK, map[string][]string{"paths": paths})
}

// health answers healthz, livez and readyz; only readyz asks whether the server is ready.
func (x *exchange) health(parts []string) {
	var failed error
	if parts[0] == "readyz" && x.s.cfg.Ready != nil {
		failed = x.s.cfg.Ready()
	}
	if len(parts) > 2 || len(parts) == 2 && parts[1] != "ping" {
		x.notFound()
		return
	}
	_, verbose := x.query["verbose"]
	switch {
	case failed == nil && !verbose:
		x.text(http.StatusOK, "ok")
	case failed == nil:
		x.text(http.StatusOK, fmt.Sprintf("[+]ping ok\n%s check passed\n", parts[0]))
	default:
		x.text(http.StatusInternalServerError, fmt.Sprintf("[+]ping ok\n[-]ready failed: %v\n%s check failed\n", failed, parts[0]))
	}
}

// discovery answers under /api and /apis.
func (x *exchange) discovery(parts []string) {
	doc, err := x.s.discovery.Document()
	if err != nil {
		x.fail(err)
		return
	}
	legacy := parts[0] == "api"
	if len(parts) == 1 {
		aggregated, plain := doc.All, runtime.Object(doc.Groups)
		if legacy {
			aggregated, plain = doc.Core, doc.Legacy
		}
		x.readOnly(func() { x.writeDiscovery(aggregated, plain) })
		return
	}
	var obj runtime.Object
	group := ""
	switch {
	case legacy:
		if r, ok := doc.Resources[parts[1]]; ok {
			obj = r
		}
	case len(parts) == 2:
		if g, ok := doc.Group[parts[1]]; ok {
			obj = g
		}
		group = parts[1]
	default:
		if r, ok := doc.Resources[parts[1]+"/"+parts[2]]; ok {
			obj = r
		}
		group = parts[1]
	}
	switch {
	case obj != nil:
		x.readOnly(func() { x.writeDiscovery(nil, obj) })
	case doc.Builtin[group]:
		x.fail(errNoResource())
	default:
		x.notFound()
	}
}

var aggregatedKind = apidiscovery.SchemeGroupVersion.WithKind("APIGroupDiscoveryList")

func (x *exchange) writeDiscovery(aggregated *discovery.Aggregated, plain runtime.Object) {
	o := offer{protobuf: true, inOrder: true}
	if aggregated != nil {
		o.also = aggregatedKind
		x.w.Header().Set("Vary", "Accept")
	}
	a, ok := negotiate(x.r, o)
	if !ok {
		x.fail(errNotAcceptable(false))
		return
	}
	if a.convert.Empty() {
		x.encode(http.StatusOK, a, plain)
		return
	}
	// The type must be told exactly like this, without a charset.
	const as = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	if a.media == mediaJSON {
		x.conditional(aggregated.ETag, mediaJSON+as, aggregated.JSON)
		return
	}
	b, err := runtime.Encode(protobufEncoder, aggregated.Object)
	if err != nil {
		x.fail(err)
		return
	}
	x.conditional(aggregated.ETag, mediaProtobuf+as, b)
}

// conditional answers with a document, or with 304 to a client that has it.
func (x *exchange) conditional(etag, contentType string, body []byte) {
	quoted := strconv.Quote(etag)
	x.w.Header().Set("ETag", quoted)
	for _, have := range strings.Split(x.r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(have), "W/") == quoted {
			x.header(http.StatusNotModified, "")
			return
		}
	}
	x.send(http.StatusOK, contentType, body)
}

func (x *exchange) openAPIIndex() {
	doc, err := x.s.openapi.Index(x.ctx)
	if err != nil {
		x.fail(err)
		return
	}
	x.conditional(doc.ETag, "text/plain; charset=utf-8", doc.JSON) // the type that the real server tells
}

func (x *exchange) openAPIGroup(path string) {
	gv, ok := openapi.ParsePath(path)
	if !ok {
		x.notFound()
		return
	}
	doc, err := x.s.openapi.Group(x.ctx, gv)
	if err != nil {
		x.fail(err)
		return
	}
	if doc == nil {
		x.notFound()
		return
	}
	x.w.Header().Set("Vary", "Accept")
	if hash := x.query.Get("hash"); hash != "" {
		if hash != doc.ETag {
			x.w.Header().Set("Location", openapi.URL(gv, doc.ETag))
			x.header(http.StatusMovedPermanently, "")
			return
		}
		x.w.Header().Set("Cache-Control", "public, immutable")
		x.w.Header().Set("Expires", x.start.AddDate(1, 0, 0).UTC().Format(time.RFC1123))
	}
	x.conditional(doc.ETag, mediaJSON, doc.JSON)
}

// openAPIv2 answers in JSON, or in the protobuf that clients from before v3 ask for.
func (x *exchange) openAPIv2() {
	x.w.Header().Set("Vary", "Accept")
	accept := x.r.Header.Get("Accept")
	if strings.Contains(accept, "com.github.proto-openapi.spec.v2") {
		body, etag, err := x.s.openapi.V2Protobuf(x.ctx)
		if err != nil {
			x.fail(err)
			return
		}
		x.conditional(etag, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", body)
		return
	}
	doc, err := x.s.openapi.V2(x.ctx)
	if err != nil {
		x.fail(err)
		return
	}
	x.conditional(doc.ETag, mediaJSON, doc.JSON)
}
