package pod

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/controller"
)

// sweepOften has every Pod looked at of which there are processes, at the start and now and then: also Pods that
// are gone, which no event and no resync would bring up.
func (op *Operator) sweepOften(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := op.sweep(ctx); err != nil {
			op.Log.Error("can't look for processes without a Pod", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (op *Operator) sweep(ctx context.Context) error {
	withFiles, err := op.labels.all() // before anything else: files made meanwhile are left alone
	if err != nil {
		return err
	}
	processes, err := op.Runtime.List()
	if err != nil {
		return err
	}
	keys := map[controller.Key]bool{}
	uids := map[types.UID]bool{}
	for _, p := range processes {
		key := ownerKey(p)
		op.note(key, types.UID(p.Group))
		keys[key] = true
		uids[types.UID(p.Group)] = true
	}
	for key := range keys {
		if !send(ctx, op.hints, key) {
			return nil
		}
	}
	// Files of Pods that have neither a process nor an object.
	for obj := range op.Reader.List(podKind, controller.Query{}) {
		uids[obj.GetUID()] = true
	}
	op.mu.Lock()
	for _, here := range op.here {
		for uid := range here {
			uids[uid] = true
		}
	}
	op.mu.Unlock()
	for _, uid := range withFiles {
		if !uids[uid] {
			if err := op.labels.remove(uid); err != nil {
				return err
			}
		}
	}
	return nil
}
