package builtin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"

	"operatord.io/operatord/internal/resource"
)

// binding puts a Pod on a node.
type binding struct{ typed *resource.Typed }

var _ resource.Projection = (*binding)(nil)

func (*binding) Creates() bool { return true }

func (b *binding) Get(*resource.Version, resource.Object) (resource.Object, error) {
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "pods/binding"}, "get")
}

func (b *binding) Base(*resource.Version, resource.Object) (resource.Object, error) {
	return &core.Binding{}, nil
}

func (b *binding) Decode(data []byte, opts resource.DecodeOptions) (resource.Object, []string, error) {
	gvk := corev1.SchemeGroupVersion.WithKind("Binding")
	return b.typed.Decode(data, opts, gvk, schema.GroupVersion{Version: runtime.APIVersionInternal}, &core.Binding{})
}

func (b *binding) Put(_ context.Context, _ *resource.Version, obj, body resource.Object) (resource.Object, error) {
	to, ok := body.(*core.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %#v", body))
	}
	pod := obj.(*core.Pod).DeepCopy()
	if to.Name != pod.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validation.ValidatePodBinding(to); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name, fmt.Errorf(format, args...))
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return nil, conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return nil, conflict("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return nil, conflict("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	if to.UID != "" {
		pod.UID = to.UID
	}
	if to.ResourceVersion != "" {
		pod.ResourceVersion = to.ResourceVersion
	}
	on := utilfeature.DefaultFeatureGate.Enabled
	pod.Spec.NodeName = to.Target.Name
	if on(features.ClearingNominatedNodeNameAfterBinding) {
		pod.Status.NominatedNodeName = ""
	}
	pod.Annotations = merged(pod.Annotations, to.Annotations)
	podutil.DropInitContainerAnnotations(pod.Annotations)
	if on(features.PodTopologyLabelsAdmission) {
		pod.Labels = merged(pod.Labels, to.Labels)
	}
	podutil.UpdatePodCondition(&pod.Status, &core.PodCondition{Type: core.PodScheduled, Status: core.ConditionTrue})
	return pod, nil
}

// merged writes more into m, making it if there is something to write.
func merged(m, more map[string]string) map[string]string {
	if m == nil && len(more) > 0 {
		m = make(map[string]string, len(more))
	}
	for k, v := range more {
		m[k] = v
	}
	return m
}
