package daemon

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/operator/event"
	"operatord.io/operatord/internal/operator/namespace"
)

// attendance is what becomes of the objects of a kind that is compiled in: exactly one of its fields is set.
type attendance struct {
	operator string // that acts on them, as --operators names it
	data     bool   // nobody has to act on them: they are what clients and operators keep there
	nobody   string // acts on them yet: the Warning that a create is answered with
}

// attendances has a line for every kind that is compiled in. An operator that comes takes nobody's place.
func attendances() map[schema.GroupKind]attendance {
	const (
		noPods = " are kept, but nobody acts on them yet: no Pod is made of this one"
		noRBAC = " are kept, but not asked yet: only members of system:masters may do anything beyond looking at what is served"
	)
	apps := func(kind string) schema.GroupKind { return appsv1.SchemeGroupVersion.WithKind(kind).GroupKind() }
	batch := func(kind string) schema.GroupKind { return batchv1.SchemeGroupVersion.WithKind(kind).GroupKind() }
	rbac := func(kind string) schema.GroupKind { return rbacv1.SchemeGroupVersion.WithKind(kind).GroupKind() }
	return map[schema.GroupKind]attendance{
		{Kind: "ConfigMap"}: {data: true},
		{Kind: "Event"}:     {operator: event.Name},
		{Kind: "Namespace"}: {operator: namespace.Name},
		{Kind: "Node"}:      {operator: "pod"},
		{Kind: "Pod"}:       {operator: "pod"},
		{Kind: "Secret"}:    {data: true},
		{Kind: "ServiceAccount"}: {
			nobody: "ServiceAccounts are kept, but nobody issues their tokens yet: no Pod and no client can sign in as this one",
		},
		crdKind: {operator: alwaysOn},
		{Group: coordinationv1.GroupName, Kind: "Lease"}: {data: true},
		{Group: eventsv1.GroupName, Kind: "Event"}:       {operator: event.Name},

		apps("Deployment"):  {nobody: "Deployments" + noPods},
		apps("ReplicaSet"):  {nobody: "ReplicaSets" + noPods},
		apps("StatefulSet"): {nobody: "StatefulSets" + noPods},
		batch("Job"):        {nobody: "Jobs" + noPods},
		batch("CronJob"):    {nobody: "CronJobs" + noPods},

		rbac("ClusterRole"):        {nobody: "ClusterRoles" + noRBAC},
		rbac("ClusterRoleBinding"): {nobody: "ClusterRoleBindings" + noRBAC},
		rbac("Role"):               {nobody: "Roles" + noRBAC},
		rbac("RoleBinding"):        {nobody: "RoleBindings" + noRBAC},
	}
}

// unattended gives the Warning for a create of a kind on which nobody acts yet, "" for others. It is nil where no
// operator runs: an API server alone promises nothing of the sort, and whoever uses it may well act.
func unattended(on map[string]bool) func(schema.GroupKind) string {
	for _, is := range on {
		if is {
			table := attendances()
			return func(gk schema.GroupKind) string { return table[gk].nobody }
		}
	}
	return nil
}
