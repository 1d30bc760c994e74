package crd

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/resource"
	resourcecrd "operatord.io/operatord/internal/resource/crd"
)

func definitions(r controller.Reader) iter.Seq[*apiextensionsv1.CustomResourceDefinition] {
	return func(yield func(*apiextensionsv1.CustomResourceDefinition) bool) {
		for obj := range r.List(Kind(), controller.Query{}) {
			if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && !yield(crd) {
				return
			}
		}
	}
}

// namesAreTrue tells whether a CRD has all the names that it asks for.
func namesAreTrue(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return equality.Semantic.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames)
}

// acceptNames gives a CRD each name that it asks for and nobody else in its group has. A name that it has
// stays its own until it asks for another.
func (op *Operator) acceptNames(crd *apiextensionsv1.CustomResourceDefinition) {
	if k := op.shadowed(crd); k != nil {
		apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
			Type:   apiextensionsv1.NamesAccepted,
			Status: apiextensionsv1.ConditionFalse,
			Reason: "BuiltInKind",
			Message: fmt.Sprintf("%s with kind %s is built in and stays as it is; this definition is never served, and deleting it deletes nothing else",
				k.GroupResource(), k.Kind),
		})
		return
	}
	if namesAreTrue(crd) && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
		return
	}
	resources, kinds := op.namesInUse(crd)
	accepted := apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.NamesAccepted,
		Status:  apiextensionsv1.ConditionTrue,
		Reason:  "NoConflicts",
		Message: "no conflicts found",
	}
	refuse := func(reason string, err error) {
		accepted.Status, accepted.Reason, accepted.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	asked, has := crd.Spec.Names, crd.Status.AcceptedNames.DeepCopy()
	one := func(asked string, has *string, used sets.Set[string], reason string) {
		if err := free(asked, *has, used); err != nil {
			refuse(reason, err)
			return
		}
		*has = asked
	}
	one(asked.Plural, &has.Plural, resources, "PluralConflict")
	one(asked.Singular, &has.Singular, resources, "SingularConflict")
	var errs []error
	for _, name := range asked.ShortNames {
		if !slices.Contains(has.ShortNames, name) {
			if err := free(name, "", resources); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		refuse("ShortNamesConflict", err)
	} else {
		has.ShortNames = slices.Clone(asked.ShortNames)
	}
	one(asked.Kind, &has.Kind, kinds, "KindConflict")
	one(asked.ListKind, &has.ListKind, kinds, "ListKindConflict")
	has.Categories = slices.Clone(asked.Categories)

	crd.Status.AcceptedNames = *has
	apihelpers.SetCRDCondition(crd, accepted)
}

// shadowed is the kind that is compiled in under a CRD's resource or kind; nil if there is none.
func (op *Operator) shadowed(crd *apiextensionsv1.CustomResourceDefinition) *resource.Kind {
	return resource.Shadowed(op.Builtin, crd.Spec.Group, crd.Spec.Names.Plural, crd.Spec.Names.Kind)
}

// namesInUse are the names in a CRD's group that others have: kinds that are compiled in, definitions that
// operators install, and accepted ones.
func (op *Operator) namesInUse(crd *apiextensionsv1.CustomResourceDefinition) (resources, kinds sets.Set[string]) {
	resources, kinds = sets.New[string](), sets.New[string]()
	for _, k := range op.Builtin {
		if k.Group == crd.Spec.Group {
			resources.Insert(k.Plural, k.Singular).Insert(k.ShortNames...)
			kinds.Insert(k.Kind, k.ListKind)
		}
	}
	add := func(has apiextensionsv1.CustomResourceDefinitionNames) {
		resources.Insert(has.Plural, has.Singular).Insert(has.ShortNames...)
		kinds.Insert(has.Kind, has.ListKind)
	}
	for _, own := range op.Own {
		if own.Spec.Group == crd.Spec.Group && own.Name != crd.Name {
			add(own.Spec.Names)
		}
	}
	for other := range definitions(op.Reader) {
		if other.Spec.Group == crd.Spec.Group {
			add(other.Status.AcceptedNames)
		}
	}
	return resources, kinds
}

func free(asked, has string, used sets.Set[string]) error {
	if asked == has || !used.Has(asked) {
		return nil
	}
	return fmt.Errorf("%q is already in use", asked)
}

// establish has a CRD served as soon as its names are accepted and it can be. Once served it stays so, unless a
// later release has brought a built-in kind of its name, or an earlier one has called it Established in vain.
func (op *Operator) establish(crd *apiextensionsv1.CustomResourceDefinition) {
	old := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	unservable := unservable(crd)
	if old != nil && old.Status == apiextensionsv1.ConditionTrue && op.shadowed(crd) == nil && unservable == nil {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.Established,
		Status:  apiextensionsv1.ConditionTrue,
		Reason:  "InitialNamesAccepted",
		Message: "the initial names have been accepted",
	}
	switch differs := op.differsFromOwn(crd); {
	case !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted):
		if old != nil && old.Status != apiextensionsv1.ConditionTrue {
			return
		}
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "NotAccepted", "not all names are accepted"
	case unservable != nil:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, unservable.Reason, unservable.Message
	case differs != "":
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "NotAsInstalled", differs
	case !caBundleIsValid(crd):
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	apihelpers.SetCRDCondition(crd, c)
}

// unservable is the condition that says why a CRD whose names are accepted can't be served as it is; nil if it can.
func unservable(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if c := apihelpers.FindCRDCondition(crd, resourcecrd.Servable); c != nil && c.Status == apiextensionsv1.ConditionFalse {
		return c
	}
	var why *resourcecrd.Unservable
	if _, err := resourcecrd.Compile(crd); errors.As(err, &why) {
		return &apiextensionsv1.CustomResourceDefinitionCondition{Reason: why.Reason, Message: why.Error()}
	}
	return nil
}

// differsFromOwn says how a definition of the name of one that an operator installs can't be that one; "" if it can.
func (op *Operator) differsFromOwn(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, own := range op.Own {
		if own.Name == crd.Name && (own.Spec.Scope != crd.Spec.Scope || own.Spec.Names.Kind != crd.Spec.Names.Kind) {
			return fmt.Sprintf("%s is operatord's own, %s with kind %s, and this one is %s with kind %s; with the operator on, the next start of operatord makes it right",
				own.Name, own.Spec.Scope, own.Spec.Names.Kind, crd.Spec.Scope, crd.Spec.Names.Kind)
		}
	}
	return ""
}

func caBundleIsValid(crd *apiextensionsv1.CustomResourceDefinition) bool {
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil || len(conversion.Webhook.ClientConfig.CABundle) == 0 {
		return true
	}
	_, err := cert.ParseCertsPEM(conversion.Webhook.ClientConfig.CABundle)
	return err == nil
}

// approve says whether a CRD in a group of Kubernetes' own was approved by its community.
func approve(crd *apiextensionsv1.CustomResourceDefinition) {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant}
	state, message := apihelpers.GetAPIApprovalState(crd.Annotations)
	c.Message = message
	switch state {
	case apihelpers.APIApprovalInvalid:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "MissingAnnotation"
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "UnapprovedAnnotation"
	default:
		c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	apihelpers.SetCRDCondition(crd, c)
}
