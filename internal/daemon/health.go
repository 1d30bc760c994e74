package daemon

import (
	"errors"
	"fmt"
	"sync"

	"operatord.io/operatord/internal/storage"
)

// health says whether the daemon is ready.
type health struct {
	mu    sync.Mutex
	phase error // why not; nil once started
	store storage.Store
}

var (
	errStarting = errors.New("the server is starting")
	errStopping = errors.New("the server is stopping")
)

func newHealth() *health { return &health{phase: errStarting} }

// set changes what stands in the way; nil: nothing does.
func (h *health) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase = err
}

// watch has the store's own state count from now on.
func (h *health) watch(s storage.Store) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store = s
}

// ready is nil when requests are answered as they should be.
func (h *health) ready() error {
	h.mu.Lock()
	phase, store := h.phase, h.store
	h.mu.Unlock()
	if phase != nil {
		return phase
	}
	if err := store.Status().Err; err != nil {
		return fmt.Errorf("the store can't be written: %w", err)
	}
	return nil
}
