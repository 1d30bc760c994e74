package builtin

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsv1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchv1 "k8s.io/kubernetes/pkg/apis/batch/v1"
	"k8s.io/kubernetes/pkg/apis/coordination"
	coordinationv1 "k8s.io/kubernetes/pkg/apis/coordination/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/events"
	eventsv1 "k8s.io/kubernetes/pkg/apis/events/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
)

// NewScheme makes a scheme of the groups that are served: internal types and versions, with Kubernetes'
// conversion, defaulting and generated validation. It must not be changed once it is used.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, corev1.AddToScheme,
		apiextensions.AddToScheme, apiextensionsv1.AddToScheme,
		apps.AddToScheme, appsv1.AddToScheme,
		batch.AddToScheme, batchv1.AddToScheme,
		coordination.AddToScheme, coordinationv1.AddToScheme,
		events.AddToScheme, eventsv1.AddToScheme,
		rbac.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(fmt.Sprintf("builtin: register types: %v", err))
		}
	}
	// Scale stays in its version: it is the body of subresources and never a kind.
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	for _, gv := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion, appsv1.SchemeGroupVersion,
		batchv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion,
	} {
		if err := scheme.SetVersionPriority(gv); err != nil {
			panic(fmt.Sprintf("builtin: version priority: %v", err))
		}
	}
	return scheme
}
