package controller

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/informer"
)

// deletesAtOnce is how many deletes of one DeleteAll are under way: the store writes them in one batch.
const deletesAtOnce = 32

// DeleteAll deletes what isn't being deleted yet and waits for the answers. A nil policy is the kind's own. It
// returns each error but those of objects that have gone or were made anew.
func DeleteAll(ctx context.Context, w Writer, items iter.Seq[*informer.Item], policy *metav1.DeletionPropagation) (failed []error) {
	var (
		mu      sync.Mutex
		deletes errgroup.Group
	)
	deletes.SetLimit(deletesAtOnce)
	for item := range items {
		if item.Deleting() {
			continue
		}
		deletes.Go(func() error {
			err := w.Delete(ctx, item.Kind(), item.Key, metav1.DeleteOptions{
				Preconditions:     &metav1.Preconditions{UID: new(item.UID())},
				PropagationPolicy: policy,
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = deletes.Wait() // they return none
	return failed
}

// shownErrors is how many errors a status tells.
const shownErrors = 10

// Some are the first errors, and how many more there are: with one for each of many objects a status would grow too
// large to be written.
func Some(errs []error) []error {
	more := len(errs) - shownErrors
	if more <= 0 {
		return errs
	}
	return append(errs[:shownErrors:shownErrors], fmt.Errorf("and %d more", more))
}
