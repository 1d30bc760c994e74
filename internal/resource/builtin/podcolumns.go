package builtin

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"operatord.io/operatord/internal/resource"
)

// podColumns print Pods and mark those that have ended.
type podColumns struct{ columns[corev1.Pod] }

var _ resource.RowConditions = (*podColumns)(nil)

func newPodColumns() resource.Columns {
	status, spec := corev1.PodStatus{}.SwaggerDoc(), corev1.PodSpec{}.SwaggerDoc()
	return &podColumns{columns[corev1.Pod]{
		definitions: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Ready", "string", "The aggregate readiness state of this pod for accepting traffic."),
			column("Status", "string", "The aggregate status of the containers in this pod."),
			column("Restarts", "string", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
			ageColumn(),
			wide("IP", "string", status["podIP"]),
			wide("Node", "string", spec["nodeName"]),
			wide("Nominated Node", "string", status["nominatedNodeName"]),
			wide("Readiness Gates", "string", spec["readinessGates"]),
		},
		cells: podCells,
	}}
}

func (*podColumns) Conditions(data []byte) []metav1.TableRowCondition {
	var pod struct {
		Status struct {
			Phase corev1.PodPhase `json:"phase"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &pod); err != nil {
		return nil
	}
	message := map[corev1.PodPhase]string{
		corev1.PodSucceeded: "The pod has completed successfully.",
		corev1.PodFailed:    "The pod failed.",
	}[pod.Status.Phase]
	if message == "" {
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(pod.Status.Phase), Message: message}}
}

func podCells(pod *corev1.Pod) []any {
	s := summarise(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, age(s.lastRestart))
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	gates := "<none>"
	if n := len(pod.Spec.ReadinessGates); n > 0 {
		passed := 0
		for _, gate := range pod.Spec.ReadinessGates {
			if conditionStatus(pod, gate.ConditionType) == corev1.ConditionTrue {
				passed++
			}
		}
		gates = fmt.Sprintf("%d/%d", passed, n)
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts, age(pod.CreationTimestamp),
		orNone(ip), orNone(pod.Spec.NodeName), orNone(pod.Status.NominatedNodeName), gates,
	}
}

// podSummary is a Pod in a few words.
type podSummary struct {
	reason       string
	ready, total int
	restarts     int
	lastRestart  metav1.Time
}

// count adds a container's restarts.
func (s *podSummary) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.lastRestart.Before(&t.FinishedAt) {
		s.lastRestart = t.FinishedAt
	}
}

func summarise(pod *corev1.Pod) podSummary {
	s := podSummary{reason: string(pod.Status.Phase), total: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		s.reason = pod.Status.Reason
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	sidecarRestarts := podSummary{}
	initializing := s.initContainers(pod, sidecars, &sidecarRestarts)
	if !initializing || conditionStatus(pod, corev1.PodInitialized) == corev1.ConditionTrue {
		s.restarts, s.lastRestart = sidecarRestarts.restarts, sidecarRestarts.lastRestart
		s.containers(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s.reason = "Unknown"
		case pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded:
			s.reason = "Terminating"
		}
	}
	return s
}

// initContainers goes through them up to the first that isn't done, and tells whether there is one.
func (s *podSummary) initContainers(pod *corev1.Pod, sidecars map[string]bool, sidecarRestarts *podSummary) (initializing bool) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.count(c)
		sidecar := sidecars[c.Name]
		if sidecar {
			sidecarRestarts.count(c)
		}
		switch ended, waiting := c.State.Terminated, c.State.Waiting; {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecar && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// containers goes through the main containers, the first one last, so that its reason wins.
func (s *podSummary) containers(pod *corev1.Pod) {
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.count(c)
		switch ended, waiting := c.State.Terminated, c.State.Waiting; {
		case waiting != nil && waiting.Reason != "":
			s.reason = waiting.Reason
		case ended != nil:
			s.reason = endReason(ended)
			if ended.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && conditionStatus(pod, corev1.PodReady) == corev1.ConditionTrue:
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// conditionStatus is the status of the first condition of a type; "" if there is none.
func conditionStatus(pod *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}
