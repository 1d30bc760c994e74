package rest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// dedupOwners drops owner references that are there twice, with a warning.
func dedupOwners(obj metav1.Object, w *warnings, afterAdmission bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	var kept []metav1.OwnerReference
	var twice []string
	seen := map[types.UID]bool{}
	for _, ref := range refs {
		if seen[ref.UID] && contains(kept, ref) {
			twice = append(twice, string(ref.UID))
			continue
		}
		seen[ref.UID] = true
		kept = append(kept, ref)
	}
	if len(twice) == 0 {
		return
	}
	where := ""
	if afterAdmission {
		where = " after mutating admission happens"
	}
	w.AddWarning("", fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v", where, strings.Join(twice, ", ")))
	obj.SetOwnerReferences(kept)
}

func contains(refs []metav1.OwnerReference, ref metav1.OwnerReference) bool {
	for _, r := range refs {
		if equality.Semantic.DeepEqual(r, ref) {
			return true
		}
	}
	return false
}
