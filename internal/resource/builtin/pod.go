package builtin

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

func (b *builder) pod() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, namespaced: true}
	return b.kind(definition{
		gvk:        gv.WithKind("Pod"),
		object:     &corev1.Pod{},
		plural:     "pods",
		singular:   "pod",
		shortNames: []string{"po"},
		categories: []string{"all"},
		namespaced: true,
		strategy: &pods{own[*core.Pod]{
			base: common,
			prepareUpdate: func(pod, old *core.Pod) {
				pod.Status = old.Status
				if utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResourcesFixDefaulting) && pod.Spec.Resources == nil && old.Spec.Resources != nil {
					pod.Spec.Resources = old.Spec.Resources.DeepCopy()
				}
				podutil.DropDisabledPodFields(pod, old)
				if !equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
					pod.Generation++
				}
			},
			validate: func(pod *core.Pod) field.ErrorList {
				return validation.ValidatePodCreate(pod, podOptions(pod, nil))
			},
			validateUpdate: func(pod, old *core.Pod) field.ErrorList {
				return validation.ValidatePodUpdate(pod, old, podOptions(pod, old))
			},
			warnCreate: func(ctx context.Context, pod *core.Pod) []string {
				return append(nameWarnings(pod.Name, "the Pod's hostname"), podutil.GetWarningsForPod(ctx, pod, nil)...)
			},
		}},
		subresources: map[string]*resource.Subresource{
			"status": {
				Verbs: []string{"get", "patch", "update"},
				Strategy: &own[*core.Pod]{
					base:          common.of("status"),
					prepareUpdate: preparePodStatus,
					validateUpdate: func(pod, old *core.Pod) field.ErrorList {
						return validation.ValidatePodStatusUpdate(pod, old, podOptions(pod, old))
					},
					warnUpdate: func(_ context.Context, pod, _ *core.Pod) []string { return addressWarnings(pod) },
				},
			},
			"binding": {
				Verbs:   []string{"create"},
				Body:    gv.WithKind("Binding"),
				Project: &binding{typed: b.typed},
				// Binding changes a field that updates of Pods may not touch.
				Strategy: &own[*core.Pod]{base: base{scheme: b.scheme, gv: gv, namespaced: true, undeclared: true}},
			},
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       resets(gv, at("status")),
			"status": resets(gv, at("spec"), at("metadata", "deletionTimestamp"), at("metadata", "ownerReferences")),
		},
		fields: []string{
			"spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"status.nominatedNodeName", "status.phase", "status.podIP",
		},
		values: selectable(func(pod *podFields) fields.Set {
			ip := ""
			if len(pod.Status.PodIPs) > 0 {
				ip = pod.Status.PodIPs[0].IP
			}
			return fields.Set{
				"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
				"spec.nodeName":            pod.Spec.NodeName,
				"spec.restartPolicy":       pod.Spec.RestartPolicy,
				"spec.schedulerName":       pod.Spec.SchedulerName,
				"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
				"status.nominatedNodeName": pod.Status.NominatedNodeName,
				"status.phase":             pod.Status.Phase,
				"status.podIP":             ip,
			}
		}),
		columns:       newPodColumns(),
		returnDeleted: true,
		typeSet:       ".Pod",
	})
}

// podFields are what selectors look at.
type podFields struct {
	Spec struct {
		NodeName           string `json:"nodeName"`
		RestartPolicy      string `json:"restartPolicy"`
		SchedulerName      string `json:"schedulerName"`
		ServiceAccountName string `json:"serviceAccountName"`
		HostNetwork        bool   `json:"hostNetwork"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		NominatedNodeName string `json:"nominatedNodeName"`
		PodIPs            []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	} `json:"status"`
}

// pods are deleted gracefully.
type pods struct{ own[*core.Pod] }

var _ rest.RESTGracefulDeleteStrategy = (*pods)(nil)

func (*pods) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	pod := obj.(*core.Pod)
	admitPod(pod)
	pod.Generation = 1
	pod.Status = core.PodStatus{Phase: core.PodPending}
	podutil.DropDisabledPodFields(pod, nil)
	if len(pod.Spec.SchedulingGates) > 0 {
		podutil.UpdatePodCondition(&pod.Status, &core.PodCondition{
			Type:    core.PodScheduled,
			Status:  core.ConditionFalse,
			Reason:  corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	matchLabelKeys(pod)
	appArmorFields(ctx, pod)
	podutil.DefaultPodLevelResources(pod)
	pod.Status.QOSClass = qos.GetPodQOS(pod)
}

// CheckGracefulDelete sets how long a Pod may take to end: not at all if it isn't on a node or has ended.
func (*pods) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod := obj.(*core.Pod)
	period := int64(0)
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == core.PodFailed, pod.Status.Phase == core.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}

func podOptions(pod, old *core.Pod) validation.PodValidationOptions {
	var oldSpec *core.PodSpec
	var oldMeta *metav1.ObjectMeta
	if old != nil {
		oldSpec, oldMeta = &old.Spec, &old.ObjectMeta
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, oldSpec, &pod.ObjectMeta, oldMeta)
	opts.ResourceIsPod = true
	return opts
}

// preparePodStatus keeps everything but the status, and of the status what older clients would drop.
func preparePodStatus(pod, old *core.Pod) {
	pod.Spec = old.Spec
	pod.DeletionTimestamp = nil
	pod.OwnerReferences = old.OwnerReferences
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = old.Status.QOSClass
	}
	if pod.Status.ResourceClaimStatuses == nil {
		pod.Status.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
	}
	if pod.Status.ExtendedResourceClaimStatus == nil {
		pod.Status.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
	}
	if pod.Status.NodeAllocatableResourceClaimStatuses == nil {
		pod.Status.NodeAllocatableResourceClaimStatuses = old.Status.NodeAllocatableResourceClaimStatuses
	}
	if pod.Status.ObservedGeneration == 0 {
		pod.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	// Conditions keep the generation they were seen at, one by one where a type occurs more than once.
	seen := map[core.PodConditionType][]int64{}
	for _, c := range old.Status.Conditions {
		seen[c.Type] = append(seen[c.Type], c.ObservedGeneration)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		var generation int64
		if generations := seen[c.Type]; len(generations) > 0 {
			generation, seen[c.Type] = generations[0], generations[1:]
		}
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = generation
		}
	}
	podutil.DropDisabledPodFields(pod, old)
}

func addressWarnings(pod *core.Pod) (warnings []string) {
	for i, ip := range pod.Status.PodIPs {
		warnings = append(warnings, apivalidation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range pod.Status.HostIPs {
		warnings = append(warnings, apivalidation.GetWarningsForIP(field.NewPath("status", "hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return warnings
}

// nameWarnings warns of names that are no DNS labels but become part of one.
func nameWarnings(name, use string) []string {
	if msgs := apivalidation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", use, msgs)}
	}
	return nil
}

// matchLabelKeys writes the values that matchLabelKeys and mismatchLabelKeys name into selectors.
func matchLabelKeys(pod *core.Pod) {
	on := utilfeature.DefaultFeatureGate.Enabled
	if on(features.MatchLabelKeysInPodAffinity) && pod.Spec.Affinity != nil {
		var terms []*core.PodAffinityTerm
		collect := func(preferred []core.WeightedPodAffinityTerm, required []core.PodAffinityTerm) {
			for i := range preferred {
				terms = append(terms, &preferred[i].PodAffinityTerm)
			}
			for i := range required {
				terms = append(terms, &required[i])
			}
		}
		if a := pod.Spec.Affinity.PodAffinity; a != nil {
			collect(a.PreferredDuringSchedulingIgnoredDuringExecution, a.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
			collect(a.PreferredDuringSchedulingIgnoredDuringExecution, a.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		for _, term := range terms {
			requireLabels(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
			requireLabels(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, pod.Labels)
		}
	}
	if on(features.MatchLabelKeysInPodTopologySpread) && on(features.MatchLabelKeysInPodTopologySpreadSelectorMerge) {
		for i := range pod.Spec.TopologySpreadConstraints {
			c := &pod.Spec.TopologySpreadConstraints[i]
			requireLabels(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
		}
	}
}

// requireLabels adds the pod's values of keys to a selector; one that is nil matches nothing anyway.
func requireLabels(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if selector == nil {
		return
	}
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: operator, Values: []string{value},
			})
		}
	}
}

// appArmorFields fills in profiles that only the deprecated annotations name, and warns of those.
func appArmorFields(ctx context.Context, pod *core.Pod) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == core.Windows {
		return
	}
	var podProfile *core.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		podProfile = pod.Spec.SecurityContext.AppArmorProfile
	}
	podutil.VisitContainers(&pod.Spec, podutil.AllFeatureEnabledContainers(), func(c *core.Container, _ podutil.ContainerType) bool {
		key := core.DeprecatedAppArmorAnnotationKeyPrefix + c.Name
		annotation, ok := pod.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return true
		}
		profile := podutil.ApparmorFieldForAnnotation(annotation)
		if errs := validation.ValidateAppArmorProfileField(profile, &field.Path{}); len(errs) > 0 {
			profile = nil
		}
		if profile != nil && equality.Semantic.DeepEqual(profile, podProfile) {
			return true
		}
		if profile != nil {
			if c.SecurityContext == nil {
				c.SecurityContext = &core.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
		warning.AddWarning(ctx, "", fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`,
			field.NewPath("metadata", "annotations").Key(key)))
		return true
	})
}
