package watchcache

import (
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// countingView is a view that counts what is read of it.
type countingView struct {
	storage.View
	kvs  []*storage.KV
	read int
}

func (v *countingView) Rev() storage.Rev { return 7 }

func (v *countingView) Count(string) int { return len(v.kvs) }

func (v *countingView) Range(prefix, from string) iter.Seq[*storage.KV] {
	return func(yield func(*storage.KV) bool) {
		for _, kv := range v.kvs {
			if kv.Key < from || !strings.HasPrefix(kv.Key, prefix) {
				continue
			}
			v.read++
			if !yield(kv) {
				return
			}
		}
	}
}

// Reading a list in pages reads each object about once: how many remain is known without walking the rest.
func TestPagesDoNotWalkTheRest(t *testing.T) {
	const objects, limit = 1000, 10
	v := &resource.Version{Name: "v1", GVK: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}}
	k := &resource.Kind{GroupKind: v.GVK.GroupKind(), Plural: "ks", Versions: []*resource.Version{v}, Stored: v}
	view := &countingView{}
	for i := range objects {
		view.kvs = append(view.kvs, &storage.KV{Key: resource.Key(k, "", fmt.Sprintf("%04d", i)), Rev: 1})
	}
	m, err := newMatcher(k, &ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cache{seed: maphash.MakeSeed()}
	p := page{from: m.prefix(), limit: limit}
	for n := 1; ; n++ {
		list, err := c.list(view, m, p)
		if err != nil {
			t.Fatal(err)
		}
		if list.Continue == "" {
			if n*limit != objects {
				t.Errorf("%d pages", n)
			}
			break
		}
		if want := int64(objects - n*limit); list.Remaining == nil || *list.Remaining != want {
			t.Fatalf("page %d says %v remain, want %d", n, list.Remaining, want)
		}
		if p.from, _, p.left, err = decodeContinue(list.Continue, m.prefix()); err != nil {
			t.Fatal(err)
		}
	}
	if most := objects + objects/limit; view.read > most {
		t.Errorf("%d objects were read for %d pages, want %d at most", view.read, objects/limit, most)
	}
}
