package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"operatord.io/operatord/api/v1alpha1"
)

// sourceError is an error of a backup: it can't be had, whatever is done on our side.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// unpack puts a backup's files into the directory tmp, which is in home.
func (op *Operator) unpack(ctx context.Context, b *v1alpha1.Backup, home, tmp string) error {
	if b.Spec.Path != "" {
		from, err := op.source(b.Spec.Path, home)
		if err != nil {
			return err
		}
		return op.copyTree(ctx, from, tmp, nil)
	}
	files := make(map[string][]byte, len(b.Spec.Data)+len(b.Spec.BinaryData))
	for name, text := range b.Spec.Data {
		files[name] = []byte(text)
	}
	maps.Copy(files, b.Spec.BinaryData)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return &sourceError{fmt.Errorf("%q is no name of a file", name)}
		}
		if err := op.disk.Write(filepath.Join(tmp, name), files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// source is a backup's directory without links. It must not hold the Cluster's home, into which it is copied, nor lie
// in it: such a copy would never end. The home needn't be there.
func (op *Operator) source(path, home string) (string, error) {
	from, err := op.disk.Resolve(path)
	if err != nil {
		return "", &sourceError{err}
	}
	to, err := op.resolveMissing(home)
	if err != nil {
		return "", err
	}
	if from == "/" || to == from || strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/") {
		return "", &sourceError{fmt.Errorf("%s holds operatord's own data directory", path)}
	}
	return from, nil
}

// resolveMissing resolves a path of which the last elements may not be there yet.
func (op *Operator) resolveMissing(path string) (string, error) {
	resolved, err := op.disk.Resolve(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		return resolved, err
	}
	parent, err := op.resolveMissing(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}
