package daemon

import (
	"context"
	"fmt"

	"operatord.io/operatord/internal/operator/crd"
)

// bootstrap makes what always exists: the four namespaces, and the CRDs of operators that are on, served
// and with their views filled, so that the first request after readiness can use them.
func (s *server) bootstrap(ctx context.Context) error {
	writer := s.writer(alwaysOn)
	if err := crd.EnsureNamespaces(ctx, writer); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	for _, m := range makers() {
		if !s.on[m.name] || m.crds == nil {
			continue
		}
		if err := crd.Install(ctx, s.informers, writer, m.crds); err != nil {
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
