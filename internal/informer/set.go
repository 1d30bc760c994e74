package informer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// Set holds a view of every kind that the registry serves. All methods may be called concurrently;
// Subscribe only before Run.
type Set struct {
	cache  *watchcache.Cache
	reg    *resource.Registry
	scheme *runtime.Scheme
	log    *slog.Logger

	subscribers map[schema.GroupKind][]func(old, new Object)
	metadata    *Metadata

	mu      sync.RWMutex // what follows, views' contents included
	views   map[schema.GroupKind]*view
	byUID   map[types.UID]*entry
	byOwner map[types.UID]map[types.UID]struct{} // owner → dependents
	changed chan struct{}                        // closed when a view comes, goes or is filled; nil: nobody waits
}

// relistDelay is how long a feed that failed for another reason than lost history waits before it lists again.
const relistDelay = 200 * time.Millisecond

// New makes a set over a watch cache. Objects are typed where scheme knows their group, version and kind,
// *unstructured.Unstructured otherwise. log may be nil.
func New(cache *watchcache.Cache, reg *resource.Registry, scheme *runtime.Scheme, log *slog.Logger) *Set {
	if log == nil {
		log = slog.Default()
	}
	s := &Set{
		cache:       cache,
		reg:         reg,
		scheme:      scheme,
		log:         log,
		subscribers: map[schema.GroupKind][]func(old, new Object){},
		views:       map[schema.GroupKind]*view{},
		byUID:       map[types.UID]*entry{},
		byOwner:     map[types.UID]map[types.UID]struct{}{},
	}
	s.metadata = &Metadata{set: s}
	return s
}

// Metadata is the view over all kinds.
func (s *Set) Metadata() *Metadata { return s.metadata }

// Subscribe has fn called for every change of a kind, in order: old nil when an object appeared (also when
// the view is first filled), new nil when it went. It is called after the view holds the change, from the
// kind's own goroutine, which it must not hold up. An object that can't be decoded is passed as
// *metav1.PartialObjectMetadata. Before Run only.
func (s *Set) Subscribe(gk schema.GroupKind, fn func(old, new Object)) {
	s.subscribers[gk] = append(s.subscribers[gk], fn)
}

// Run fills the views and keeps them true until ctx ends, which is its only way to return. Kinds that
// appear get a view, kinds that go take theirs with them.
func (s *Set) Run(ctx context.Context) error {
	var feeds sync.WaitGroup
	defer feeds.Wait()
	for {
		changed := s.reg.Changed()
		for _, k := range s.reg.Kinds() {
			v, isNew := s.open(k)
			if isNew {
				feeds.Go(func() { s.feed(ctx, v) })
			}
		}
		s.mu.Lock()
		s.wake() // also for those who wait for the view of a kind that is no longer served
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// open finds a kind's view or makes it.
func (s *Set) open(k *resource.Kind) (v *view, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.views[k.GroupKind]; v != nil {
		return v, false
	}
	v = newView(k)
	s.views[k.GroupKind] = v
	return v, true
}

// closeIfGone ends a view whose kind isn't served. The check is made under the lock, so that open, which
// follows every change of the registry, either finds the view and its feed goes on, or makes a new one.
func (s *Set) closeIfGone(v *view) bool {
	s.mu.Lock()
	if _, ok := s.reg.ByKind(v.gk); ok {
		s.mu.Unlock()
		return false
	}
	var out []change
	for e := range ascend(v.snapshot(), "", "") {
		out = s.remove(out, v, e.Key)
	}
	// The handlers run before a view of the same name can be opened: its objects must not overtake them.
	s.mu.Unlock()
	s.tell(out)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.reg.ByKind(v.gk); ok {
		return false
	}
	delete(s.views, v.gk)
	v.gone = true
	v.wake()
	s.wake()
	return true
}

// feed keeps one view true until its kind is no longer served or ctx ends.
func (s *Set) feed(ctx context.Context, v *view) {
	for ctx.Err() == nil {
		k, ok := s.reg.ByKind(v.gk)
		if !ok {
			if s.closeIfGone(v) {
				return
			}
			continue
		}
		err := s.follow(ctx, v, k)
		if err == nil || ctx.Err() != nil {
			continue // the kind has changed or gone
		}
		s.log.Warn("informer: listing a kind again", "kind", v.gk, "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(relistDelay):
		}
	}
}

// follow lists a kind, then applies events until the stream ends. nil: because the kind changed.
func (s *Set) follow(ctx context.Context, v *view, k *resource.Kind) error {
	yes := true
	watch, err := s.cache.Watch(ctx, k, watchcache.ListOptions{
		Match:             "NotOlderThan", // with no resourceVersion: than everything acknowledged
		SendInitialEvents: &yes,
		AllowBookmarks:    true,
	})
	if err != nil {
		return err
	}
	defer watch.Close()
	s.setWatch(v, watch)
	defer s.setWatch(v, nil)

	var initial []*watchcache.Object // until they are complete
	filled := false
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			select {
			case <-k.Done():
				return nil
			default:
				return err
			}
		}
		var out []change
		s.mu.Lock()
		for _, e := range events {
			switch {
			case e.InitialEventsEnd:
				out = s.replace(out, v, k, initial)
				initial, filled = nil, true
			case e.Type == watchcache.Bookmark:
			case !filled:
				initial = append(initial, e.Object)
			case e.Type == watchcache.Deleted:
				out = s.remove(out, v, keyOf(e.Object))
			default:
				out = s.put(out, v, newEntry(k, keyOf(e.Object), e.Object))
			}
		}
		if filled {
			v.advance(watch.Rev())
			s.wake()
		}
		s.mu.Unlock()
		s.tell(out)
	}
}

// setWatch lets readers ask the view's watch for progress. A feed without one tells nobody.
func (s *Set) setWatch(v *view, w *watchcache.Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.watch = w
	if w != nil && v.wanted > 0 {
		w.Progress(v.wanted)
	}
}

func keyOf(o *watchcache.Object) Key { return Key{Namespace: o.Namespace(), Name: o.Name()} }

// change is one change of one object, to be told once the view holds it.
type change struct {
	kind     schema.GroupKind
	old, new *entry
}

// tell calls the subscribers, without a lock, so that they may read.
func (s *Set) tell(changes []change) {
	for _, c := range changes {
		for _, fn := range s.metadata.subscribers {
			fn(c.old.item(), c.new.item())
		}
		for _, fn := range s.subscribers[c.kind] {
			fn(s.orMetadata(c.old), s.orMetadata(c.new))
		}
	}
}

// replace makes a view equal to a list: what it lacks is deleted, with the last known state.
func (s *Set) replace(out []change, v *view, k *resource.Kind, list []*watchcache.Object) []change {
	present := make(map[Key]struct{}, len(list))
	for _, obj := range list {
		key := keyOf(obj)
		present[key] = struct{}{}
		out = s.put(out, v, newEntry(k, key, obj))
	}
	for e := range ascend(v.snapshot(), "", "") {
		if _, ok := present[e.Key]; !ok {
			out = s.remove(out, v, e.Key)
		}
	}
	v.kind = k
	return out
}

// put takes an entry in, unless the view holds a newer one.
func (s *Set) put(out []change, v *view, e *entry) []change {
	old, had := v.tree.Get(e)
	if had && old.Rev > e.Rev {
		return out
	}
	v.put(old, e)
	if had {
		s.unlink(old)
	}
	s.link(e)
	switch {
	case had && old.Rev == e.Rev: // read anew under a changed kind
		return out
	case had && old.UID() != e.UID(): // deleted and made again between two lists
		return append(out, change{v.gk, old, nil}, change{v.gk, nil, e})
	}
	return append(out, change{v.gk, old, e})
}

func (s *Set) remove(out []change, v *view, key Key) []change {
	old, had := v.tree.Get(&entry{Item: Item{Key: key}})
	if !had {
		return out
	}
	v.put(old, nil)
	s.unlink(old)
	return append(out, change{v.gk, old, nil})
}

func (s *Set) link(e *entry) {
	s.byUID[e.UID()] = e
	for i := range e.Owners() {
		owner := e.Owners()[i].UID
		dependents := s.byOwner[owner]
		if dependents == nil {
			dependents = map[types.UID]struct{}{}
			s.byOwner[owner] = dependents
		}
		dependents[e.UID()] = struct{}{}
	}
}

func (s *Set) unlink(e *entry) {
	if s.byUID[e.UID()] == e {
		delete(s.byUID, e.UID())
	}
	for i := range e.Owners() {
		owner := e.Owners()[i].UID
		delete(s.byOwner[owner], e.UID())
		if len(s.byOwner[owner]) == 0 {
			delete(s.byOwner, owner)
		}
	}
}

// wake wakes those who wait for a view to come, go or be filled. The caller holds s.mu.
func (s *Set) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
