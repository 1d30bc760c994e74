package lint

import "strings"

// A rule is one row of the import table in docs/design.md. Rules are about direct imports of non-test
// files. The first rule whose path matches a package holds for it.
type rule struct {
	path  string   // below the module; "/..." at the end includes what is underneath
	ours  []string // packages of ours it may import, "/..." likewise; metrics unless noMetrics
	never []string // other imports it must not have, by prefix
	only  []string // if set: other imports from outside the standard library, by prefix
	std   []string // if set: the only packages of the standard library it may import
	bare  bool     // nothing from outside the standard library
	why   string
}

const kubernetes = "k8s.io/"

var rules = []rule{
	{path: "internal/storage", bare: true,
		why: "the store's promises are about keys and revisions; anything of Kubernetes in it would tie both backends to it"},
	{path: "internal/storage/mirror", ours: []string{"internal/storage"}, only: []string{"github.com/google/btree"},
		why: "both backends feed it, so it may know neither of them"},
	{path: "internal/storage/bolt", ours: []string{"internal/storage", "internal/storage/mirror"},
		only: []string{"go.etcd.io/bbolt", "golang.org/x/sys", "github.com/google/btree"},
		why:  "a backend knows the contract and what backends share, never the other backend"},
	{path: "internal/storage/etcd", ours: []string{"internal/storage", "internal/storage/mirror"},
		only: []string{"go.etcd.io/etcd", "golang.org/x/sys", "google.golang.org/grpc"},
		why:  "a backend knows the contract and what backends share, never the other backend"},
	{path: "internal/storage/storagetest", ours: []string{"internal/storage"}, never: []string{kubernetes},
		why: "the suite tests the contract alone, so that any backend can be given to it"},
	{path: "internal/snapshot", ours: []string{"internal/storage"}, never: []string{kubernetes},
		why: "one backup format serves every backend because it sees only storage"},
	{path: "internal/resource/...", ours: []string{"internal/resource/..."}, never: []string{"net/http"},
		why: "what a kind is does not depend on how it is served or kept"},
	{path: "internal/watchcache", ours: []string{"internal/storage", "internal/resource"}, never: []string{"net/http"},
		why: "informers in this process share it, so it must not know the HTTP side"},
	{path: "internal/apiserver/rest", ours: []string{"internal/resource", "internal/watchcache", "internal/storage"}, never: []string{"net/http"},
		why: "the one write path serves operators in this process too: no HTTP, no controllers"},
	{path: "internal/apiserver/auth", ours: []string{"internal/resource", "internal/watchcache"},
		why: "who may do what is decided before a verb runs, so it must not call verbs"},
	{path: "internal/apiserver/admission/...", ours: []string{"internal/resource", "internal/watchcache", "internal/apiserver/rest"},
		why: "rest owns the Admission interface and calls it"},
	{path: "internal/apiserver/discovery", ours: []string{"internal/resource/..."},
		why: "discovery is a function of the registry alone"},
	{path: "internal/apiserver/openapi", ours: []string{"internal/resource/..."},
		why: "OpenAPI is a function of the registry alone"},
	{path: "internal/apiserver/table", ours: []string{"internal/resource/..."},
		why: "a table is a function of objects and columns alone"},
	{path: "internal/apiserver", ours: []string{"internal/apiserver/...", "internal/watchcache", "internal/resource/..."},
		why: "the API does not know which operators exist; daemon connects them"},
	{path: "internal/informer", ours: []string{"internal/watchcache", "internal/resource/..."}, never: []string{"net/http"},
		why: "views are fed in process, through no API"},
	{path: "internal/controller", ours: []string{"internal/informer", "internal/resource"}, never: []string{"net/http"},
		why: "the machinery serves every operator and knows none; it writes through the Writer it is given"},
	{path: "internal/operator/crd", ours: operatorMay("internal/resource/..."), why: operatorWhy},
	{path: "internal/operator/garbagecollector", ours: operatorMay("internal/resource"), why: operatorWhy},
	{path: "internal/operator/namespace", ours: operatorMay("internal/resource"), why: operatorWhy},
	{path: "internal/operator/pod", ours: operatorMay("internal/process"), why: operatorWhy},
	{path: "internal/operator", ours: operatorMay("internal/operator/...", "internal/process", "internal/resource/..."),
		why: "it lists the operators and hands each what it needs"},
	{path: "internal/operator/...", ours: operatorMay(), why: operatorWhy},
	{path: "internal/process/shim", std: []string{"syscall", "unsafe"}, bare: true,
		why: "the shim must start before anything heavy is initialised and stay small: it is the parent of every process"},
	{path: "internal/member", std: []string{"syscall", "unsafe"}, bare: true,
		why: "a member starts from the same early hook as the shim, before anything heavy is initialised"},
	{path: "internal/process", ours: []string{"internal/process/shim"}, only: []string{"golang.org/x/sys"},
		why: "running processes needs no notion of a Pod"},
	{path: "api/...", ours: []string{"api/..."}, only: []string{"k8s.io/apimachinery", "k8s.io/api/"},
		why: "others import our types; they should not get our server with them"},
	{path: "internal/metrics", why: "everyone may import metrics, so it can import nobody"},
	{path: "internal/daemon", ours: []string{"internal/...", "api/..."},
		why: "daemon wires everything"},
	{path: "internal/interrupt", std: []string{"context", "os", "os/signal", "syscall"}, bare: true,
		why: "it listens from a package-level initialiser, which runs early only if it needs next to nothing"},
	{path: "internal/lint", why: "a package without code"},
	{path: "internal/pins", why: "never built"},
	{path: "cmd/operatord", ours: []string{"internal/daemon", "internal/interrupt", "internal/snapshot", "internal/process/shim", "internal/member"},
		why: "the command line is flags and printing, nothing else"},
	{path: "deploy/...", never: []string{kubernetes}, why: "what stands in deploy is for users to read and copy"},
}

const operatorWhy = "an operator sees the world through its Reader and Writer and never waits for, or knows, another operator"

func operatorMay(more ...string) []string {
	return append([]string{"internal/controller", "internal/informer", "api/..."}, more...)
}

// mayUseMetrics: all but the packages that report through funcs which daemon fills.
func (r rule) mayUseMetrics() bool {
	for _, p := range []string{"internal/storage", "internal/process", "internal/resource", "api", "internal/member", "internal/metrics", "internal/snapshot"} {
		if matches(strings.TrimSuffix(r.path, "/..."), p+"/...") {
			return false
		}
	}
	return !r.bare
}

// matches tells whether a package path fits a pattern, which may end in "/...".
func matches(path, pattern string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}
