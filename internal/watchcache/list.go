package watchcache

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// List is one page of objects of a kind at one revision.
type List struct {
	Objects   []*Object // in order of namespace and name
	Rev       uint64    // the list's resourceVersion
	Continue  string    // for the next page; "" when this was the last
	Remaining *int64    // remainingItemCount; nil when unknown (with selectors) or when nothing remains
}

// List lists. Errors are API errors: 400 for options that make no sense, 410 for a revision or a page that
// is gone, 504 for a resourceVersion that isn't reached within 3 s.
func (c *Cache) List(ctx context.Context, k *resource.Kind, opts ListOptions) (*List, error) {
	if err := opts.validate(false); err != nil {
		return nil, err
	}
	m, err := newMatcher(k, &opts)
	if err != nil {
		return nil, err
	}
	view, from, err := c.listView(ctx, m, &opts)
	if err != nil {
		return nil, err
	}
	limit := opts.Limit
	if opts.ResourceVersion == "0" && opts.Continue == "" {
		limit = 0 // as kube-apiserver's cache: a list at any revision is given whole
	}
	return c.list(view, m, from, limit)
}

// list reads one page from a view, from a key on. limit 0 is no limit.
func (c *Cache) list(view storage.View, m *matcher, from string, limit int64) (*List, error) {
	prefix := m.prefix()
	born := storage.Rev(m.kind.Declared)
	out := &List{Rev: uint64(view.Rev()), Objects: []*Object{}}
	if m.never {
		return out, nil
	}
	if key, ok := m.key(); ok {
		if kv, ok := view.Get(key); ok && key >= from {
			o := c.peek(m.kind, kv, born)
			ok, err := m.matches(o)
			if err != nil {
				return nil, err
			}
			if ok {
				out.Objects = append(out.Objects, o)
			}
		}
		return out, nil
	}
	if !m.selects && limit <= 0 && from == prefix {
		out.Objects = make([]*Object, 0, view.Count(prefix))
	}
	last, seen := "", int64(0)
	for kv := range view.Range(prefix, from) {
		if limit > 0 && int64(len(out.Objects)) >= limit {
			// There is more: the next page begins right behind the last key of this one.
			out.Continue = encodeContinue(last+"\x00", prefix, view.Rev())
			if !m.selects {
				remaining := remaining(view, prefix, from) - seen
				out.Remaining = &remaining
			}
			return out, nil
		}
		seen++
		last = kv.Key
		o := c.peek(m.kind, kv, born)
		if m.selects {
			ok, err := m.matches(o)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
		}
		out.Objects = append(out.Objects, o)
	}
	return out, nil
}

// remaining counts the keys with the prefix that are not below from.
func remaining(view storage.View, prefix, from string) int64 {
	if from == prefix {
		return int64(view.Count(prefix))
	}
	n := int64(0)
	for range view.Range(prefix, from) {
		n++
	}
	return n
}

// listView finds the view that a list is about and the key it begins at.
func (c *Cache) listView(ctx context.Context, m *matcher, opts *ListOptions) (storage.View, string, error) {
	prefix := m.prefix()
	if opts.Continue != "" {
		from, rev, err := decodeContinue(opts.Continue, prefix)
		if err != nil {
			return nil, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return nil, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if rev < 0 { // the rest of an expired list, at the latest revision
			view, err := c.view(ctx, storage.Latest())
			return view, from, err
		}
		view, err := c.store.View(ctx, storage.Exact(storage.Rev(rev)))
		if errors.Is(err, storage.ErrCompacted) {
			return nil, "", expiredPage(from, prefix)
		}
		if err != nil {
			return nil, "", c.viewError(err, storage.Rev(rev))
		}
		return view, from, nil
	}
	rev, err := ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, "", err
	}
	exact := opts.Match == "Exact" || (opts.Match == "" && opts.Limit > 0)
	if rev > 0 && exact {
		// A revision that is only just being written may be waited for, as for one that isn't exact.
		if rev > storage.Rev(c.progress.Load()) {
			if _, err := c.notOlder(ctx, rev); err != nil {
				return nil, "", err
			}
		}
		view, err := c.view(ctx, storage.Exact(rev))
		return view, prefix, err
	}
	view, err := c.View(ctx, opts.ResourceVersion)
	return view, prefix, err
}
