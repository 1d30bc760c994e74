package builtin

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"

	"operatord.io/operatord/internal/resource"
)

// rbacGroup are roles and bindings as data; what they grant is the authorizer's to say.
func rbacGroup(b *builder) []*resource.Kind {
	kind := func(name string, object runtime.Object, namespaced bool, from upstream, columns resource.Columns) *resource.Kind {
		gv := rbacv1.SchemeGroupVersion
		singular := strings.ToLower(name)
		return b.kind(definition{
			gvk:        gv.WithKind(name),
			object:     object,
			plural:     singular + "s",
			singular:   singular,
			namespaced: namespaced,
			strategy:   &borrowed{base{scheme: b.scheme, gv: gv, namespaced: namespaced}, from},
			columns:    columns,
		})
	}
	return []*resource.Kind{
		kind("ClusterRoleBinding", &rbacv1.ClusterRoleBinding{}, false, clusterrolebinding.Strategy, newColumns(
			func(b *rbacv1.ClusterRoleBinding) []any { return bindingCells(&b.ObjectMeta, b.RoleRef, b.Subjects) },
			bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc())...)),
		kind("ClusterRole", &rbacv1.ClusterRole{}, false, clusterrole.Strategy, createdAtColumns{}),
		kind("RoleBinding", &rbacv1.RoleBinding{}, true, rolebinding.Strategy, newColumns(
			func(b *rbacv1.RoleBinding) []any { return bindingCells(&b.ObjectMeta, b.RoleRef, b.Subjects) },
			bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc())...)),
		kind("Role", &rbacv1.Role{}, true, role.Strategy, createdAtColumns{}),
	}
}

func bindingColumns(what string, doc map[string]string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(),
		column("Role", "string", doc["roleRef"]),
		ageColumn(),
		wide("Users", "string", "Users in the "+what),
		wide("Groups", "string", "Groups in the "+what),
		wide("ServiceAccounts", "string", "ServiceAccounts in the "+what),
	}
}

func bindingCells(meta *metav1.ObjectMeta, ref rbacv1.RoleRef, subjects []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		}
	}
	return []any{
		meta.Name, ref.Kind + "/" + ref.Name, age(meta.CreationTimestamp),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
