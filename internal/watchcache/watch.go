package watchcache

import (
	"context"

	"operatord.io/operatord/internal/resource"
)

// EventType is the type of a watch event, as it stands on the wire.
type EventType string

const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one event of a watch, selectors applied: an object that enters the selection is Added, one that
// leaves it is Deleted with its old state at the new revision. A Bookmark has a Rev and no Object.
type Event struct {
	Type   EventType
	Object *Object
	Rev    uint64
	// InitialEventsEnd marks the bookmark that closes the initial events of a streaming list.
	InitialEventsEnd bool
}

// Watch is one open watch. Next is for one goroutine; Close may be called from any.
type Watch struct{}

// Watch opens a watch. Errors are API errors, as List's.
func (c *Cache) Watch(ctx context.Context, k *resource.Kind, opts ListOptions) (*Watch, error) {
	return nil, nil
}

// Next waits for events and returns at least one, oldest first. It returns io.EOF when the watch has ended
// in order (its Timeout is over, its kind has changed or gone, the cache was closed), the context's error,
// or an API error that belongs into an ERROR event: 410 Expired when the watch fell out of the history.
// The slice is the caller's until the next call.
func (w *Watch) Next(ctx context.Context) ([]Event, error) { return nil, nil }

// Rev is a revision up to which Next has returned everything.
func (w *Watch) Rev() uint64 { return 0 }

// Close ends the watch; Next returns io.EOF from then on.
func (w *Watch) Close() {}
