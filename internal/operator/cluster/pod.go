package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"operatord.io/operatord/api/v1alpha1"
)

const (
	memberPort  = 7481
	memberGrace = 2 // seconds
)

// pod is a member's Pod: the template's, or operatord member, with what makes it this Cluster's.
func (op *Operator) pod(cl *v1alpha1.Cluster, name, data string) *corev1.Pod {
	template := cl.Spec.Template
	if template == nil {
		template = op.member()
	}
	template = template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   cl.Namespace,
			Name:        name,
			Labels:      maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations),
			Finalizers:  slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(cl, v1alpha1.GroupVersion.WithKind(clusterKind.Kind)),
			},
		},
		Spec: template.Spec,
	}
	delete(pod.Labels, v1alpha1.RoleLabel) // the label is the election; nobody is born a leader
	metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.ClusterLabel, cl.Name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.DataAnnotation, data)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		grace := int64(memberGrace)
		pod.Spec.TerminationGracePeriodSeconds = &grace
	}
	return pod
}

// member is the template of a Cluster that names none.
func (op *Operator) member() *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:    "member",
		Image:   "host",
		Command: []string{op.binary, "member"},
		Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: memberPort}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/healthz", Port: intstr.FromInt32(memberPort),
			}},
			PeriodSeconds:    1,
			FailureThreshold: 1,
		},
	}}}}
}

// owner is who a member's data belongs to: the user that the template runs members as, where the daemon may
// give files away.
func (op *Operator) owner(cl *v1alpha1.Cluster) *owner {
	if !op.root || cl.Spec.Template == nil {
		return nil
	}
	spec := &cl.Spec.Template.Spec
	var uid, gid *int64
	if c := spec.SecurityContext; c != nil {
		uid, gid = c.RunAsUser, c.RunAsGroup
	}
	if len(spec.Containers) > 0 {
		if c := spec.Containers[0].SecurityContext; c != nil {
			if c.RunAsUser != nil {
				uid = c.RunAsUser
			}
			if c.RunAsGroup != nil {
				gid = c.RunAsGroup
			}
		}
	}
	if uid == nil {
		return nil
	}
	o := &owner{uid: int(*uid), gid: -1}
	if gid != nil {
		o.gid = int(*gid)
	}
	return o
}
