package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

type definitions = apiextensions.CustomResourceDefinition

func apiextensionsGroup(b *builder) []*resource.Kind {
	gv := apiextensionsv1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, undeclared: true}
	return []*resource.Kind{b.kind(definition{
		gvk:        gv.WithKind("CustomResourceDefinition"),
		object:     &apiextensionsv1.CustomResourceDefinition{},
		plural:     "customresourcedefinitions",
		singular:   "customresourcedefinition",
		shortNames: []string{"crd", "crds"},
		categories: []string{"api-extensions"},
		strategy: &customResourceDefinitions{own[*definitions]{
			base: common,
			prepareCreate: func(crd *definitions) {
				crd.Status = apiextensions.CustomResourceDefinitionStatus{}
				crd.Generation = 1
				storeVersion(crd)
				markServable(crd, nil)
			},
			prepareUpdate: func(crd, old *definitions) {
				crd.Status = old.Status
				if !equality.Semantic.DeepEqual(old.Spec, crd.Spec) {
					crd.Generation = old.Generation + 1
				}
				storeVersion(crd)
				markServable(crd, old)
			},
			warnCreate: func(_ context.Context, crd *definitions) []string {
				return append(unknownFormats(crd, nil), setsOfObjects(crd)...)
			},
			warnUpdate: func(_ context.Context, crd, old *definitions) []string {
				warnings := unknownFormats(crd, old)
				before := setsOfObjects(old)
				for _, w := range setsOfObjects(crd) {
					if !slices.Contains(before, w) {
						warnings = append(warnings, w)
					}
				}
				return warnings
			},
			needsRevision: true,
		}},
		subresources: map[string]*resource.Subresource{
			"status": {
				Verbs: []string{"get", "patch", "update"},
				Strategy: &definitionStatus{own[*definitions]{
					base: common,
					prepareUpdate: func(crd, old *definitions) {
						crd.Spec = old.Spec
						setKeptSpec(crd, keptSpec(old))
					},
					needsRevision: true,
				}},
			},
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       resets(gv, at("status")),
			"status": resets(gv, at("spec")),
		},
		columns: createdAtColumns{},
	})}
}

// storeVersion writes down in the status that objects may be stored in the storage version from now on.
func storeVersion(crd *definitions) {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			if !apiextensions.IsStoredVersion(crd, v.Name) {
				crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}

// customResourceDefinitions stay until their instances are gone.
type customResourceDefinitions struct{ own[*definitions] }

var _ resource.DeletionMarker = (*customResourceDefinitions)(nil)

func (*customResourceDefinitions) MarkDeleted(obj resource.Object, _ *metav1.DeleteOptions, now metav1.Time) {
	crd := obj.(*definitions)
	crd.DeletionTimestamp = &now
	if !apiextensions.CRDHasFinalizer(crd, apiextensions.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensions.CustomResourceCleanupFinalizer)
	}
	apiextensions.SetCRDCondition(crd, apiextensions.CustomResourceDefinitionCondition{
		Type:    apiextensions.Terminating,
		Status:  apiextensions.ConditionTrue,
		Reason:  "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}

func (*customResourceDefinitions) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateCustomResourceDefinition(ctx, obj.(*definitions))
}

func (*customResourceDefinitions) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateCustomResourceDefinitionUpdate(ctx, obj.(*definitions), wasServed(old.(*definitions)))
}

// definitionStatus is the strategy of the status subresource.
type definitionStatus struct{ own[*definitions] }

func (*definitionStatus) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, obj.(*definitions), old.(*definitions))
}

// schemas calls visit with every schema in a CRD and below.
func schemas(crd *definitions, visit func(*apiextensions.JSONSchemaProps)) {
	each := func(s *apiextensions.JSONSchemaProps) bool {
		visit(s)
		return false
	}
	if v := crd.Spec.Validation; v != nil && v.OpenAPIV3Schema != nil {
		validation.SchemaHas(v.OpenAPIV3Schema, each)
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, each)
		}
	}
}

// unknownFormats warns of formats that nothing checks, where old hasn't got them already.
func unknownFormats(crd, old *definitions) (warnings []string) {
	formats := func(crd *definitions) (found []string) {
		schemas(crd, func(s *apiextensions.JSONSchemaProps) {
			if s.Format != "" {
				found = append(found, schemavalidation.GetUnrecognizedFormats(
					&spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}},
					environment.DefaultCompatibilityVersion())...)
			}
		})
		return found
	}
	var before []string
	if old != nil {
		before = formats(old)
	}
	for _, f := range formats(crd) {
		if !slices.Contains(before, f) {
			warnings = append(warnings, fmt.Sprintf("unrecognized format %q", f))
		}
	}
	return warnings
}

// setsOfObjects warns of list sets whose items aren't scalars.
func setsOfObjects(crd *definitions) []string {
	found := sets.New[string]()
	schemas(crd, func(s *apiextensions.JSONSchemaProps) {
		if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
			return
		}
		if t := s.Items.Schema.Type; t == "object" || t == "array" {
			found.Insert(fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", t))
		}
	})
	return sets.List(found)
}

// createdAtColumns are what a kind without printers of its own has.
type createdAtColumns struct{}

func (createdAtColumns) Definitions() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{nameColumn(), column("Created At", "date", metaDoc("creationTimestamp"))}
}

func (createdAtColumns) Cells(data []byte) ([]any, error) {
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &obj); err != nil {
		return nil, err
	}
	return []any{obj.Name, obj.CreationTimestamp.UTC().Format(time.RFC3339)}, nil
}
