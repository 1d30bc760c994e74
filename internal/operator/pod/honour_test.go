package pod

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/api/v1alpha1"
)

// TestEveryFieldIsClassified: each field that a PodSpec can have, those of the present version of Kubernetes
// included, has a rule, and no rule is for a field that there isn't.
func TestEveryFieldIsClassified(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || isLeaf(typ) {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := jsonName(f)
			if name == "" {
				walk(f.Type)
				continue
			}
			key := typ.Name() + "." + name
			if reached[key] {
				continue
			}
			reached[key] = true
			r, known := fields[key]
			if !known {
				t.Errorf("nothing is said of %s: obeyed, inert, or refused?", key)
			}
			if known && !r.inert && r.why == "" {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[corev1.PodSpec]())
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !reached[key] {
			t.Errorf("there is no field %s", key)
		}
		if r := fields[key]; (r.why == "") != (r.help == "") {
			t.Errorf("%s: %q, %q: why and what would help go together", key, r.why, r.help)
		}
	}
}

// TestUnknownFieldsAreRefused: so would one be that a later version brings.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	type SpecOfTomorrow struct {
		Known   string `json:"known"`
		Shields *bool  `json:"shields,omitempty"`
	}
	w := fieldWalk{can: &abilities{}}
	w.structure(reflect.ValueOf(SpecOfTomorrow{Shields: ptr.To(true)}), "spec")
	if len(w.found) != 1 || w.found[0].path != "spec.shields" {
		t.Errorf("%v", w.found)
	}
}

// TestDifferences are Pods that ask for what a process can't have here, and what of them is named.
func TestDifferences(t *testing.T) {
	t.Parallel()
	all := abilities{memory: true, cpu: true}
	secure := func(s corev1.SecurityContext) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &s }
	}
	limit := func(name corev1.ResourceName, q string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(q)}
		}
	}
	mount := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}}
	}
	for _, tc := range []struct {
		name   string
		can    abilities
		change func(*corev1.Pod)
		want   string
	}{
		{"nothing", all, func(*corev1.Pod) {}, ""},
		{"what clients and the API set", all, func(p *corev1.Pod) {
			s := &p.Spec
			s.DNSPolicy, s.SchedulerName, s.ServiceAccountName, s.DeprecatedServiceAccount = corev1.DNSClusterFirst, corev1.DefaultSchedulerName, "default", "default"
			s.EnableServiceLinks, s.Priority, s.PreemptionPolicy = ptr.To(true), ptr.To[int32](0), ptr.To(corev1.PreemptLowerPriority)
			s.SecurityContext, s.RestartPolicy, s.OS = &corev1.PodSecurityContext{}, corev1.RestartPolicyAlways, &corev1.PodOS{Name: corev1.Linux}
			s.HostUsers, s.AutomountServiceAccountToken, s.ShareProcessNamespace = ptr.To(true), ptr.To(false), ptr.To(false)
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
			s.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}
			c := &s.Containers[0]
			c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = corev1.TerminationMessagePathDefault, corev1.TerminationMessageReadFile, corev1.PullIfNotPresent
			c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(false), AllowPrivilegeEscalation: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(false), Capabilities: &corev1.Capabilities{}}
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, ""},
		{"a volume that nothing mounts", all, mount, ""},
		{"a mounted volume", all, func(p *corev1.Pod) {
			mount(p)
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/srv/app"}}
		}, "spec.volumes spec.containers[0].volumeMounts"},
		{"a mounted volume of an init container", all, func(p *corev1.Pod) {
			mount(p)
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
		}, "spec.volumes spec.initContainers[1].volumeMounts"},
		{"privileged", all, secure(corev1.SecurityContext{Privileged: ptr.To(true)}), "spec.containers[0].securityContext.privileged"},
		{"a read-only root", all, secure(corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}), "spec.containers[0].securityContext.readOnlyRootFilesystem"},
		{"capabilities", all, secure(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}), "spec.containers[0].securityContext.capabilities"},
		{"seccomp", all, secure(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}), "spec.containers[0].securityContext.seccompProfile"},
		{"no seccomp", all, secure(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}), ""},
		{"hooks", all, func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}, PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}, StopSignal: ptr.To(corev1.SIGINT)}
		}, "spec.containers[0].lifecycle.postStart spec.containers[0].lifecycle.preStop"},
		{"limits", all, limit(corev1.ResourceMemory, "1Gi"), ""},
		{"limits without the controller", abilities{cpu: true}, limit(corev1.ResourceMemory, "1Gi"), "spec.containers[0].resources.limits.memory"},
		{"a limit of storage", all, limit(corev1.ResourceEphemeralStorage, "1Gi"), "spec.containers[0].resources.limits.ephemeral-storage"},
		{"a device", all, limit("example.com/gpu", "1"), ""},
		{"a limit of the Pod", all, func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
		}, "spec.resources"},
		{"a message elsewhere", all, func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/tmp/last" }, "spec.containers[0].terminationMessagePath"},
		{"a name", all, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "a", "b" }, "spec.hostname spec.subdomain"},
		{"a resolver", all, func(p *corev1.Pod) {
			p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}}
		}, "spec.dnsPolicy spec.dnsConfig"},
		{"another's port", all, func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}
		}, "spec.containers[0].ports[1].hostPort"},
		{"the machine's port", all, func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 81, HostPort: 81}}
		}, ""},
		{"an identity", all, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "robot" }, "spec.serviceAccountName"},
		{"an identity without a token", all, func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "robot", ptr.To(false)
		}, ""},
		{"classes", all, func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.RuntimeClassName = "high", ptr.To("gvisor")
		}, "spec.priorityClassName spec.runtimeClassName"},
		{"apart from others", all, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}}}}
		}, "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"},
		{"rather apart from others", all, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1}}}}
		}, ""},
		{"spread over zones", all, func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}, {TopologyKey: corev1.LabelTopologyZone}}
		}, "spec.topologySpreadConstraints[1].topologyKey"},
		{"a probe", all, func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}}
		}, "spec.containers[0].livenessProbe.grpc"},
		{"a file's variable", all, func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Key: "k"}}}}
		}, "spec.containers[0].env[1].valueFrom.fileKeyRef"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "host"}}}}
		tc.change(pod)
		var got []string
		for _, d := range differences(&pod.Spec, tc.can) {
			got = append(got, d.path)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if j := judge(pod, tc.can, time.Time{}); (j.refused == "") != (tc.want == "") {
			t.Errorf("%s: %q", tc.name, j.refused)
		}
		pod.Annotations = map[string]string{v1alpha1.WithoutAnnotation: strings.Join(got, " , ")}
		if j := judge(pod, tc.can, time.Time{}); j.refused != "" || strings.Contains(j.without, v1alpha1.WithoutAnnotation) {
			t.Errorf("%s: with all it names it is %+v", tc.name, j)
		}
	}
}

// TestEphemeralContainersAreBeside: they come when the Pod runs, and stop nothing.
func TestEphemeralContainersAreBeside(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{}}}}
	if j := judge(pod, abilities{}, time.Time{}); j.refused != "" || !strings.Contains(j.without, "spec.ephemeralContainers") {
		t.Errorf("%+v", j)
	}
}

// TestRequestsLeftOut: nothing waits for room that its annotation says it may go without.
func TestRequestsLeftOut(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}, {}}}}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10000")}
	}
	cpu := func() string { q := requestsOf(pod)[corev1.ResourceCPU]; return q.String() }
	if cpu() != "20k" {
		t.Errorf("%s", cpu())
	}
	pod.Annotations = map[string]string{v1alpha1.WithoutAnnotation: "spec.containers[1].resources.requests"}
	if j := judge(pod, abilities{}, time.Time{}); cpu() != "10k" || !strings.HasPrefix(j.without, "runs without spec.containers[1].resources.requests: ") || strings.Contains(j.without, "annotation operatord") {
		t.Errorf("%s, %+v", cpu(), j)
	}
}

func TestCreatedBefore(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 12, 0, 0, 700_000_000, time.UTC)
	at := func(second int, id string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Date(2026, 5, 1, 12, 0, second, 0, time.UTC)},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{ContainerID: id}}},
		}
	}
	for _, tc := range []struct {
		pod   *corev1.Pod
		since time.Time
		want  bool
	}{
		{at(-1, ""), since, true}, {at(0, "process://1/2/3"), since, true}, {at(0, ""), since, false},
		{at(1, "process://1/2/3"), since, false}, {at(-1, ""), time.Time{}, false},
	} {
		if got := createdBefore(tc.pod, tc.since); got != tc.want {
			t.Errorf("%s at %s: %v", tc.pod.CreationTimestamp, tc.since, got)
		}
	}
}
