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
	view, from, left, err := c.listView(ctx, m, &opts)
	if err != nil {
		return nil, err
	}
	limit := opts.Limit
	if opts.ResourceVersion == "0" && opts.Continue == "" {
		limit = 0 // as kube-apiserver's cache: a list at any revision is given whole
	}
	return c.list(view, m, page{from, limit, left})
}

// page is the part of a list that is asked for.
type page struct {
	from  string // the key that it begins at
	limit int64  // 0 is none
	left  int64  // how many objects there are from that key on; 0: not known
}

// list reads one page from a view.
func (c *Cache) list(view storage.View, m *matcher, p page) (*List, error) {
	prefix, from, limit := m.prefix(), p.from, p.limit
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
			left := p.left
			if from == prefix {
				left = int64(view.Count(prefix))
			}
			if m.selects || left <= seen {
				left = seen // how many remain isn't known
			} else {
				remaining := left - seen
				out.Remaining = &remaining
			}
			out.Continue = encodeContinue(last+"\x00", prefix, view.Rev(), left-seen)
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

// listView finds the view that a list is about, the key it begins at and, if that is known, how many objects are
// there from then on.
func (c *Cache) listView(ctx context.Context, m *matcher, opts *ListOptions) (view storage.View, from string, left int64, err error) {
	prefix := m.prefix()
	if opts.Continue != "" {
		var rev int64
		from, rev, left, err = decodeContinue(opts.Continue, prefix)
		if err != nil {
			return nil, "", 0, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return nil, "", 0, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if rev < 0 { // the rest of an expired list, at the latest revision
			view, err := c.view(ctx, storage.Latest())
			return view, from, 0, err
		}
		view, err := c.store.View(ctx, storage.Exact(storage.Rev(rev)))
		if errors.Is(err, storage.ErrCompacted) {
			return nil, "", 0, expiredPage(from, prefix)
		}
		if err != nil {
			return nil, "", 0, c.viewError(err, storage.Rev(rev))
		}
		return view, from, left, nil
	}
	rev, err := ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, "", 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	exact := opts.Match == "Exact" || (opts.Match == "" && opts.Limit > 0)
	if rev > 0 && exact {
		// A revision that is only just being written may be waited for, as for one that isn't exact.
		if rev > storage.Rev(c.progress.Load()) {
			if _, err := c.notOlder(ctx, rev); err != nil {
				return nil, "", 0, err
			}
		}
		view, err := c.view(ctx, storage.Exact(rev))
		return view, prefix, 0, err
	}
	view, err = c.View(ctx, opts.ResourceVersion)
	return view, prefix, 0, err
}
