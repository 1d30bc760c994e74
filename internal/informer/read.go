package informer

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Get returns one object, shared: copy before changing. An errors.IsNotFound error says that the view has
// no such object or that the kind isn't served, any other that the stored object can't be decoded.
func (s *Set) Get(gk schema.GroupKind, key Key) (Object, error) {
	gr := schema.GroupResource{Group: gk.Group, Resource: gk.Kind}
	var e *entry
	s.mu.RLock()
	if v := s.views[gk]; v != nil {
		e, _ = v.tree.Get(&entry{Item: Item{Key: key}})
		gr = v.kind.GroupResource()
	}
	s.mu.RUnlock()
	if e == nil {
		return nil, apierrors.NewNotFound(gr, key.Name)
	}
	obj, err := s.object(e)
	if err != nil {
		return nil, fmt.Errorf("informer: %s %s can't be decoded: %w", gk, key, err)
	}
	return obj, nil
}

// List gives the objects of a kind that q selects, in order of namespace and name, as of the call. A kind
// that isn't served has none; an object that can't be decoded is left out (and logged, once a revision).
func (s *Set) List(gk schema.GroupKind, q Query) iter.Seq[Object] {
	entries := s.query(gk, q)
	return func(yield func(Object) bool) {
		for e := range entries {
			if q.Namespace != "" && e.Key.Namespace != q.Namespace {
				continue
			}
			if !strings.HasPrefix(e.Key.Name, q.Prefix) {
				continue
			}
			if q.Selector != nil && !q.Selector.Matches(labels.Set(e.meta.Labels)) {
				continue
			}
			if obj, err := s.object(e); err == nil && !yield(obj) {
				return
			}
		}
	}
}

// query picks the narrowest index: all entries that q selects are in what it returns.
func (s *Set) query(gk schema.GroupKind, q Query) iter.Seq[*entry] {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[gk]
	if v == nil {
		return func(func(*entry) bool) {}
	}
	if q.Owner != "" {
		var found []*entry
		for uid := range s.byOwner[q.Owner] {
			if e := s.byUID[uid]; e != nil && e.Kind() == gk {
				found = append(found, e)
			}
		}
		sortEntries(found)
		return each(found)
	}
	if q.Selector != nil {
		if found, ok := v.selected(q.Selector); ok {
			return each(found)
		}
	}
	return ascend(v.snapshot(), q.Namespace, q.Prefix)
}

func each(entries []*entry) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range entries {
			if !yield(e) {
				return
			}
		}
	}
}

// AtLeast waits until every view has reached a resourceVersion; "" is the newest one of all.
func (s *Set) AtLeast(ctx context.Context, revision string) error {
	return s.AtLeastOf(ctx, revision)
}

// AtLeastOf is AtLeast for the views of some kinds; those that aren't served hold up nobody. No kinds: all.
func (s *Set) AtLeastOf(ctx context.Context, revision string, kinds ...schema.GroupKind) error {
	rev, err := s.parse(ctx, revision)
	if err != nil {
		return err
	}
	return s.WaitFor(ctx, rev, kinds...)
}

func (s *Set) parse(ctx context.Context, revision string) (uint64, error) {
	if revision == "" {
		view, err := s.cache.View(ctx, "")
		if err != nil {
			return 0, err
		}
		return uint64(view.Rev()), nil
	}
	rev, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("informer: %q is no resourceVersion", revision)
	}
	return rev, nil
}

// WaitFor waits until every event up to a revision is in the views of some kinds, or of all. It works while
// nothing of these kinds is written. The set must run. With a ctx that has ended it tells whether they are there.
func (s *Set) WaitFor(ctx context.Context, rev uint64, kinds ...schema.GroupKind) error {
	if len(kinds) == 0 {
		for _, k := range s.reg.Kinds() {
			kinds = append(kinds, k.GroupKind)
		}
	}
	views := make([]*view, 0, len(kinds))
	for _, gk := range kinds {
		v, err := s.viewOf(ctx, gk)
		if err != nil {
			return err
		}
		if v != nil {
			views = append(views, v)
		}
	}
	s.mu.Lock()
	for _, v := range views {
		v.want(rev) // all at once, then one after the other
	}
	s.mu.Unlock()
	for _, v := range views {
		for {
			s.mu.Lock()
			advanced, at := v.want(rev), v.rev
			s.mu.Unlock()
			if advanced == nil {
				break
			}
			select {
			case <-advanced:
			case <-ctx.Done():
				return fmt.Errorf("informer: %s is at revision %d, waiting for %d: %w", v.gk, at, rev, ctx.Err())
			}
		}
	}
	return nil
}

// viewOf is a kind's view, nil if the kind isn't served. A kind is served a moment before its view is opened:
// that is waited for, because without a view the kind looks as if it had no objects.
func (s *Set) viewOf(ctx context.Context, gk schema.GroupKind) (v *view, err error) {
	err = s.until(ctx, gk, func() bool {
		if v = s.views[gk]; v != nil {
			return true
		}
		_, served := s.reg.ByKind(gk)
		return !served
	})
	return v, err
}

// HasSynced tells whether every kind that is served has its view filled.
func (s *Set) HasSynced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, k := range s.reg.Kinds() {
		if v := s.views[k.GroupKind]; v == nil || v.rev == 0 {
			return false
		}
	}
	return true
}

// WaitForSync waits until HasSynced.
func (s *Set) WaitForSync(ctx context.Context) error {
	for _, k := range s.reg.Kinds() {
		if err := s.SyncedIfServed(ctx, k.GroupKind); err != nil {
			return err
		}
	}
	return nil
}

// Synced waits until the kind is served and its view is filled.
func (s *Set) Synced(ctx context.Context, gk schema.GroupKind) error {
	return s.until(ctx, gk, func() bool { return s.filled(gk) })
}

// SyncedIfServed waits until the kind's view is filled or the kind isn't served.
func (s *Set) SyncedIfServed(ctx context.Context, gk schema.GroupKind) error {
	return s.until(ctx, gk, func() bool {
		_, served := s.reg.ByKind(gk)
		return !served || s.filled(gk)
	})
}

func (s *Set) filled(gk schema.GroupKind) bool {
	v := s.views[gk]
	return v != nil && v.rev != 0
}

// until waits for cond, which is looked at under s.mu again after each change of a view.
func (s *Set) until(ctx context.Context, gk schema.GroupKind, cond func() bool) error {
	for {
		s.mu.Lock()
		if cond() {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("informer: waiting for %s to be served and listed: %w", gk, ctx.Err())
		}
	}
}
