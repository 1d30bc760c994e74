package builtin

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/crd"
)

const servable = apiextensions.CustomResourceDefinitionConditionType(crd.Servable)

// markServable says by a condition whether a definition can be served as it is. One that can't be keeps the spec
// that was served before, in the same write, so that its objects stay reachable, also after a restart; it isn't
// Established meanwhile. old is nil for a new definition.
func markServable(d, old *definitions) {
	kept := keptSpec(old)
	if old != nil && kept == "" && !apiextensions.IsCRDConditionFalse(old, servable) && equality.Semantic.DeepEqual(old.Spec, d.Spec) {
		setKeptSpec(d, "")
		return
	}
	unservable := check(d)
	if unservable == nil {
		setKeptSpec(d, "")
		if apiextensions.FindCRDCondition(d, servable) != nil {
			apiextensions.RemoveCRDCondition(d, servable)
		}
		if kept != "" { // or it would not be served until somebody has looked
			setEstablished(d, apiextensions.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted")
		}
		return
	}
	message := unservable.Error()
	if kept == "" && old != nil && apiextensions.IsCRDConditionTrue(old, apiextensions.Established) {
		var err error
		if kept, err = keep(old); err != nil {
			message = fmt.Sprintf("%s (%v)", message, err)
		}
	}
	if kept != "" {
		message += "; until then, what was declared before goes on being served"
		setEstablished(d, apiextensions.ConditionFalse, unservable.Reason, message)
	}
	setKeptSpec(d, kept)
	apiextensions.SetCRDCondition(d, apiextensions.CustomResourceDefinitionCondition{
		Type: servable, Status: apiextensions.ConditionFalse, Reason: unservable.Reason, Message: message,
	})
}

func setEstablished(d *definitions, status apiextensions.ConditionStatus, reason, message string) {
	apiextensions.SetCRDCondition(d, apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.Established, Status: status, Reason: reason, Message: message,
	})
}

// wasServed is old as validation takes it: what must not change of a definition that is Established must not change
// of one that is served as it was before either.
func wasServed(old *definitions) *definitions {
	if keptSpec(old) == "" {
		return old
	}
	old = old.DeepCopy()
	setEstablished(old, apiextensions.ConditionTrue, "", "")
	return old
}

func check(d *definitions) *crd.Unservable {
	v1, err := versioned(d)
	if err != nil {
		return nil // validation says what is wrong with it
	}
	return crd.Check(v1)
}

func keep(d *definitions) (string, error) {
	v1, err := versioned(d)
	if err != nil {
		return "", err
	}
	return crd.Keep(&v1.Spec)
}

// versioned is a definition in version v1, and shares nothing with d.
func versioned(d *definitions) (*apiextensionsv1.CustomResourceDefinition, error) {
	out := &apiextensionsv1.CustomResourceDefinition{}
	return out, apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(d.DeepCopy(), out, nil)
}

func keptSpec(d *definitions) string {
	if d == nil {
		return ""
	}
	return d.Annotations[resource.ServedSpecAnnotation]
}

// setKeptSpec overrules what a client sent.
func setKeptSpec(d *definitions, kept string) {
	switch {
	case kept == "":
		delete(d.Annotations, resource.ServedSpecAnnotation)
	case d.Annotations == nil:
		d.Annotations = map[string]string{resource.ServedSpecAnnotation: kept}
	default:
		d.Annotations[resource.ServedSpecAnnotation] = kept
	}
}
