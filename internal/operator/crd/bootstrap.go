package crd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/controller"
)

// EnsureNamespaces makes the namespaces that always exist, where they don't.
func EnsureNamespaces(ctx context.Context, w controller.Writer) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}
		if err := w.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("crd: create namespace %s: %w", name, err)
		}
	}
	return nil
}

// Definitions reads the CRDs in files, one YAML document each.
func Definitions(files fs.FS) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return fmt.Errorf("crd: %s: %w", path, err)
		}
		crds = append(crds, crd)
		return nil
	})
	return crds, err
}

// Install makes or updates the CRDs in files, as Definitions reads them. It doesn't wait for them to be
// established. The reader's set must run. What is stored under a CRD's name can be such that it can't become
// the wanted one (a version that objects may lie in, another scope): that is an API error Invalid, after the
// other files were installed.
func Install(ctx context.Context, r controller.Reader, w controller.Writer, files fs.FS) error {
	crds, err := Definitions(files)
	if err != nil {
		return err
	}
	var refused error
	for _, crd := range crds {
		if err := install(ctx, r, w, crd); err != nil {
			err = fmt.Errorf("crd: install %s: %w", crd.Name, err)
			if !apierrors.IsInvalid(err) {
				return err
			}
			refused = errors.Join(refused, err)
		}
	}
	return refused
}

// install retries while somebody else changes the CRD, or while one of the same name is being deleted. One
// that is as wanted already is left alone, which makes a start cheap.
func install(ctx context.Context, r controller.Reader, w controller.Writer, want *apiextensionsv1.CustomResourceDefinition) error {
	for {
		if err := r.AtLeast(ctx, ""); err != nil {
			return err
		}
		var err error
		obj, missing := r.Get(Kind(), controller.Key{Name: want.Name})
		have, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		switch {
		case apierrors.IsNotFound(missing):
			err = w.Create(ctx, want.DeepCopy())
		case missing != nil:
			return missing
		case !ok:
			return fmt.Errorf("it is a %T", obj)
		case have.DeletionTimestamp == nil:
			next := updated(have, want)
			if equality.Semantic.DeepEqual(have, next) {
				return nil
			}
			err = w.Update(ctx, next)
		default:
			err = apierrors.NewAlreadyExists(apiextensionsv1.Resource("customresourcedefinitions"), want.Name)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// updated is have with the spec, labels and annotations that are wanted.
func updated(have, want *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	next := have.DeepCopy()
	next.Spec = *want.Spec.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(next)
	for k, v := range want.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, k, v)
	}
	for k, v := range want.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, k, v)
	}
	return next
}
