package builtin

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

func appsGroup(b *builder) []*resource.Kind {
	return []*resource.Kind{b.deployment(), b.replicaSet(), b.statefulSet()}
}

func (b *builder) deployment() *resource.Kind {
	gv := appsv1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, namespaced: true}
	return b.kind(definition{
		gvk:        gv.WithKind("Deployment"),
		object:     &appsv1.Deployment{},
		plural:     "deployments",
		singular:   "deployment",
		shortNames: []string{"deploy"},
		categories: []string{"all"},
		namespaced: true,
		strategy:   &borrowed{common, deployment.Strategy},
		subresources: map[string]*resource.Subresource{
			"status": statusSubresource(&borrowed{common.of("status"), deployment.StatusStrategy}),
			"scale": scaleSubresource(&scale[*apps.Deployment]{
				typed: b.typed, resource: apps.Resource("deployments"),
				fields: func(d *apps.Deployment) (*int32, int32, *metav1.LabelSelector) {
					return &d.Spec.Replicas, d.Status.Replicas, d.Spec.Selector
				},
			}),
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       fieldpath.NewExcludeFilterSetMap(deployment.Strategy.GetResetFields()),
			"status": fieldpath.NewExcludeFilterSetMap(deployment.StatusStrategy.GetResetFields()),
		},
		columns: newColumns(func(d *appsv1.Deployment) []any {
			names, images := containers(d.Spec.Template.Spec.Containers)
			selector := "<invalid>"
			if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
				selector = s.String()
			}
			return []any{
				d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas)),
				int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d.CreationTimestamp),
				names, images, selector,
			}
		},
			nameColumn(),
			column("Ready", "string", "Number of the pod with ready state"),
			column("Up-to-date", "string", appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"]),
			column("Available", "string", appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"]),
			ageColumn(),
			containersColumn(),
			imagesColumn(),
			wide("Selector", "string", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"]),
		),
	})
}

func (b *builder) replicaSet() *resource.Kind {
	gv := appsv1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, namespaced: true}
	return b.kind(definition{
		gvk:        gv.WithKind("ReplicaSet"),
		object:     &appsv1.ReplicaSet{},
		plural:     "replicasets",
		singular:   "replicaset",
		shortNames: []string{"rs"},
		categories: []string{"all"},
		namespaced: true,
		strategy: &own[*apps.ReplicaSet]{
			base: common,
			prepareCreate: func(rs *apps.ReplicaSet) {
				rs.Status = apps.ReplicaSetStatus{}
				rs.Generation = 1
				podutil.DropDisabledTemplateFields(&rs.Spec.Template, nil)
			},
			prepareUpdate: func(rs, old *apps.ReplicaSet) {
				rs.Status = old.Status
				podutil.DropDisabledTemplateFields(&rs.Spec.Template, &old.Spec.Template)
				if !equality.Semantic.DeepEqual(old.Spec, rs.Spec) {
					rs.Generation = old.Generation + 1
				}
			},
			validate: func(rs *apps.ReplicaSet) field.ErrorList {
				return validation.ValidateReplicaSet(rs, podutil.GetValidationOptionsFromPodTemplate(&rs.Spec.Template, nil))
			},
			validateUpdate: func(rs, old *apps.ReplicaSet) field.ErrorList {
				return validation.ValidateReplicaSetUpdate(rs, old, podutil.GetValidationOptionsFromPodTemplate(&rs.Spec.Template, &old.Spec.Template))
			},
			warnCreate: func(ctx context.Context, rs *apps.ReplicaSet) []string {
				return append(nameWarnings(rs.Name, "Pod names and hostnames"),
					podutil.GetWarningsForPodTemplate(ctx, field.NewPath("spec", "template"), &rs.Spec.Template, nil)...)
			},
			warnUpdate: func(ctx context.Context, rs, old *apps.ReplicaSet) []string {
				if rs.Generation == old.Generation {
					return nil
				}
				return podutil.GetWarningsForPodTemplate(ctx, field.NewPath("spec", "template"), &rs.Spec.Template, &old.Spec.Template)
			},
		},
		subresources: map[string]*resource.Subresource{
			"status": statusSubresource(&own[*apps.ReplicaSet]{
				base: common.of("status"),
				prepareUpdate: func(rs, old *apps.ReplicaSet) {
					rs.Spec = old.Spec
					if !utilfeature.DefaultFeatureGate.Enabled(features.DeploymentReplicaSetTerminatingReplicas) && old.Status.TerminatingReplicas == nil {
						rs.Status.TerminatingReplicas = nil
					}
				},
				validateUpdate: validation.ValidateReplicaSetStatusUpdate,
			}),
			"scale": scaleSubresource(&scale[*apps.ReplicaSet]{
				typed: b.typed, resource: apps.Resource("replicasets"),
				fields: func(rs *apps.ReplicaSet) (*int32, int32, *metav1.LabelSelector) {
					return &rs.Spec.Replicas, rs.Status.Replicas, rs.Spec.Selector
				},
			}),
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       resets(gv, at("status")),
			"status": resets(gv, at("spec")),
		},
		fields: []string{"status.replicas"},
		values: selectable(func(rs *struct {
			Status struct {
				Replicas int `json:"replicas"`
			} `json:"status"`
		}) fields.Set {
			return fields.Set{"status.replicas": fmt.Sprint(rs.Status.Replicas)}
		}),
		columns: newColumns(func(rs *appsv1.ReplicaSet) []any {
			names, images := containers(rs.Spec.Template.Spec.Containers)
			return []any{
				rs.Name, replicas(rs.Spec.Replicas), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas),
				age(rs.CreationTimestamp), names, images, metav1.FormatLabelSelector(rs.Spec.Selector),
			}
		},
			nameColumn(),
			column("Desired", "integer", appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"]),
			column("Current", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"]),
			column("Ready", "integer", appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"]),
			ageColumn(),
			containersColumn(),
			imagesColumn(),
			wide("Selector", "string", appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"]),
		),
	})
}

func (b *builder) statefulSet() *resource.Kind {
	gv := appsv1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, namespaced: true}
	return b.kind(definition{
		gvk:        gv.WithKind("StatefulSet"),
		object:     &appsv1.StatefulSet{},
		plural:     "statefulsets",
		singular:   "statefulset",
		shortNames: []string{"sts"},
		categories: []string{"all"},
		namespaced: true,
		strategy:   &borrowed{common, statefulset.Strategy},
		subresources: map[string]*resource.Subresource{
			"status": statusSubresource(&borrowed{common.of("status"), statefulset.StatusStrategy}),
			"scale": scaleSubresource(&scale[*apps.StatefulSet]{
				typed: b.typed, resource: apps.Resource("statefulsets"),
				fields: func(s *apps.StatefulSet) (*int32, int32, *metav1.LabelSelector) {
					return &s.Spec.Replicas, s.Status.Replicas, s.Spec.Selector
				},
			}),
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       fieldpath.NewExcludeFilterSetMap(statefulset.Strategy.GetResetFields()),
			"status": fieldpath.NewExcludeFilterSetMap(statefulset.StatusStrategy.GetResetFields()),
		},
		columns: newColumns(func(s *appsv1.StatefulSet) []any {
			names, images := containers(s.Spec.Template.Spec.Containers)
			return []any{
				s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, replicas(s.Spec.Replicas)),
				age(s.CreationTimestamp), names, images,
			}
		},
			nameColumn(),
			column("Ready", "string", "Number of the pod with ready state"),
			ageColumn(),
			containersColumn(),
			imagesColumn(),
		),
	})
}

// statusSubresource is status under a strategy.
func statusSubresource(s resource.Strategy) *resource.Subresource {
	return &resource.Subresource{Verbs: []string{"get", "patch", "update"}, Strategy: s}
}

// replicas is how many are wanted; defaulting has filled the number in.
func replicas(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func containersColumn() metav1.TableColumnDefinition {
	return wide("Containers", "string", "Names of each container in the template.")
}

func imagesColumn() metav1.TableColumnDefinition {
	return wide("Images", "string", "Images referenced by each container in the template.")
}

// containers joins names and images.
func containers(list []corev1.Container) (names, images string) {
	var n, i []string
	for _, c := range list {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
