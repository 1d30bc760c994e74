package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"operatord.io/operatord/api/v1alpha1"
)

func templateOf(text string) func(*v1alpha1.Cluster) {
	return func(cl *v1alpha1.Cluster) {
		if cl.Spec.Template = nil; text != "" {
			cl.Spec.Template = &runtime.RawExtension{Raw: []byte(text)}
		}
	}
}

const sleeper = `{"metadata":{"labels":{"app":"x"},"annotations":{"a":"b"}},"spec":{"containers":[{"name":"m","image":"host","command":["sleep","1000"],` +
	`"env":[{"name":"A","value":"b"}],"ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"0.5","memory":"0.5Gi"}}}]}}`

// templateChanges are changes of sleeper, and whether they make another member.
var templateChanges = map[string]struct {
	from, to string
	another  bool
}{
	"nothing":                 {"", "", false},
	"the order of fields":     {`"name":"m","image":"host"`, `"image":"host","name":"m"`, false},
	"what is overridden":      {`"spec":{`, `"spec":{"restartPolicy":"Always","nodeName":"elsewhere",`, false},
	"a default, spelled out":  {`"spec":{`, `"spec":{"terminationGracePeriodSeconds":2,`, false},
	"a quantity's form":       {`"cpu":"0.5"`, `"cpu":"500m"`, false},
	"the template's name":     {`"metadata":{`, `"metadata":{"name":"x",`, false},
	"the leader's label":      {`"labels":{`, `"labels":{"operatord.io/role":"leader",`, false},
	"a command":               {`"1000"`, `"1001"`, true},
	"an image":                {`"image":"host"`, `"image":"scratch"`, true},
	"a variable":              {`"value":"b"`, `"value":"c"`, true},
	"a variable less":         {`"env":[{"name":"A","value":"b"}],`, ``, true},
	"a container more":        {`"containers":[`, `"containers":[{"name":"n","image":"host"},`, true},
	"a limit less":            {`,"memory":"0.5Gi"`, ``, true},
	"a grace period":          {`"spec":{`, `"spec":{"terminationGracePeriodSeconds":30,`, true},
	"a user":                  {`"spec":{`, `"spec":{"securityContext":{"runAsUser":7},`, true},
	"a label":                 {`"app":"x"`, `"app":"y"`, true},
	"an annotation":           {`"a":"b"`, `"a":"c"`, true},
	"a volume":                {`"spec":{`, `"spec":{"volumes":[{"name":"v","emptyDir":{}}],`, true},
	"a toleration":            {`"spec":{`, `"spec":{"tolerations":[{"key":"k","operator":"Exists"}],`, true},
	"what is no template":     {`"containers"`, `"contianers"`, true},
	"the template taken away": {sleeper, ``, true},
}

// TestAChangedTemplateShows, whatever changed in it, and what makes the same member doesn't.
func TestAChangedTemplateShows(t *testing.T) {
	for name, tc := range templateChanges {
		t.Run(name, func(t *testing.T) {
			op := newTest(t)
			cl := demo(1, led(0), templateOf(sleeper))
			template, err := op.template(cl)
			if err != nil {
				t.Fatal(err)
			}
			hash, err := op.templateHash(cl, template)
			if err != nil {
				t.Fatal(err)
			}
			o := world(member(0, leads))
			o.Members[0].Pod.Annotations = map[string]string{v1alpha1.TemplateHashAnnotation: hash}
			templateOf(strings.Replace(sleeper, tc.from, tc.to, 1))(cl)
			checkOutdated(t, op, cl, o, tc.another)
		})
	}
}

// TestAnotherMachineClaimsNoChange: what a machine can give, and what is left out there, is no part of the template.
func TestAnotherMachineClaimsNoChange(t *testing.T) {
	op := newTest(t)
	cl := demo(1, led(0), templateOf(sleeper))
	template, err := op.template(cl)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := op.templateHash(cl, template)
	if err != nil {
		t.Fatal(err)
	}
	o := world(member(0, leads))
	o.Members[0].Pod.Annotations = map[string]string{v1alpha1.TemplateHashAnnotation: hash}
	op.without = func(*v1alpha1.Cluster, *corev1.PodSpec) []string {
		return []string{"spec.containers[0].resources.limits.cpu"}
	}
	checkOutdated(t, op, cl, o, false)
}

// madeBefore is the Pod that an operatord without hashes made of sleeper, as its API stored it.
const madeBefore = `{"metadata":{"namespace":"default","name":"demo-0","uid":"uid-0","labels":{"app":"x","operatord.io/cluster":"demo","operatord.io/role":"leader"},
"annotations":{"a":"b","operatord.io/data":"/data/clusters/cluster-uid/0"}},"spec":{"containers":[{"command":["sleep","1000"],"env":[{"name":"A","value":"b"}],
"image":"host","imagePullPolicy":"Always","name":"m","ports":[{"containerPort":80,"protocol":"TCP"}],
"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"500m","memory":"512Mi"}},
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"nodeName":"vm",
"preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Never","schedulerName":"default-scheduler","securityContext":{},
"terminationGracePeriodSeconds":2,"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},
{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]}}`

// TestAnUpgradeClaimsNoChange: members that an earlier operatord made are compared with what the template makes now.
func TestAnUpgradeClaimsNoChange(t *testing.T) {
	for name, tc := range templateChanges {
		t.Run(name, func(t *testing.T) {
			op := newTest(t)
			pod := &corev1.Pod{}
			if err := json.Unmarshal([]byte(madeBefore), pod); err != nil {
				t.Fatal(err)
			}
			o := world(member(0, leads))
			o.Members[0].Pod = pod
			checkOutdated(t, op, demo(1, led(0), templateOf(strings.Replace(sleeper, tc.from, tc.to, 1))), o, tc.another)
		})
	}
	t.Run("what this machine can't give", func(t *testing.T) {
		op := newTest(t)
		op.without = func(*v1alpha1.Cluster, *corev1.PodSpec) []string {
			return []string{"spec.containers[0].resources.limits.cpu"}
		}
		pod := &corev1.Pod{}
		if err := json.Unmarshal([]byte(madeBefore), pod); err != nil {
			t.Fatal(err)
		}
		o := world(member(0, leads))
		o.Members[0].Pod = pod
		checkOutdated(t, op, demo(1, led(0), templateOf(sleeper)), o, false)
	})
	t.Run("without a template", func(t *testing.T) {
		op := newTest(t)
		pod := &corev1.Pod{}
		if err := json.Unmarshal([]byte(strings.Replace(madeBefore, `"sleep","1000"`, `"/usr/bin/operatord-before","member"`, 1)), pod); err != nil {
			t.Fatal(err)
		}
		o := world(member(0, leads))
		o.Members[0].Pod = pod
		checkOutdated(t, op, demo(1, led(0)), o, false)
	})
}

// checkOutdated looks at a Cluster whose only member leads, and at what is said of its template.
func checkOutdated(t *testing.T, op *Operator, cl *v1alpha1.Cluster, o Observation, want bool) {
	t.Helper()
	op.observeTemplate(cl, &o)
	a := op.Decide(cl, o)
	cl = op.Status(cl, o, a, "")
	told, upToDate := a.Why()+message(cl, "Ready"), message(cl, v1alpha1.ConditionUpToDate)
	if !a.done() || cl.Status.Phase != v1alpha1.PhaseReady {
		t.Fatalf("%s %s, %s", a.Kind(), a.Why(), cl.Status.Phase)
	}
	older := "demo-0 runs an older spec.template"
	switch {
	case want && (strings.Contains(told, "as declared") || strings.Count(told, older) != 2 || !strings.HasPrefix(upToDate, "TemplateChanged: "+older)):
		t.Errorf("told %q, UpToDate is %q", told, upToDate)
	case !want && (!strings.Contains(told, "as declared") || strings.Contains(told, "older") || !strings.HasPrefix(upToDate, "Complete")):
		t.Errorf("told %q, UpToDate is %q", told, upToDate)
	}
}

// TestOutdatedNames: who is gone, dead or somebody else's isn't named, and of many only the first are.
func TestOutdatedNames(t *testing.T) {
	op, cl := newTest(t), demo(20, led(0), templateOf(sleeper))
	o := world()
	for n := range 20 {
		m := member(n)
		m.Pod.Annotations = map[string]string{v1alpha1.TemplateHashAnnotation: "another"}
		switch n {
		case 1:
			leaves(&m)
		case 2:
			dead(0)(&m)
		case 3:
			strange(&m)
		}
		o.Members = append(o.Members, m)
	}
	op.observeTemplate(cl, &o)
	var first []string
	for _, n := range []int{0, 4, 5, 6, 7, 8, 9, 10, 11, 12} {
		first = append(first, fmt.Sprint("demo-", n))
	}
	if got, want := outdated(&o), strings.Join(first, ", ")+" and 7 more run an older spec.template"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
