package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/json"

	"operatord.io/operatord/api/v1alpha1"
)

const (
	memberPort  = 7481
	memberGrace = 2 // seconds
)

// template is what members are made of: the Cluster's, or operatord member. The schema says nothing about it, so
// it is read strictly here: a misspelt field must not be ignored silently.
func (op *Operator) template(cl *v1alpha1.Cluster) (*corev1.PodTemplateSpec, error) {
	if cl.Spec.Template == nil {
		return op.member(), nil
	}
	t := &corev1.PodTemplateSpec{}
	strict, err := json.UnmarshalStrict(cl.Spec.Template.Raw, t)
	if err = cmp.Or(err, errors.Join(strict...)); err != nil {
		return nil, fmt.Errorf("spec.template is no Pod template: %w", err)
	}
	return t, nil
}

// pod is a member's Pod: the template's, with what makes it this Cluster's; but neither the hash of the template
// yet nor what it goes without.
func (op *Operator) pod(cl *v1alpha1.Cluster, template *corev1.PodTemplateSpec, name, data string) *corev1.Pod {
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
		Spec: *template.Spec.DeepCopy(),
	}
	delete(pod.Labels, v1alpha1.RoleLabel) // the label is the election; nobody is born a leader
	delete(pod.Annotations, v1alpha1.TemplateHashAnnotation)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.ClusterLabel, cl.Name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.DataAnnotation, data)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.NodeName = "" // members are on this machine; nobody would run, or end, one that is said to be elsewhere
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		grace := int64(memberGrace)
		pod.Spec.TerminationGracePeriodSeconds = &grace
	}
	return pod
}

// goWithout has a member be started without what this machine can't give it. That is no part of the template: what it
// says depends on the machine and on the version of operatord.
func (op *Operator) goWithout(cl *v1alpha1.Cluster, pod *corev1.Pod) {
	fields := op.without(cl, &pod.Spec)
	if len(fields) == 0 {
		return
	}
	if listed := pod.Annotations[v1alpha1.WithoutAnnotation]; listed != "" {
		fields = append([]string{listed}, fields...)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.WithoutAnnotation, strings.Join(fields, ","))
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
func (op *Operator) owner(template *corev1.PodTemplateSpec) *owner {
	if !op.root {
		return nil
	}
	spec := &template.Spec
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
