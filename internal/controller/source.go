package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Source is where a controller's keys come from. *informer.Set is one.
type Source interface {
	Reader
	// Subscribe has fn called for every change of a kind: old nil when it appeared, new nil when it went.
	// It also makes the kind followed. Before the source runs.
	Subscribe(gk schema.GroupKind, fn func(old, new Object))
	// Synced waits until the kind is served and its view has been filled.
	Synced(ctx context.Context, gk schema.GroupKind) error
	// AtLeastOf is AtLeast for the views of some kinds, whether they are served or not. Where they have reached a
	// revision it says so even if ctx has ended.
	AtLeastOf(ctx context.Context, revision string, kinds ...schema.GroupKind) error
	// SyncedIfServed waits until the kind's view has been filled, if the kind is served now.
	SyncedIfServed(ctx context.Context, gk schema.GroupKind) error
}
