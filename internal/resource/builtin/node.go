package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

func (b *builder) node() *resource.Kind {
	gv := corev1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, features: []featuregate.Feature{features.InPlacePodVerticalScalingSchedulerPreemption}}
	return b.kind(definition{
		gvk:        gv.WithKind("Node"),
		object:     &corev1.Node{},
		plural:     "nodes",
		singular:   "node",
		shortNames: []string{"no"},
		strategy: &own[*core.Node]{
			base:          common,
			prepareCreate: func(node *core.Node) { dropNodeFields(node, nil) },
			prepareUpdate: func(node, old *core.Node) {
				node.Status = old.Status
				dropNodeFields(node, old)
			},
			validate: validation.ValidateNode,
			validateUpdate: func(node, old *core.Node) field.ErrorList {
				return append(validation.ValidateNode(node), validation.ValidateNodeUpdate(node, old)...)
			},
			warnCreate: func(_ context.Context, node *core.Node) []string { return nodeWarnings(node) },
			warnUpdate: func(_ context.Context, node, _ *core.Node) []string { return nodeWarnings(node) },
		},
		subresources: map[string]*resource.Subresource{
			"status": {
				Verbs: []string{"get", "patch", "update"},
				Strategy: &own[*core.Node]{
					base: common.of("status"),
					prepareUpdate: func(node, old *core.Node) {
						node.Spec = old.Spec
						if old.Status.Config == nil {
							node.Status.Config = nil
						}
						if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletInUserNamespace) && old.Status.NodeInfo.RunningInUserNamespace == nil {
							node.Status.NodeInfo.RunningInUserNamespace = nil
						}
					},
					validateUpdate: validation.ValidateNodeUpdate,
				},
			},
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       resets(gv, at("status")),
			"status": resets(gv, at("spec")),
		},
		fields: []string{"spec.unschedulable"},
		values: selectable(func(node *struct {
			Spec struct {
				Unschedulable bool `json:"unschedulable"`
			} `json:"spec"`
		}) fields.Set {
			return fields.Set{"spec.unschedulable": fmt.Sprint(node.Spec.Unschedulable)}
		}),
		columns: newColumns(nodeCells,
			nameColumn(),
			column("Status", "string", "The status of the node"),
			column("Roles", "string", "The roles of the node"),
			ageColumn(),
			column("Version", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"]),
			wide("Internal-IP", "string", corev1.NodeStatus{}.SwaggerDoc()["addresses"]),
			wide("External-IP", "string", corev1.NodeStatus{}.SwaggerDoc()["addresses"]),
			wide("OS-Image", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"]),
			wide("Kernel-Version", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"]),
			wide("Container-Runtime", "string", corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"]),
		),
	})
}

// dropNodeFields drops fields whose feature is off, unless the old node has them.
func dropNodeFields(node, old *core.Node) {
	if old == nil {
		node.Spec.ConfigSource = nil
		node.Status.Config = nil
		old = &core.Node{}
	} else if old.Spec.ConfigSource == nil {
		node.Spec.ConfigSource = nil
	}
	on := utilfeature.DefaultFeatureGate.Enabled
	if !on(features.RecursiveReadOnlyMounts) && !on(features.UserNamespacesSupport) {
		node.Status.RuntimeHandlers = nil
	}
	if !on(features.SupplementalGroupsPolicy) && old.Status.Features == nil {
		node.Status.Features = nil
	}
	if !on(features.NodeDeclaredFeatures) && old.Status.DeclaredFeatures == nil {
		node.Status.DeclaredFeatures = nil
	}
	if !on(features.InPlacePodVerticalScalingSchedulerPreemption) && old.Spec.PodPreemptionPolicy == nil {
		node.Spec.PodPreemptionPolicy = nil
	}
}

func nodeWarnings(node *core.Node) (warnings []string) {
	if node.Spec.ConfigSource != nil {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if node.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range node.Spec.PodCIDRs {
		warnings = append(warnings, apivalidation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return warnings
}

func nodeCells(n *corev1.Node) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "Ready"
			if c.Status != corev1.ConditionTrue {
				status = "NotReady"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	var roles []string
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if label == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	address := func(t corev1.NodeAddressType) string {
		for _, a := range n.Status.Addresses {
			if a.Type == t {
				return a.Address
			}
		}
		return "<none>"
	}
	orUnknown := func(s string) string {
		if s == "" {
			return "<unknown>"
		}
		return s
	}
	info := n.Status.NodeInfo
	kernel := orUnknown(info.KernelVersion)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, status, orNone(strings.Join(slices.Compact(roles), ",")), age(n.CreationTimestamp), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), orUnknown(info.OSImage), kernel, orUnknown(info.ContainerRuntimeVersion),
	}
}
