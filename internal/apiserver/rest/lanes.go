package rest

import (
	"context"
	"sync"
)

// lanes let writers of one key go one after the other, once they have lost races for it: a hundred patches
// of one object would otherwise all be computed again each time that one of them lands.
type lanes struct {
	mu   sync.Mutex
	keys map[string]*lane
}

type lane struct {
	turn  chan struct{} // of capacity 1: full while somebody has it
	users int           // who has it or waits for it
}

// enter waits for the key's turn, as long as the context allows. leave ends it.
func (l *lanes) enter(ctx context.Context, key string) (leave func(), err error) {
	l.mu.Lock()
	if l.keys == nil {
		l.keys = map[string]*lane{}
	}
	mine := l.keys[key]
	if mine == nil {
		mine = &lane{turn: make(chan struct{}, 1)}
		l.keys[key] = mine
	}
	mine.users++
	l.mu.Unlock()
	done := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(l.keys, key)
		}
	}
	select {
	case mine.turn <- struct{}{}:
		return func() {
			<-mine.turn
			done()
		}, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
