package builtin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"operatord.io/operatord/internal/resource"
)

// enforceMountableSecrets is a deprecated annotation.
const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func (b *builder) serviceAccount() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	return b.kind(definition{
		gvk:        gv.WithKind("ServiceAccount"),
		object:     &corev1.ServiceAccount{},
		plural:     "serviceaccounts",
		singular:   "serviceaccount",
		shortNames: []string{"sa"},
		namespaced: true,
		strategy: &own[*core.ServiceAccount]{
			base:           base{scheme: b.scheme, gv: gv, namespaced: true},
			prepareCreate:  namesOfSecrets,
			prepareUpdate:  func(account, _ *core.ServiceAccount) { namesOfSecrets(account) },
			validate:       validation.ValidateServiceAccount,
			validateUpdate: validation.ValidateServiceAccountUpdate,
			warnCreate: func(_ context.Context, account *core.ServiceAccount) []string {
				return annotationWarnings(account, nil)
			},
			warnUpdate: func(_ context.Context, account, old *core.ServiceAccount) []string {
				return annotationWarnings(account, old)
			},
		},
		columns: newColumns(func(a *corev1.ServiceAccount) []any {
			return []any{a.Name, age(a.CreationTimestamp)}
		}, nameColumn(), ageColumn()),
		returnDeleted: true,
	})
}

// namesOfSecrets leaves nothing but names in the account's references to secrets.
func namesOfSecrets(account *core.ServiceAccount) {
	for i, secret := range account.Secrets {
		account.Secrets[i] = core.ObjectReference{Name: secret.Name}
	}
}

// annotationWarnings warns of the annotation when it is new.
func annotationWarnings(account, old *core.ServiceAccount) []string {
	if old != nil {
		if _, had := old.Annotations[enforceMountableSecrets]; had {
			return nil
		}
	}
	if _, has := account.Annotations[enforceMountableSecrets]; !has {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets", enforceMountableSecrets)}
}
