package watchcache

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/storage"
)

// freshFor is how long a reader waits for a resourceVersion that isn't there yet.
const freshFor = 3 * time.Second

// View is the store as a resourceVersion asks: "" is the latest, "0" whatever is at hand, a number not
// older than that, for which it waits up to 3 s. Errors are API errors.
func (c *Cache) View(ctx context.Context, resourceVersion string) (storage.View, error) {
	if resourceVersion == "" {
		return c.view(ctx, storage.Latest())
	}
	rev, err := ParseResourceVersion(resourceVersion)
	if err != nil {
		return nil, err
	}
	if rev == 0 {
		return c.view(ctx, storage.Any())
	}
	return c.notOlder(ctx, rev)
}

func (c *Cache) notOlder(ctx context.Context, rev storage.Rev) (storage.View, error) {
	if storage.Rev(c.progress.Load()) >= rev { // which the store has passed too
		return c.view(ctx, storage.NotOlder(rev))
	}
	wait, cancel := context.WithTimeout(ctx, freshFor)
	defer cancel()
	view, err := c.store.View(wait, storage.NotOlder(rev))
	if err != nil {
		if ctx.Err() == nil && wait.Err() != nil {
			return nil, tooLarge(rev, c.store.Status().Rev)
		}
		return nil, c.viewError(err, rev)
	}
	return view, nil
}

func (c *Cache) view(ctx context.Context, at storage.At) (storage.View, error) {
	view, err := c.store.View(ctx, at)
	if err != nil {
		rev, _ := at.ExactRev()
		return nil, c.viewError(err, rev)
	}
	return view, nil
}

// viewError makes an API error of a View's.
func (c *Cache) viewError(err error, rev storage.Rev) error {
	switch {
	case errors.Is(err, storage.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case errors.Is(err, storage.ErrFuture):
		return tooLarge(rev, c.store.Status().Rev)
	case errors.Is(err, storage.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return apierrors.NewInternalError(err)
}
