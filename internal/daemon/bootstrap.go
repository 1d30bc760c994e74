package daemon

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/operator/crd"
)

// ensureNamespaces makes the namespaces that always exist, before anything acts in them.
func (s *server) ensureNamespaces(ctx context.Context) error {
	if err := crd.EnsureNamespaces(ctx, s.writer(alwaysOn)); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	return nil
}

// install makes the CRDs of operators that are on, and waits until they are served and their views are
// filled, so that the first request after readiness can use them. Informers and crd must run.
func (s *server) install(ctx context.Context) error {
	for _, m := range makers() {
		if !s.on[m.name] || m.crds == nil {
			continue
		}
		err := crd.Install(ctx, s.informers, s.writer(alwaysOn), m.crds)
		if apierrors.IsInvalid(err) {
			// Somebody has made the definitions into others. Everything else is served.
			s.cfg.Log.Error("an operator's CustomResourceDefinitions can't be installed; delete or mend the stored ones, then restart",
				"operator", m.name, "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("daemon: operator %s: %w", m.name, err)
		}
		for _, gk := range m.kinds {
			if err := s.informers.Synced(ctx, gk); err != nil {
				return fmt.Errorf("daemon: operator %s: wait until %s is served: %w", m.name, gk, err)
			}
		}
	}
	return nil
}
