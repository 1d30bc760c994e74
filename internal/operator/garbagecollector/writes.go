package garbagecollector

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/informer"
)

// delete deletes an item as it was seen.
func (c *Collector) delete(ctx context.Context, item *informer.Item, policy metav1.DeletionPropagation) error {
	rev := revision(item)
	err := c.Writer.Delete(ctx, item.Kind(), item.Key, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: new(item.UID()), ResourceVersion: &rev},
		PropagationPolicy: &policy,
	})
	if err == nil {
		c.Log.Info("collected", "kind", item.Kind(), "object", item.Key, "propagation", policy)
	}
	return err
}

// disown removes owner references from an item.
func (c *Collector) disown(ctx context.Context, item *informer.Item, remove func(metav1.OwnerReference) bool) error {
	left := slices.DeleteFunc(slices.Clone(item.Owners()), remove)
	if len(left) == len(item.Owners()) {
		return nil
	}
	return c.patch(ctx, item, map[string]any{"ownerReferences": left})
}

// release takes a finalizer off an item.
func (c *Collector) release(ctx context.Context, item *informer.Item, finalizer string) error {
	left := slices.DeleteFunc(slices.Clone(item.Finalizers()), func(f string) bool { return f == finalizer })
	return c.patch(ctx, item, map[string]any{"finalizers": left})
}

// patch changes metadata of an item as it was seen: a conflict otherwise.
func (c *Collector) patch(ctx context.Context, item *informer.Item, metadata map[string]any) error {
	metadata["uid"] = item.UID()
	metadata["resourceVersion"] = revision(item)
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return c.Writer.Patch(ctx, item.Kind(), item.Key, types.MergePatchType, data, "")
}
