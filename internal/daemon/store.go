package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"operatord.io/operatord/internal/metrics"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/storage/bolt"
)

var crdKind = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}

// openStore opens the store and teaches the registry the CRDs in it. From then on the registry hears of
// each CRD before its revision is visible, so a CRD is never seen Established before it is served.
func (s *server) openStore(ctx context.Context) error {
	kind, ok := s.registry.ByKind(crdKind)
	if !ok {
		return fmt.Errorf("daemon: %s is not compiled in", crdKind)
	}
	// It is written when a daemon has become ready, and an empty store in place of what that served would have every
	// Pod's processes ended.
	_, err := os.Stat(s.dir.file(kubeconfigFile))
	served := err == nil
	store, err := bolt.Open(ctx, bolt.Options{
		Dir:        s.dir.file(storeDir),
		Existing:   served,
		Log:        s.cfg.Log,
		Publishing: func(events []storage.Event) { s.publishing(kind, events) },
		Listener: storage.Listener{
			Committed: s.metrics.StoreCommitted,
			Failed: func(err error) {
				if err != nil {
					s.cfg.Log.Error("the store can't be written", "err", err)
					return
				}
				s.cfg.Log.Info("the store can be written again")
			},
		},
	})
	if errors.Is(err, bolt.ErrGone) {
		return fmt.Errorf("daemon: %w. Put %s back; or, to begin with nothing and have all Pods ended:\n  rm %s", err, s.dir.file(storeDir), quote(s.dir.file(kubeconfigFile)))
	}
	if err != nil {
		return fmt.Errorf("daemon: open the store in %s: %w", s.dir.file(storeDir), err)
	}
	s.store = store
	s.health.watch(store)
	s.metrics.StoreStatus(func() metrics.StoreState {
		st := store.Status()
		return metrics.StoreState{
			Revision: uint64(st.Rev), Compacted: uint64(st.Compacted),
			Keys: st.Keys, DiskBytes: st.DiskBytes, Writable: st.Err == nil,
		}
	})
	view, err := store.View(ctx, storage.Latest())
	if err != nil {
		return fmt.Errorf("daemon: read the store: %w", err)
	}
	for kv := range view.Range(resource.Prefix(kind, ""), "") {
		s.setCRD(kv)
	}
	return nil
}

func (s *server) closeStore() {
	if err := s.store.Close(); err != nil {
		s.cfg.Log.Error("closing the store failed; what was acknowledged is safe", "err", err)
	}
}

// publishing is called by the committer, in order of revision.
func (s *server) publishing(kind *resource.Kind, events []storage.Event) {
	prefix := resource.Prefix(kind, "")
	for _, e := range events {
		key := e.Key()
		if len(key) < len(prefix) || key[:len(prefix)] != prefix {
			continue
		}
		if e.New == nil {
			s.registry.RemoveCRD(key[len(prefix):])
			continue
		}
		s.setCRD(e.New)
	}
}

// setCRD has a stored CRD served. One that can't be is logged, and its objects wait for a better one.
func (s *server) setCRD(kv *storage.KV) {
	value, err := resource.ParseValue(kv.Value)
	if err == nil {
		err = s.registry.SetCRD(value.AppendJSON(nil, uint64(kv.Rev)))
	}
	if err != nil {
		s.cfg.Log.Error("a CustomResourceDefinition can't be served", "key", kv.Key, "err", err)
	}
}

// executable is the absolute path of this program, which members and shims run.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("daemon: the path of this program: %w", err)
	}
	return path, nil
}
