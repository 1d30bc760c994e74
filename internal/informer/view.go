package informer

import (
	"iter"
	"sort"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// view is the objects of one kind. It is guarded by Set.mu.
type view struct {
	gk   schema.GroupKind
	kind *resource.Kind // as which the objects were read
	tree *btree.BTreeG[*entry]
	snap *btree.BTreeG[*entry] // a copy that nobody changes; nil: take one
	// labels finds objects by the value of a label; one is made for a key when it is first selected by.
	labels map[string]map[string]map[Key]*entry

	rev      uint64            // every event at or below it is in the view; 0: not filled yet
	gone     bool              // the kind is no longer served, and the view is no longer in its set
	watch    *watchcache.Watch // that feeds it; nil between two
	wanted   uint64            // somebody waits for this revision
	advanced chan struct{}     // closed when rev grows or the view is gone; nil: nobody waits
}

func newView(k *resource.Kind) *view {
	return &view{gk: k.GroupKind, kind: k, tree: btree.NewG(32, entryBefore), labels: map[string]map[string]map[Key]*entry{}}
}

// advance says that everything up to rev is in the view.
func (v *view) advance(rev uint64) {
	if rev > v.rev {
		v.rev = rev
		v.wake()
	}
}

func (v *view) wake() {
	if v.advanced != nil {
		close(v.advanced)
		v.advanced = nil
	}
}

// want asks for a revision. It returns nil if the view is there, else what is closed at the next progress.
func (v *view) want(rev uint64) <-chan struct{} {
	if v.gone || v.rev != 0 && v.rev >= rev {
		return nil
	}
	if rev > v.wanted {
		v.wanted = rev
		if v.watch != nil {
			v.watch.Progress(rev)
		}
	}
	if v.advanced == nil {
		v.advanced = make(chan struct{})
	}
	return v.advanced
}

func entryBefore(a, b *entry) bool {
	if a.Key.Namespace != b.Key.Namespace {
		return a.Key.Namespace < b.Key.Namespace
	}
	return a.Key.Name < b.Key.Name
}

// put replaces old (nil: none) by e (nil: none).
func (v *view) put(old, e *entry) {
	v.snap = nil
	if e != nil {
		v.tree.ReplaceOrInsert(e)
	} else {
		v.tree.Delete(old)
	}
	for label, byValue := range v.labels {
		if old != nil {
			if value, ok := old.meta.Labels[label]; ok {
				delete(byValue[value], old.Key)
				if len(byValue[value]) == 0 {
					delete(byValue, value)
				}
			}
		}
		if e != nil {
			index(byValue, label, e)
		}
	}
}

func index(byValue map[string]map[Key]*entry, label string, e *entry) {
	value, ok := e.meta.Labels[label]
	if !ok {
		return
	}
	if byValue[value] == nil {
		byValue[value] = map[Key]*entry{}
	}
	byValue[value][e.Key] = e
}

// snapshot is the view as it is now, to be read without a lock. The caller holds Set.mu for writing.
func (v *view) snapshot() *btree.BTreeG[*entry] {
	if v.snap == nil {
		v.snap = v.tree.Clone()
	}
	return v.snap
}

// ascend gives the entries of a namespace whose names have a prefix, or all without a namespace, in order.
func ascend(tree *btree.BTreeG[*entry], namespace, prefix string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if namespace == "" {
			tree.Ascend(yield)
			return
		}
		from := &entry{Item: Item{Key: Key{Namespace: namespace, Name: prefix}}}
		tree.AscendGreaterOrEqual(from, func(e *entry) bool {
			return e.Key.Namespace == namespace && strings.HasPrefix(e.Key.Name, prefix) && yield(e)
		})
	}
}

// selected gives the entries with a label value that the selector demands, in order, and whether it
// demands one at all. The other requirements are left to the caller.
func (v *view) selected(selector labels.Selector) ([]*entry, bool) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil, true
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}
		byValue, ok := v.labels[r.Key()]
		if !ok {
			byValue = map[string]map[Key]*entry{}
			v.tree.Ascend(func(e *entry) bool { index(byValue, r.Key(), e); return true })
			v.labels[r.Key()] = byValue
		}
		var found []*entry
		for value := range r.Values() {
			for _, e := range byValue[value] {
				found = append(found, e)
			}
		}
		sortEntries(found)
		return found, true
	}
	return nil, false
}

func sortEntries(entries []*entry) {
	sort.Slice(entries, func(i, j int) bool { return entryBefore(entries[i], entries[j]) })
}
