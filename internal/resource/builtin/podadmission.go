package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
)

// What admission plugins that are always on do to new Pods on a server of Kubernetes' own.

// tolerationSeconds is how long a Pod stays on a node that isn't ready or can't be reached.
const tolerationSeconds = 300

// priorities of the classes that exist everywhere.
var priorities = map[string]int32{
	"system-cluster-critical": 2000000000,
	"system-node-critical":    2000001000,
}

// admitPod fills in the priority of the Pod's class (0 without one) and the tolerations that let it
// outlive a short outage of its node.
func admitPod(pod *core.Pod) {
	if pod.Spec.Priority == nil {
		n := priorities[pod.Spec.PriorityClassName]
		pod.Spec.Priority = &n
	}
	if pod.Spec.PreemptionPolicy == nil {
		policy := core.PreemptLowerPriority
		pod.Spec.PreemptionPolicy = &policy
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(pod, taint) {
			seconds := int64(tolerationSeconds)
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, core.Toleration{
				Key:               taint,
				Operator:          core.TolerationOpExists,
				Effect:            core.TaintEffectNoExecute,
				TolerationSeconds: &seconds,
			})
		}
	}
}

// tolerates tells whether the Pod says itself what to do under a NoExecute taint.
func tolerates(pod *core.Pod, taint string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == core.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
