package cluster

import (
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
func (op *Operator) unpack(step func() error, b *v1alpha1.Backup, home, tmp string) error {
	if path := b.Spec.Path; path != "" {
		seen, err := op.lookAt(path)
		if err == nil {
			err = seen.apart(path, home)
		}
		if err != nil {
			return err
		}
		c := copying{disk: op.disk, step: step}
		return c.still(seen.from, tmp)
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
		if err := step(); err != nil {
			return err
		}
		if err := op.disk.Write(filepath.Join(tmp, name), files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// lookAt tells whether a backup's directory can be read, and where it is.
func (op *Operator) lookAt(path string) (seen, error) {
	if _, err := op.disk.ReadDir(path); err != nil {
		return seen{}, &sourceError{err}
	}
	from, err := op.disk.Resolve(path)
	if err != nil {
		return seen{}, &sourceError{err}
	}
	clusters, err := op.resolveMissing(op.dir)
	return seen{from, clusters}, err
}

// apart makes sure that a backup's directory neither holds a Cluster's home, into which it is copied, nor lies in it:
// such a copy would never end. The home needn't be there.
func (s seen) apart(path, home string) error {
	to := filepath.Join(s.clusters, filepath.Base(home))
	if s.from == "/" || to == s.from || strings.HasPrefix(to, s.from+"/") || strings.HasPrefix(s.from, to+"/") {
		return &sourceError{fmt.Errorf("%s holds operatord's own data directory", path)}
	}
	return nil
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
