package namespace

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/informer"
)

func filter(items []*informer.Item, keep func(*informer.Item) bool) iter.Seq[*informer.Item] {
	return func(yield func(*informer.Item) bool) {
		for _, item := range items {
			if keep(item) && !yield(item) {
				return
			}
		}
	}
}

// setConditions says what remains in a namespace, in Kubernetes' words. A condition's time moves when its
// status flips.
func setConditions(status *corev1.NamespaceStatus, remaining []*informer.Item, failed []error, now metav1.Time) {
	set := func(t corev1.NamespaceConditionType, problem, problemReason, fine, fineReason string) {
		c := corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: fineReason, Message: fine, LastTransitionTime: now}
		if problem != "" {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, problemReason, problem
		}
		at := slices.IndexFunc(status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == t })
		if at < 0 {
			status.Conditions = append(status.Conditions, c)
			return
		}
		if status.Conditions[at].Status == c.Status {
			c.LastTransitionTime = status.Conditions[at].LastTransitionTime
		}
		status.Conditions[at] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, "", "", "All resources successfully discovered", "ResourcesDiscovered")
	set(corev1.NamespaceDeletionGVParsingFailure, "", "", "All legacy kube types successfully parsed", "ParsedGroupVersions")
	set(corev1.NamespaceDeletionContentFailure, failures(failed), "ContentDeletionFailed",
		"All content successfully deleted, may be waiting on finalization", "ContentDeleted")
	byResource, byFinalizer := counts(remaining)
	set(corev1.NamespaceContentRemaining, listed("Some resources are remaining: ", byResource), "SomeResourcesRemain",
		"All content successfully removed", "ContentRemoved")
	set(corev1.NamespaceFinalizersRemaining, listed("Some content in the namespace has finalizers remaining: ", byFinalizer), "SomeFinalizersRemain",
		"All content-preserving finalizers finished", "ContentHasNoFinalizers")
}

func failures(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	sorted := slices.SortedFunc(slices.Values(errs), func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	texts := make([]string, 0, len(sorted))
	for _, err := range controller.Some(sorted) {
		texts = append(texts, err.Error())
	}
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(errs), strings.Join(texts, ", "))
}

func counts(items []*informer.Item) (byResource, byFinalizer map[string]int) {
	byResource, byFinalizer = map[string]int{}, map[string]int{}
	for _, item := range items {
		byResource[item.Resource().Resource+"."+item.Resource().Group+" has %d resource instances"]++
		for _, f := range item.Finalizers() {
			byFinalizer[strings.ReplaceAll(f, "%", "%%")+" in %d resource instances"]++
		}
	}
	return byResource, byFinalizer
}

func listed(start string, formats map[string]int) string {
	if len(formats) == 0 {
		return ""
	}
	var texts []string
	for _, format := range slices.Sorted(maps.Keys(formats)) {
		texts = append(texts, fmt.Sprintf(format, formats[format]))
	}
	return start + strings.Join(texts, ", ")
}
