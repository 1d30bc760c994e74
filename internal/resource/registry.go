package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ServedSpecAnnotation is on a CustomResourceDefinition that was edited into one that can't be served: the spec that
// goes on being served. Only the strategy of CustomResourceDefinitions writes it.
const ServedSpecAnnotation = "operatord.io/served-spec"

// Registry knows which kinds are served. Readers never wait: they look into a snapshot behind an atomic
// pointer, which SetCRD and RemoveCRD replace.
//
// A CRD is served while its status says Established=True, or it has ServedSpecAnnotation; it is Terminating while it has a
// deletionTimestamp. When what decides about serving changes (spec, accepted names, identity), a new Kind
// takes the old one's place and the old one's Done is closed. A CRD with the resource or the kind of one that
// is compiled in is never served, whatever its status says: the built-in stays alone under its name.
type Registry struct {
	compile func(*apiextensionsv1.CustomResourceDefinition) (*Kind, error)
	builtin []*Kind

	mu      sync.Mutex // one writer at a time
	crds    map[string]*served
	present atomic.Pointer[snapshot]
}

// served is a CRD that is established.
type served struct {
	kind  *Kind
	basis basis
}

// basis is everything of a CRD that serving depends on.
type basis struct {
	UID   types.UID
	Kept  string // ServedSpecAnnotation, in whose place Spec is then
	Spec  apiextensionsv1.CustomResourceDefinitionSpec
	Names apiextensionsv1.CustomResourceDefinitionNames
}

type snapshot struct {
	generation uint64
	changed    chan struct{}
	kinds      []*Kind
	lookup     map[lookupKey]found
	byKind     map[schema.GroupKind]*Kind
	byResource map[schema.GroupResource]*Kind
}

type lookupKey struct{ group, version, plural string }

type found struct {
	kind    *Kind
	version *Version
}

// NewRegistry serves the kinds that are compiled in. compile makes a Kind of an established CRD; it
// should put off what is expensive until somebody asks for it, because SetCRD waits.
func NewRegistry(builtin []*Kind, compile func(*apiextensionsv1.CustomResourceDefinition) (*Kind, error)) *Registry {
	r := &Registry{compile: compile, builtin: builtin, crds: map[string]*served{}}
	for _, k := range builtin {
		k.done = make(chan struct{})
	}
	r.publish()
	return r
}

// Lookup finds a served version of a kind by the parts of a request's path.
func (r *Registry) Lookup(group, version, plural string) (*Kind, *Version, bool) {
	f, ok := r.present.Load().lookup[lookupKey{group, version, plural}]
	return f.kind, f.version, ok
}

// ByKind finds a kind by its name.
func (r *Registry) ByKind(gk schema.GroupKind) (*Kind, bool) {
	k, ok := r.present.Load().byKind[gk]
	return k, ok
}

// ByResource finds a kind by its plural name.
func (r *Registry) ByResource(gr schema.GroupResource) (*Kind, bool) {
	k, ok := r.present.Load().byResource[gr]
	return k, ok
}

// Builtin lists the kinds that are compiled in. The slice is shared; don't change it.
func (r *Registry) Builtin() []*Kind { return r.builtin }

// Kinds lists all kinds: those compiled in, in their order, then custom ones by group and plural name. The
// slice is shared; don't change it.
func (r *Registry) Kinds() []*Kind { return r.present.Load().kinds }

// Generation changes whenever anything that is served changes.
func (r *Registry) Generation() uint64 { return r.present.Load().generation }

// Changed is closed at the next change. Take it before looking.
func (r *Registry) Changed() <-chan struct{} { return r.present.Load().changed }

// SetCRD takes in a CustomResourceDefinition as it is stored (JSON, v1). It is idempotent, and changes
// nothing unless something that serving depends on changed. On an error (JSON that can't be read, a schema
// that can't be compiled) the CRD isn't served.
func (r *Registry) SetCRD(data []byte) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("resource: read CustomResourceDefinition %s: %w", nameIn(data), err)
	}
	declared, err := strconv.ParseUint(crd.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resource: CustomResourceDefinition %s has no resourceVersion: %w", crd.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names, kept := crd.Status.AcceptedNames, crd.Annotations[ServedSpecAnnotation]
	// The name of a CRD says which keys are its own. Names of others in its status give it nothing of theirs.
	its := names.Plural+"."+crd.Spec.Group == crd.Name && names.Kind == crd.Spec.Names.Kind
	if !established(&crd) && kept == "" || !its || Shadowed(r.builtin, crd.Spec.Group, names.Plural, names.Kind) != nil {
		r.remove(crd.Name)
		return nil
	}
	terminating := crd.DeletionTimestamp != nil
	now := basis{UID: crd.UID, Kept: kept, Names: names}
	if kept == "" {
		now.Spec = crd.Spec
	}
	old := r.crds[crd.Name]
	if old != nil && equality.Semantic.DeepEqual(old.basis, now) {
		if old.kind.Terminating == terminating {
			return nil
		}
		k := *old.kind
		k.Terminating = terminating
		r.crds[crd.Name] = &served{kind: &k, basis: old.basis}
		r.publish()
		return nil
	}
	k, err := r.make(&crd)
	if err != nil {
		r.remove(crd.Name)
		return fmt.Errorf("resource: CustomResourceDefinition %s can't be served: %w", crd.Name, err)
	}
	k.Terminating = terminating
	k.Declared = declared
	k.done = make(chan struct{})
	r.crds[crd.Name] = &served{kind: k, basis: now}
	r.publish()
	if old != nil {
		close(old.kind.done)
	}
	return nil
}

// make compiles a CRD. A panic of the libraries under it is an error like any other: the store's committer calls
// this, and so does every start, so a panic would end the daemon for good.
func (r *Registry) make(crd *apiextensionsv1.CustomResourceDefinition) (k *Kind, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return r.compile(crd)
}

// RemoveCRD stops serving a CRD's kind. A name that isn't served is no error.
func (r *Registry) RemoveCRD(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(name)
}

func (r *Registry) remove(name string) {
	old, ok := r.crds[name]
	if !ok {
		return
	}
	delete(r.crds, name)
	r.publish()
	close(old.kind.done)
}

// Shadowed finds the one of kinds that has a resource or a kind of a group. Objects of a CRD of these names would
// lie among its own, or be taken for them.
func Shadowed(kinds []*Kind, group, plural, kind string) *Kind {
	for _, k := range kinds {
		if k.Group == group && (k.Plural == plural || k.Kind == kind) {
			return k
		}
	}
	return nil
}

// publish makes the snapshot of what is served now.
func (r *Registry) publish() {
	s := &snapshot{
		changed:    make(chan struct{}),
		lookup:     map[lookupKey]found{},
		byKind:     map[schema.GroupKind]*Kind{},
		byResource: map[schema.GroupResource]*Kind{},
	}
	custom := make([]*Kind, 0, len(r.crds))
	for _, c := range r.crds {
		custom = append(custom, c.kind)
	}
	sort.Slice(custom, func(i, j int) bool {
		if custom[i].Group != custom[j].Group {
			return custom[i].Group < custom[j].Group
		}
		return custom[i].Plural < custom[j].Plural
	})
	for _, k := range append(append(make([]*Kind, 0, len(r.builtin)+len(custom)), r.builtin...), custom...) {
		if s.byKind[k.GroupKind] != nil {
			continue // statuses that give one kind to two: the first has it
		}
		s.kinds = append(s.kinds, k)
		s.byKind[k.GroupKind] = k
		s.byResource[k.GroupResource()] = k
		for _, v := range k.Versions {
			s.lookup[lookupKey{k.Group, v.Name, k.Plural}] = found{k, v}
		}
	}
	old := r.present.Load()
	if old != nil {
		s.generation = old.generation + 1
	}
	r.present.Store(s)
	if old != nil {
		close(old.changed)
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// nameIn is the object's name for an error message about JSON that can't be read as a whole.
func nameIn(data []byte) string {
	var head struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil || head.Metadata.Name == "" {
		return "of unknown name"
	}
	return head.Metadata.Name
}
