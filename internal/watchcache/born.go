package watchcache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// births remembers since which revision each custom kind is as it is. What is stored at or below it was
// written by the rules of another schema, and is pruned and defaulted when it is read.
type births struct {
	mu    sync.RWMutex
	kinds map[schema.GroupKind]birth
}

type birth struct {
	kind    *resource.Kind
	rev     storage.Rev
	seen    time.Time // when the kind was first asked for
	settled bool
}

// youth is how old a kind must be for its birth to be looked up for the last time: the registry has a new kind
// a moment before the CRD's write, by which it was born, can be seen.
const youth = time.Second

// born is the revision at or below which stored objects of a kind were written by another schema; 0 for
// kinds that are compiled in.
func (c *Cache) born(k *resource.Kind) storage.Rev {
	if !k.Custom {
		return 0
	}
	c.births.mu.RLock()
	b, ok := c.births.kinds[k.GroupKind]
	c.births.mu.RUnlock()
	if ok && b.kind == k && b.settled {
		return b.rev
	}
	now := time.Now()
	if b.kind != k {
		b = birth{kind: k, seen: now}
	}
	b.rev, b.settled = c.declaredAt(k), now.Sub(b.seen) > youth
	c.births.mu.Lock()
	defer c.births.mu.Unlock()
	if c.births.kinds == nil {
		c.births.kinds = map[schema.GroupKind]birth{}
	}
	c.births.kinds[k.GroupKind] = b
	return b.rev
}

// declaredAt is the revision of the CRD's last write, which is the schema's or a later one.
func (c *Cache) declaredAt(k *resource.Kind) storage.Rev {
	view, err := c.store.View(context.Background(), storage.Any())
	if err != nil {
		return 0
	}
	kv, ok := view.Get(crdPrefix + k.Plural + "." + k.Group)
	if !ok {
		return 0
	}
	return kv.Rev
}
