package pod

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// labelFiles keeps DIR/UID/labels, the file in $OPERATORD_LABELS: a line NAME="VALUE" for each of the Pod's
// labels, sorted, as the downward API writes them. It is replaced by rename, so that a reader sees all of it.
type labelFiles struct{ dir string }

func (l labelFiles) path(uid types.UID) string { return filepath.Join(l.dir, string(uid), "labels") }

// write makes the file say what the Pod's labels are.
func (l labelFiles) write(pod *corev1.Pod) error {
	path := l.path(pod.UID)
	var want bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(pod.Labels)) {
		want.WriteString(name + "=" + strconv.Quote(pod.Labels[name]) + "\n")
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want.Bytes()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return fmt.Errorf("make the directory of the Pod's labels: %w", err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, want.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the Pod's labels: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write the Pod's labels: %w", err)
	}
	return nil
}

func (l labelFiles) remove(uid types.UID) error {
	return os.RemoveAll(filepath.Join(l.dir, string(uid)))
}

// all are the Pods that have files.
func (l labelFiles) all() ([]types.UID, error) {
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		uids = append(uids, types.UID(e.Name()))
	}
	return uids, err
}
