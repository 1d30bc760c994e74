package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

func templateAs(uid int64) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: &uid},
		Containers:      []corev1.Container{{Name: "x", Image: "host", Command: []string{"sleep", "1"}}},
	}}
}

func checkMember(t *testing.T, cl *v1alpha1.Cluster, pod *corev1.Pod) {
	t.Helper()
	if pod.Name != "demo-3" || pod.Namespace != "default" || !metav1.IsControlledBy(pod, cl) {
		t.Errorf("it is %s/%s, owned by %v", pod.Namespace, pod.Name, pod.OwnerReferences)
	}
	if ref := pod.OwnerReferences[0]; ref.APIVersion != "operatord.io/v1alpha1" || ref.Kind != "Cluster" || !*ref.BlockOwnerDeletion {
		t.Errorf("owner %+v", ref)
	}
	if pod.Labels[v1alpha1.ClusterLabel] != "demo" || pod.Labels[v1alpha1.RoleLabel] != "" {
		t.Errorf("labels %v", pod.Labels)
	}
	if pod.Annotations[v1alpha1.DataAnnotation] != "/data/clusters/cluster-uid/3" {
		t.Errorf("annotations %v", pod.Annotations)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("restartPolicy %s", pod.Spec.RestartPolicy)
	}
	if pod.Spec.NodeName != "" {
		t.Errorf("nodeName %s", pod.Spec.NodeName)
	}
}

func TestMemberWithoutTemplate(t *testing.T) {
	op, cl := newTest(t), demo(4)
	template, err := op.template(cl)
	if err != nil {
		t.Fatal(err)
	}
	pod := op.pod(cl, template, "demo-3", "/data/clusters/cluster-uid/3")
	checkMember(t, cl, pod)
	c := pod.Spec.Containers[0]
	if c.Image != "host" || !slices.Equal(c.Command, []string{"/bin/operatord", "member"}) || *pod.Spec.TerminationGracePeriodSeconds != 2 {
		t.Errorf("spec %+v", pod.Spec)
	}
	if p := c.ReadinessProbe; p.HTTPGet.Path != "/healthz" || p.HTTPGet.Port.IntValue() != 7481 || p.PeriodSeconds != 1 || p.FailureThreshold != 1 {
		t.Errorf("probe %+v", p)
	}
}

// TestMemberGoesWithout: the fields are added to those that the template names itself.
func TestMemberGoesWithout(t *testing.T) {
	op, cl := newTest(t), demo(4)
	op.without = func(_ *v1alpha1.Cluster, spec *corev1.PodSpec) []string {
		if spec.Hostname == "" {
			return nil
		}
		return []string{"spec.hostname", "spec.subdomain"}
	}
	template := templateAs(7)
	without := func() string {
		pod := op.pod(cl, template, "demo-3", "/data")
		op.goWithout(cl, pod)
		return pod.Annotations[v1alpha1.WithoutAnnotation]
	}
	if got := without(); got != "" {
		t.Errorf("without %q", got)
	}
	template.Spec.Hostname = "db"
	if got := without(); got != "spec.hostname,spec.subdomain" {
		t.Errorf("without %q", got)
	}
	template.Annotations = map[string]string{v1alpha1.WithoutAnnotation: "spec.volumes"}
	if got := without(); got != "spec.volumes,spec.hostname,spec.subdomain" {
		t.Errorf("without %q", got)
	}
	if template.Annotations[v1alpha1.WithoutAnnotation] != "spec.volumes" {
		t.Error("the template was changed")
	}
}

func TestMemberWithTemplate(t *testing.T) {
	op, grace := newTest(t), int64(30)
	template := templateAs(7)
	template.Name = "ignored"
	template.Labels = map[string]string{"app": "x", v1alpha1.RoleLabel: v1alpha1.RoleLeader, v1alpha1.ClusterLabel: "other"}
	template.Annotations = map[string]string{"note": "y", v1alpha1.DataAnnotation: "/etc"}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	template.Spec.NodeName = "elsewhere"
	template.Spec.TerminationGracePeriodSeconds = &grace
	cl := demo(4, func(cl *v1alpha1.Cluster) { cl.Spec.Template = raw(template) })
	template, err := op.template(cl)
	if err != nil {
		t.Fatal(err)
	}
	pod := op.pod(cl, template, "demo-3", "/data/clusters/cluster-uid/3")
	checkMember(t, cl, pod)
	if pod.Labels["app"] != "x" || pod.Annotations["note"] != "y" || *pod.Spec.TerminationGracePeriodSeconds != 30 || pod.Spec.Containers[0].Name != "x" {
		t.Errorf("the template isn't in it: %+v", pod)
	}
}

func TestTemplatesThatAreNone(t *testing.T) {
	op := newTest(t)
	for text, why := range map[string]string{
		`{"spec":{"contianers":[{"name":"x"}]}}`:                                         `unknown field "spec.contianers"`,
		`{"spec":{"containers":[{"name":"x","image":"host","imagee":"y"}]}}`:             `unknown field "spec.containers[0].imagee"`,
		`{"spec":{"containers":"x"}}`:                                                    "cannot unmarshal string",
		`{"spec":{"containers":[{"name":"x","image":"host"}],"nodeName":1}}`:             "nodeName",
		`{"metadata":{"labels":{"a":"b","a":"c"}},"spec":{"containers":[{"name":"x"}]}}`: "duplicate field",
	} {
		cl := demo(1, func(cl *v1alpha1.Cluster) { cl.Spec.Template = &runtime.RawExtension{Raw: []byte(text)} })
		if err := op.Act(t.Context(), sink{}, cl, op.Decide(cl, world())); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func raw(t *corev1.PodTemplateSpec) *runtime.RawExtension {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return &runtime.RawExtension{Raw: data}
}

func TestOwnerOfData(t *testing.T) {
	id := func(n int64) *int64 { return &n }
	op := newTest(t)
	op.root = true
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   *owner
	}{
		"nobody in particular": {func(s *corev1.PodSpec) { s.SecurityContext = nil }, nil},
		"the Pod's user":       {func(s *corev1.PodSpec) {}, &owner{7, -1}},
		"and group":            {func(s *corev1.PodSpec) { s.SecurityContext.RunAsGroup = id(8) }, &owner{7, 8}},
		"the first container's": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: id(9)}
		}, &owner{9, -1}},
	} {
		template := templateAs(7)
		tc.change(&template.Spec)
		got := op.owner(template)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	op.root = false
	if got := op.owner(templateAs(7)); got != nil {
		t.Errorf("an ordinary user gives files to %+v", got)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]int{
		"demo-0": 0, "demo-10": 10,
		"demo": -1, "demo-": -1, "demo-01": -1, "demo-+1": -1, "demo--1": -1, "demo-1-0": -1, "demo-x": -1, "other-1": -1, "demo-99999999999999999999": -1,
	} {
		n, ok := ordinalOf("demo", name)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%s: %d, %t", name, n, ok)
		}
		keys := clusterOfPod(nil, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		woken := slices.ContainsFunc(keys, func(k controller.Key) bool { return k.Name == "demo" })
		if woken != (want >= 0) {
			t.Errorf("%s wakes %v", name, keys)
		}
	}
}
