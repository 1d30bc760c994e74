package mirror

import (
	"context"
	"errors"
	"strings"
	"sync"

	"operatord.io/operatord/internal/storage"
)

// watcher is a place in the stream of events: every one at or below pos was returned, or is not of
// the prefix.
type watcher struct {
	m      *Mirror
	group  *group
	prefix string
	pos    storage.Rev

	closeOnce sync.Once
	closed    chan struct{}
}

var _ storage.Watcher = (*watcher)(nil)

// Watch gives events of keys with the prefix after a revision.
func (m *Mirror) Watch(ctx context.Context, prefix string, after storage.Rev) (storage.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if after < m.Compacted() {
		return nil, storage.ErrCompacted
	}
	g, err := m.hub.join(prefix, m.Rev)
	if err != nil {
		return nil, err
	}
	return &watcher{m: m, group: g, prefix: prefix, pos: after, closed: make(chan struct{})}, nil
}

func (w *watcher) Next(ctx context.Context) ([]storage.Event, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.closed:
			return nil, storage.ErrClosed
		case <-w.m.hub.closed:
			return nil, storage.ErrClosed
		default:
		}
		to, pending, wake := w.m.hub.advance(w.group, w.pos)
		w.pos = to
		if !pending {
			select {
			case <-wake:
			case <-ctx.Done():
			case <-w.closed:
			case <-w.m.hub.closed:
			}
			continue
		}
		batches, reached, err := w.m.read(ctx, w.prefix, w.pos)
		if err != nil {
			if errors.Is(err, storage.ErrCompacted) {
				w.m.listener.CutOff(w.prefix)
			}
			return nil, err
		}
		events := filter(batches, w.prefix)
		w.pos = max(w.pos, reached)
		if len(events) > 0 {
			return events, nil
		}
	}
}

func (w *watcher) Progress() storage.Rev {
	to, _, _ := w.m.hub.advance(w.group, w.pos)
	return to
}

func (w *watcher) Close() {
	w.closeOnce.Do(func() {
		close(w.closed)
		w.m.hub.leave(w.group)
	})
}

// filter gives the events that have the prefix: the batch itself where it is one and all of it does,
// for it is shared by everyone who reads it.
func filter(batches [][]storage.Event, prefix string) []storage.Event {
	n := 0
	for _, events := range batches {
		for i := range events {
			if strings.HasPrefix(events[i].Key(), prefix) {
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	if len(batches) == 1 && n == len(batches[0]) {
		return batches[0][:n:n]
	}
	matching := make([]storage.Event, 0, n)
	for _, events := range batches {
		for _, e := range events {
			if strings.HasPrefix(e.Key(), prefix) {
				matching = append(matching, e)
			}
		}
	}
	return matching
}
