package builtin

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
)

// NewScheme makes a scheme of the groups that are served: internal types and versions, with Kubernetes'
// conversion, defaulting and generated validation. It must not be changed once it is used.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, corev1.AddToScheme,
		apiextensions.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(fmt.Sprintf("builtin: register types: %v", err))
		}
	}
	// Scale stays in its version: it is the body of subresources and never a kind.
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion} {
		if err := scheme.SetVersionPriority(gv); err != nil {
			panic(fmt.Sprintf("builtin: version priority: %v", err))
		}
	}
	return scheme
}
