package watchcache

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

// event is what a watch with this selection sees of an entry; ok is false for nothing.
func (m *matcher) event(e *entry) (ev Event, ok bool, err error) {
	if key, single := m.key(); single && e.event.Key() != key {
		return Event{}, false, nil
	}
	now, before := e.objects(m.kind, m.born)
	var is, was bool
	if now != nil {
		if is, err = m.matches(now); err != nil {
			return Event{}, false, err
		}
	}
	if before != nil {
		if was, err = m.matches(before); err != nil {
			return Event{}, false, err
		}
	}
	rev := uint64(e.event.Rev)
	switch {
	case is && was:
		return Event{Type: Modified, Object: now, Rev: rev}, true, nil
	case is:
		return Event{Type: Added, Object: now, Rev: rev}, true, nil
	case was:
		return Event{Type: Deleted, Object: before, Rev: rev}, true, nil
	}
	return Event{}, false, nil
}
