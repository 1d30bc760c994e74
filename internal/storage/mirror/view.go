package mirror

import (
	"iter"
	"strings"
	"sync"

	"github.com/google/btree"

	"operatord.io/operatord/internal/storage"
)

// tree holds present keys in order of their bytes. Its Clone is O(1); nodes are copied when one side
// writes.
type tree = btree.BTreeG[*storage.KV]

// degree is half the fan-out of the tree: small enough that copying a node after a view was taken is
// cheap, large enough that the tree of a million keys is four levels deep.
const degree = 32

func newTree() *tree {
	return btree.NewG(degree, func(a, b *storage.KV) bool { return a.Key < b.Key })
}

// view is a tree that nobody writes any more.
type view struct {
	rev  storage.Rev
	tree *tree

	mu     sync.Mutex
	counts map[string]int // answers of Count: pages of one list ask the same again
}

var _ storage.View = (*view)(nil)

// maxCounts bounds what a view remembers: prefixes come from requests.
const maxCounts = 1024

func (v *view) Rev() storage.Rev { return v.rev }

func (v *view) Get(key string) (*storage.KV, bool) {
	return v.tree.Get(&storage.KV{Key: key})
}

func (v *view) Range(prefix, from string) iter.Seq[*storage.KV] {
	return func(yield func(*storage.KV) bool) {
		start := max(prefix, from)
		v.tree.AscendGreaterOrEqual(&storage.KV{Key: start}, func(kv *storage.KV) bool {
			return strings.HasPrefix(kv.Key, prefix) && yield(kv)
		})
	}
}

func (v *view) Count(prefix string) int {
	if prefix == "" {
		return v.tree.Len()
	}
	v.mu.Lock()
	n, ok := v.counts[prefix]
	v.mu.Unlock()
	if ok {
		return n
	}
	for range v.Range(prefix, "") {
		n++
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.counts) < maxCounts {
		if v.counts == nil {
			v.counts = make(map[string]int)
		}
		v.counts[prefix] = n
	}
	return n
}
