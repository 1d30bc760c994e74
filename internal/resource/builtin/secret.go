package builtin

import (
	"context"
	"crypto/tls"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"operatord.io/operatord/internal/resource"
)

func (b *builder) secret() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	return b.kind(definition{
		gvk:        gv.WithKind("Secret"),
		object:     &corev1.Secret{},
		plural:     "secrets",
		singular:   "secret",
		namespaced: true,
		strategy: &own[*core.Secret]{
			base: base{scheme: b.scheme, gv: gv, namespaced: true},
			prepareUpdate: func(secret, old *core.Secret) {
				if secret.Type == "" {
					secret.Type = old.Type
				}
			},
			validate:       validation.ValidateSecret,
			validateUpdate: validation.ValidateSecretUpdate,
			warnCreate:     func(_ context.Context, secret *core.Secret) []string { return keyPairWarnings(secret) },
			warnUpdate:     func(_ context.Context, secret, _ *core.Secret) []string { return keyPairWarnings(secret) },
		},
		fields: []string{"type"},
		values: selectable(func(secret *struct {
			Type string `json:"type"`
		}) fields.Set {
			return fields.Set{"type": secret.Type}
		}),
		columns: newColumns(func(s *corev1.Secret) []any {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp)}
		},
			nameColumn(),
			column("Type", "string", corev1.Secret{}.SwaggerDoc()["type"]),
			column("Data", "string", corev1.Secret{}.SwaggerDoc()["data"]),
			ageColumn(),
		),
	})
}

// keyPairWarnings says when a TLS secret's key doesn't belong to its certificate.
func keyPairWarnings(secret *core.Secret) []string {
	if secret.Type != core.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(secret.Data[core.TLSCertKey], secret.Data[core.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
