package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"operatord.io/operatord/internal/resource"
)

func (b *builder) configMap() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	return b.kind(definition{
		gvk:        gv.WithKind("ConfigMap"),
		object:     &corev1.ConfigMap{},
		plural:     "configmaps",
		singular:   "configmap",
		shortNames: []string{"cm"},
		namespaced: true,
		strategy: &own[*core.ConfigMap]{
			base:           base{scheme: b.scheme, gv: gv, namespaced: true},
			validate:       validation.ValidateConfigMap,
			validateUpdate: validation.ValidateConfigMapUpdate,
		},
		columns: newColumns(func(cm *corev1.ConfigMap) []any {
			return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), age(cm.CreationTimestamp)}
		},
			nameColumn(),
			column("Data", "string", corev1.ConfigMap{}.SwaggerDoc()["data"]),
			ageColumn(),
		),
	})
}
