package cluster

import (
	"context"
	"errors"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/controller"
)

// troubles are the actions that failed at their last try, by Cluster, so that a status can say why something is
// not done. Nothing is decided by them.
type troubles struct {
	mu    sync.Mutex
	byKey map[controller.Key]trouble
}

// trouble is why an action failed.
type trouble struct{ kind, target, text string }

func (t *troubles) of(key controller.Key) trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[key]
}

// note remembers how a ended. Conflicts are not worth a word: they mean that the world moved on.
func (t *troubles) note(key controller.Key, a Action, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		delete(t.byKey, key)
	case apierrors.IsConflict(err), errors.Is(err, controller.ErrRunning), errors.Is(err, context.Canceled):
	default:
		t.byKey[key] = trouble{a.kind, a.target, advised(err)}
	}
}

// advised is an error's text with what helps, where that isn't in the text: a cause that ends by itself or by a
// person's doing on the machine, after which nothing else has to be done.
func advised(err error) string {
	for _, a := range []struct {
		cause error
		help  string
	}{
		{syscall.ENOSPC, "make room on the file system of operatord's data directory"},
		{syscall.EDQUOT, "make room in the quota of operatord's user"},
		{syscall.EMFILE, "raise the number of files that operatord may open (ulimit -n, LimitNOFILE)"},
		{syscall.ENFILE, "raise the number of files that the machine may open (fs.file-max)"},
		{syscall.ENOMEM, "free memory of the machine"},
		{syscall.EIO, "look at the disk (dmesg)"},
	} {
		if errors.Is(err, a.cause) {
			return err.Error() + ": " + a.help + "; it is tried again every few seconds"
		}
	}
	return err.Error()
}

func (t *troubles) forget(key controller.Key) { t.note(key, Action{}, nil) }
