package garbagecollector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
)

// owners is what an item's owner references lead to.
type owners struct {
	solid   int         // they exist, and don't wait for their dependents to go
	absent  []types.UID // they don't exist, or not where they can be owners
	waiting []types.UID // they are being deleted in the foreground and wait for the item
	keep    bool        // nothing can be said about one of them, or it can't be an owner: the item stays
}

func (c *Collector) classify(ctx context.Context, item *informer.Item) (owners, error) {
	var out owners
	for _, ref := range item.Owners() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		kind, served := c.kind(gv.WithKind(ref.Kind).GroupKind())
		if err != nil || !served || !kind.Declares(gv.Version) {
			c.mu.Lock()
			c.unknown[item.UID()] = struct{}{}
			c.mu.Unlock()
			if again, ok := c.kind(gv.WithKind(ref.Kind).GroupKind()); ok && again != kind {
				c.loop.Add(item.UID()) // it appeared between the two looks
			}
			out.keep = true
			return out, nil
		}
		if kind.Namespaced && item.Key.Namespace == "" {
			c.report(ctx, item, ref, "cluster-scoped objects cannot refer to namespaced owners: ownerRef %s is ignored")
			out.keep = true
			return out, nil
		}
		// The owner's own kind first; before it is taken for absent, all.
		if err := c.Set.AtLeastOf(ctx, revision(item), kind.GroupKind); err != nil {
			return out, err
		}
		owner, ok := c.items.ByUID(ref.UID)
		if !ok {
			if err := c.Set.AtLeastOf(ctx, revision(item)); err != nil {
				return out, err
			}
			owner, ok = c.items.ByUID(ref.UID)
		}
		switch {
		case !ok:
			out.absent = append(out.absent, ref.UID)
		case owner.Key.Namespace != "" && owner.Key.Namespace != item.Key.Namespace:
			c.report(ctx, item, ref, fmt.Sprintf("ownerRef %%s does not exist in namespace %q", item.Key.Namespace))
			out.absent = append(out.absent, ref.UID)
		case waitsForDependents(owner):
			out.waiting = append(out.waiting, ref.UID)
		default:
			out.solid++
		}
	}
	return out, nil
}

// report tells of an owner reference that can't be one, once for each state of the dependent.
func (c *Collector) report(ctx context.Context, item *informer.Item, ref metav1.OwnerReference, format string) {
	owner := fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, item.Key.Namespace, ref.Name, ref.UID)
	about := corev1.ObjectReference{
		Kind:            item.Kind().Kind,
		Namespace:       item.Key.Namespace,
		Name:            item.Key.Name,
		UID:             item.UID(),
		ResourceVersion: revision(item),
	}
	if kind, ok := c.kind(item.Kind()); ok {
		about.APIVersion = kind.Stored.GVK.GroupVersion().String()
	}
	c.recorder.RecordRef(ctx, about, controller.Event{
		Type:    corev1.EventTypeWarning,
		Reason:  "OwnerRefInvalidNamespace",
		Message: fmt.Sprintf(format, owner),
	}, "")
}
