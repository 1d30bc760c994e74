// Package discovery says what is served: the lists under /api and /apis, one by one and aggregated.
//
// All of it is computed from the registry when somebody asks, and kept until the registry changes. Kinds that
// aren't stored (reviews) are named when the package's Discovery is made.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"operatord.io/operatord/internal/resource"
)

// Registry is what discovery needs of resource.Registry.
type Registry interface {
	Kinds() []*resource.Kind
	Generation() uint64
}

// Virtual is a kind that is answered but not stored.
type Virtual struct {
	GVK        schema.GroupVersionKind
	Plural     string
	Singular   string
	Namespaced bool
	Verbs      []string
}

// Aggregated is an APIGroupDiscoveryList in the encodings clients ask for, with the ETag of its content.
type Aggregated struct {
	Object *apidiscovery.APIGroupDiscoveryList
	JSON   []byte
	ETag   string // without quotes
}

// Document is everything that discovery says at one generation of the registry. It is immutable.
type Document struct {
	Legacy    *metav1.APIVersions                // /api
	Groups    *metav1.APIGroupList               // /apis
	Group     map[string]*metav1.APIGroup        // /apis/GROUP
	Resources map[string]*metav1.APIResourceList // /api/v1 as "v1", /apis/GROUP/VERSION as "GROUP/VERSION"
	Core      *Aggregated                        // /api
	All       *Aggregated                        // /apis
	// Builtin tells the groups that kinds compiled in belong to.
	Builtin map[string]bool

	generation uint64
}

// Discovery makes Documents. Safe for concurrent use.
type Discovery struct {
	reg     Registry
	virtual []Virtual

	mu  sync.Mutex
	doc *Document
}

// New makes a Discovery of what reg serves, and of virtual kinds.
func New(reg Registry, virtual []Virtual) *Discovery {
	return &Discovery{reg: reg, virtual: virtual}
}

// Document is what is served now. The result is shared.
func (d *Discovery) Document() (*Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	generation := d.reg.Generation()
	if d.doc != nil && d.doc.generation == generation {
		return d.doc, nil
	}
	doc, err := d.build()
	if err != nil {
		return nil, err
	}
	doc.generation = generation
	d.doc = doc
	return doc, nil
}

// groupOrder is the order in which built-in groups are listed, as the real server's priorities make it;
// declared groups follow by name.
var groupOrder = []string{
	"apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
	"certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io",
	"node.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io",
	"resource.k8s.io",
}

// entry is one resource or subresource of one version, as both forms of discovery tell it.
type entry struct {
	metav1.APIResource
	custom      bool
	subresource string
}

func (d *Discovery) build() (*Document, error) {
	doc := &Document{
		Group:     map[string]*metav1.APIGroup{},
		Resources: map[string]*metav1.APIResourceList{},
		Builtin:   map[string]bool{},
	}
	byGV := map[schema.GroupVersion][]entry{}
	for _, k := range d.reg.Kinds() {
		if !k.Custom {
			doc.Builtin[k.Group] = true
		}
		for _, v := range k.Versions {
			gv := v.GVK.GroupVersion()
			byGV[gv] = append(byGV[gv], entries(k, v)...)
		}
	}
	for _, v := range d.virtual {
		doc.Builtin[v.GVK.Group] = true
		gv := v.GVK.GroupVersion()
		byGV[gv] = append(byGV[gv], entry{APIResource: metav1.APIResource{
			Name: v.Plural, SingularName: v.Singular, Namespaced: v.Namespaced, Kind: v.GVK.Kind, Verbs: v.Verbs,
		}})
	}

	versions := map[string][]string{}
	for gv, list := range byGV {
		versions[gv.Group] = append(versions[gv.Group], gv.Version)
		slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(base(a.Name), base(b.Name)) })
		resources := &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(),
			APIResources: make([]metav1.APIResource, 0, len(list)),
		}
		for _, e := range list {
			resources.APIResources = append(resources.APIResources, e.APIResource)
		}
		doc.Resources[gv.String()] = resources
	}

	var groups []string
	for g, vs := range versions {
		slices.SortFunc(vs, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) })
		if g != "" {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(doc, a), rank(doc, b)), cmp.Compare(a, b))
	})

	doc.Legacy = &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	doc.Groups = &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	all := &apidiscovery.APIGroupDiscoveryList{}
	for _, g := range groups {
		group := metav1.APIGroup{Name: g}
		for _, v := range versions[g] {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g + "/" + v, Version: v})
		}
		group.PreferredVersion = group.Versions[0]
		doc.Groups.Groups = append(doc.Groups.Groups, group)
		alone := group
		alone.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		doc.Group[g] = &alone
		all.Items = append(all.Items, aggregate(g, versions[g], byGV))
	}
	core := &apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{aggregate("", versions[""], byGV)}}

	var err error
	if doc.Core, err = encode(core); err != nil {
		return nil, err
	}
	doc.All, err = encode(all)
	return doc, err
}

// rank sorts built-in groups in their own order before all others.
func rank(doc *Document, group string) int {
	if i := slices.Index(groupOrder, group); i >= 0 {
		return i
	}
	if doc.Builtin[group] {
		return len(groupOrder)
	}
	return len(groupOrder) + 1
}

// base keeps subresources behind their resource, in the order in which they were added.
func base(name string) string {
	b, _, _ := strings.Cut(name, "/")
	return b
}

// customVerbs is the order in which the real server tells the verbs of declared kinds.
var customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

func entries(k *resource.Kind, v *resource.Version) []entry {
	verbs := slices.Clone(k.Verbs)
	if k.Custom {
		slices.SortFunc(verbs, func(a, b string) int {
			return cmp.Compare(slices.Index(customVerbs, a), slices.Index(customVerbs, b))
		})
	} else {
		slices.Sort(verbs)
	}
	list := []entry{{custom: k.Custom, APIResource: metav1.APIResource{
		Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs,
		ShortNames: k.ShortNames, Categories: k.Categories, StorageVersionHash: storageVersionHash(k),
	}}}
	names := make([]string, 0, len(k.Subresources))
	for name := range k.Subresources {
		if k.Subresource(v, name) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if k.Custom {
		slices.Reverse(names) // status, then scale
	}
	for _, name := range names {
		s := k.Subresources[name]
		sv := slices.Clone(s.Verbs)
		slices.Sort(sv)
		r := metav1.APIResource{Name: k.Plural + "/" + name, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: sv}
		if !s.Body.Empty() {
			r.Kind = s.Body.Kind
			if s.Body.GroupVersion() != v.GVK.GroupVersion() {
				r.Group, r.Version = s.Body.Group, s.Body.Version
			}
		}
		list = append(list, entry{custom: k.Custom, subresource: name, APIResource: r})
	}
	return list
}

// storageVersionHash tells clients whether the version of stored objects has changed.
func storageVersionHash(k *resource.Kind) string {
	if k.Stored == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(k.Group + "/" + k.Stored.Name + "/" + k.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

func aggregate(group string, versions []string, byGV map[schema.GroupVersion][]entry) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group}}
	for _, name := range versions {
		gv := schema.GroupVersion{Group: group, Version: name}
		v := apidiscovery.APIVersionDiscovery{Version: name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, e := range byGV[gv] {
			// Of built-in kinds the real server tells group and version only where they differ.
			kind := &metav1.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind}
			if e.custom && e.Version == "" {
				kind.Group, kind.Version = gv.Group, gv.Version
			}
			if e.subresource != "" {
				parent := &v.Resources[len(v.Resources)-1]
				parent.Subresources = append(parent.Subresources, apidiscovery.APISubresourceDiscovery{
					Subresource: e.subresource, ResponseKind: kind, Verbs: e.Verbs,
				})
				continue
			}
			scope := apidiscovery.ScopeCluster
			if e.Namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
				Resource: e.Name, ResponseKind: kind, Scope: scope, SingularResource: e.SingularName,
				Verbs: e.Verbs, ShortNames: e.ShortNames, Categories: e.Categories,
			})
		}
		g.Versions = append(g.Versions, v)
	}
	return g
}

func encode(list *apidiscovery.APIGroupDiscoveryList) (*Aggregated, error) {
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()}
	if list.Items == nil {
		list.Items = []apidiscovery.APIGroupDiscovery{}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return &Aggregated{Object: list, JSON: append(b, '\n'), ETag: fmt.Sprintf("%X", sha512.Sum512(b))}, nil
}
