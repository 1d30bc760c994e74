package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"

	"operatord.io/operatord/internal/resource"
)

func coordinationGroup(b *builder) []*resource.Kind {
	gv := coordinationv1.SchemeGroupVersion
	return []*resource.Kind{b.kind(definition{
		gvk:        gv.WithKind("Lease"),
		object:     &coordinationv1.Lease{},
		plural:     "leases",
		singular:   "lease",
		namespaced: true,
		strategy:   &borrowed{base{scheme: b.scheme, gv: gv, namespaced: true}, lease.Strategy},
		columns: newColumns(func(l *coordinationv1.Lease) []any {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			return []any{l.Name, holder, age(l.CreationTimestamp)}
		},
			nameColumn(),
			column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
			ageColumn(),
		),
	})}
}
