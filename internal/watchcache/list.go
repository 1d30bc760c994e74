package watchcache

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"operatord.io/operatord/internal/resource"
)

// ListOptions say what to list or watch. They are metav1.ListOptions with the selectors parsed.
type ListOptions struct {
	// Version is the one asked for: its field selectors hold. nil means the kind's preferred one.
	Version   *resource.Version
	Namespace string // "" means all

	Label labels.Selector // nil means everything
	Field fields.Selector // nil means everything

	ResourceVersion string
	Match           string // resourceVersionMatch: "", Exact, NotOlderThan
	Limit           int64
	Continue        string

	// For watches.
	SendInitialEvents *bool
	AllowBookmarks    bool
	Timeout           time.Duration // 0 means none; a last bookmark is sent before the end
	BookmarkEvery     time.Duration // 0 means the cache's
}

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
	return nil, nil
}
