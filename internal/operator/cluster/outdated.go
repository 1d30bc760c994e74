package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"

	"operatord.io/operatord/api/v1alpha1"
)

// builtinTemplate is the hash of members whose Cluster names no template: what operatord makes of that may differ from
// version to version, and nothing that was declared has changed.
const builtinTemplate = "builtin"

// templateHash tells templates apart by what they make of a member, so that neither the order of fields nor what is
// overridden anyway counts.
func (op *Operator) templateHash(cl *v1alpha1.Cluster, template *corev1.PodTemplateSpec) (string, error) {
	if cl.Spec.Template == nil {
		return builtinTemplate, nil
	}
	made := op.pod(cl, template, "", "")
	text, err := json.Marshal(struct {
		Labels, Annotations map[string]string
		Finalizers          []string
		Spec                corev1.PodSpec
	}{made.Labels, made.Annotations, made.Finalizers, made.Spec})
	if err != nil {
		return "", fmt.Errorf("spec.template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// observeTemplate marks the members that run an older template than the present one.
func (op *Operator) observeTemplate(cl *v1alpha1.Cluster, o *Observation) {
	if len(o.Members) == 0 {
		return
	}
	template, err := op.template(cl)
	hash := ""
	if err == nil {
		hash, err = op.templateHash(cl, template)
	}
	for i := range o.Members {
		m := &o.Members[i]
		if !m.Ours || !m.Living || m.Leaving {
			continue
		}
		has, recorded := m.Pod.Annotations[v1alpha1.TemplateHashAnnotation]
		switch {
		case err != nil:
			m.Outdated = true // it can't be of this one
		case recorded:
			m.Outdated = has != hash
		default:
			m.Outdated = !op.looksLike(cl, template, m.Pod)
		}
	}
}

// looksLike tells of a Pod that an earlier operatord made, without a hash, whether the template would make it now. What
// the API adds when a Pod is created is left out.
func (op *Operator) looksLike(cl *v1alpha1.Cluster, template *corev1.PodTemplateSpec, pod *corev1.Pod) bool {
	if cl.Spec.Template == nil {
		c := pod.Spec.Containers
		return len(c) == 1 && len(pod.Spec.InitContainers) == 0 && len(c[0].Command) == 2 && c[0].Command[1] == "member"
	}
	want := op.pod(cl, template, pod.Name, pod.Annotations[v1alpha1.DataAnnotation])
	defaults.SetObjectDefaults_Pod(want)
	return holds(pod.Labels, want.Labels) && holds(pod.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(declared(pod.Spec), declared(want.Spec))
}

// holds tells whether all of want is in have.
func holds(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// declared is a Pod's spec without what isn't the template's: what admission and the scheduler set.
func declared(spec corev1.PodSpec) corev1.PodSpec {
	spec.NodeName, spec.DeprecatedServiceAccount = "", ""
	spec.Priority, spec.PreemptionPolicy = nil, nil
	spec.EphemeralContainers = nil
	var tolerations []corev1.Toleration
	for _, t := range spec.Tolerations {
		added := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if !added || t.Effect != corev1.TaintEffectNoExecute || t.Operator != corev1.TolerationOpExists {
			tolerations = append(tolerations, t)
		}
	}
	spec.Tolerations = tolerations
	return spec
}

// namedAtMost is how many members a message names.
const namedAtMost = 10

// outdated says which members run an older template; empty when none does.
func outdated(o *Observation) string {
	var names []string
	for _, m := range o.ours() {
		if m.Outdated {
			names = append(names, m.Name())
		}
	}
	more := len(names) - namedAtMost
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1:
		return names[0] + " runs an older spec.template"
	case more > 0:
		return fmt.Sprintf("%s and %d more run an older spec.template", strings.Join(names[:namedAtMost], ", "), more)
	}
	return strings.Join(names, ", ") + " run an older spec.template"
}
