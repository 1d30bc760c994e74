package rest

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"operatord.io/operatord/internal/resource"
)

// keepTimestamps gives managedFields their old times back where nothing else of the object changed, so that
// a write that changes nothing isn't one.
func keepTimestamps(obj, old resource.Object) {
	now, before := obj.GetManagedFields(), old.GetManagedFields()
	if len(now) != len(before) || len(now) == 0 {
		return
	}
	moved := false
	for i := range now {
		moved = moved || !now[i].Time.Equal(before[i].Time)
	}
	if !moved {
		return
	}
	for i := range now {
		a, b := now[i], before[i]
		a.Time, b.Time = nil, nil
		if !reflect.DeepEqual(a, b) {
			return
		}
	}
	if !equalButManaged(obj, old) {
		return
	}
	for i := range now {
		now[i].Time = before[i].Time
	}
	obj.SetManagedFields(now)
}

// equalButManaged compares two objects apart from managedFields, which are known to differ in times only.
func equalButManaged(obj, old resource.Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	was, wasToo := old.(*unstructured.Unstructured)
	if ok && wasToo {
		return equalMaps(u.Object, was.Object, "metadata")
	}
	now := obj.GetManagedFields()
	obj.SetManagedFields(old.GetManagedFields())
	defer obj.SetManagedFields(now)
	return equality.Semantic.DeepEqual(obj, old)
}

// equalMaps compares content; below the member at, if there is one, managedFields are left out.
func equalMaps(a, b map[string]any, at string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, x := range a {
		y, ok := b[k]
		if !ok {
			return false
		}
		if k == at {
			xm, xok := x.(map[string]any)
			ym, yok := y.(map[string]any)
			if xok && yok {
				if !equalMaps(xm, ym, "") {
					return false
				}
				continue
			}
		}
		if at == "" && k == "managedFields" {
			continue
		}
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
