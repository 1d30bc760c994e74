package pod

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corehelper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/process"
)

// abilities are what decides, beside a field itself, whether it can be obeyed.
type abilities struct {
	memory, cpu bool // which resource limits this machine can set

	mounts      bool // a container of the Pod mounts a volume
	tokenless   bool // the Pod asks for no token
	hostNetwork bool // it asks for the machine's network
}

func abilitiesOf(r *process.Runtime) abilities {
	memory, cpu, _ := r.CanLimit()
	return abilities{memory: memory, cpu: cpu}
}

// with are the abilities for one Pod.
func (can abilities) with(s *corev1.PodSpec) *abilities {
	can.tokenless = s.AutomountServiceAccountToken != nil && !*s.AutomountServiceAccountToken
	can.hostNetwork = s.HostNetwork
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		can.mounts = can.mounts || len(c.VolumeMounts) > 0 || len(c.VolumeDevices) > 0
	}
	return &can
}

// unlimited names limits that can't be set, in order.
func (can *abilities) unlimited(limits corev1.ResourceList) []string {
	var not []string
	for name, quantity := range limits {
		switch {
		case quantity.IsZero(), name == corev1.ResourceMemory && can.memory, name == corev1.ResourceCPU && can.cpu:
			continue
		case corehelper.IsExtendedResourceName(name):
			continue // counted by the scheduler, and nobody enforces them anywhere
		}
		not = append(not, string(name))
	}
	slices.Sort(not)
	return not
}

// difference is a field of a Pod that can't be obeyed on this machine.
type difference struct {
	path   string // as kubectl explain and JSONPath write it: spec.containers[0].volumeMounts
	why    string
	help   string
	beside bool // the rest of the Pod runs nevertheless
}

func (d difference) String() string {
	return d.path + ": " + d.why + " (" + d.help + ")"
}

// differences are all fields of a Pod that can't be obeyed here, in the order of the type.
func differences(s *corev1.PodSpec, can abilities) []difference {
	w := fieldWalk{can: can.with(s)}
	w.structure(reflect.ValueOf(s).Elem(), "spec")
	return w.found
}

// Demands names the fields that may keep a Pod with this spec from running on this machine: those that can't be obeyed,
// and the requests for which there may be no room. One that lists them in v1alpha1.WithoutAnnotation is started.
func Demands(s *corev1.PodSpec, r *process.Runtime) []string {
	var paths []string
	for _, d := range differences(s, abilitiesOf(r)) {
		if !d.beside {
			paths = append(paths, d.path)
		}
	}
	for path, requests := range requestsIn(s) {
		if len(requests.Requests)+len(requests.Limits) > 0 { // what is limited alone is requested as well
			paths = append(paths, path)
		}
	}
	return paths
}

// requestsIn are the places of a Pod where it can request something.
func requestsIn(s *corev1.PodSpec) iter.Seq2[string, *corev1.ResourceRequirements] {
	return func(yield func(string, *corev1.ResourceRequirements) bool) {
		if s.Resources != nil && !yield("spec.resources.requests", s.Resources) {
			return
		}
		for i := range s.InitContainers {
			if !yield(fmt.Sprintf("spec.initContainers[%d].resources.requests", i), &s.InitContainers[i].Resources) {
				return
			}
		}
		for i := range s.Containers {
			if !yield(fmt.Sprintf("spec.containers[%d].resources.requests", i), &s.Containers[i].Resources) {
				return
			}
		}
	}
}

// unrequested is a Pod without the requests that it says it may go without.
func unrequested(pod *corev1.Pod) *corev1.Pod {
	listed := splitList(pod.Annotations[v1alpha1.WithoutAnnotation])
	if len(listed) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	for path, requests := range requestsIn(&pod.Spec) {
		if slices.Contains(listed, path) {
			requests.Requests = nil
		}
	}
	return pod
}

// fieldWalk looks at each field that is set, by the rules.
type fieldWalk struct {
	can   *abilities
	found []difference
}

func (w *fieldWalk) structure(v reflect.Value, path string) {
	t := v.Type()
	for i := range t.NumField() {
		f, value := t.Field(i), v.Field(i)
		if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			continue
		}
		name := jsonName(f)
		if name == "" { // embedded: its fields are the outer one's
			w.structure(value, path)
			continue
		}
		w.field(value, t.Name()+"."+name, path+"."+name)
	}
}

func (w *fieldWalk) field(v reflect.Value, key, path string) {
	v = reflect.Indirect(v)
	r, known := fields[key]
	switch {
	case !known:
		w.found = append(w.found, difference{path: path, why: "this operatord doesn't know the field", help: "leave it out"})
	case r.inert:
	case r.why == "":
		w.inside(v, path)
	case r.when == nil || r.when(v.Interface(), w.can):
		paths := []string{path}
		if r.parts != nil {
			paths = r.parts(v.Interface(), w.can)
			for i := range paths {
				paths[i] = path + "." + paths[i]
			}
		}
		for _, p := range paths {
			w.found = append(w.found, difference{path: p, why: r.why, help: r.help, beside: r.beside})
		}
	}
}

// inside looks at what a field consists of.
func (w *fieldWalk) inside(v reflect.Value, path string) {
	switch {
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			w.inside(reflect.Indirect(v.Index(i)), fmt.Sprintf("%s[%d]", path, i))
		}
	case v.Kind() == reflect.Struct && !isLeaf(v.Type()):
		w.structure(v, path)
	}
}

// isLeaf tells whether a struct is one value, not several fields.
func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time]():
		return true
	}
	return false
}

// jsonName is a field's name in JSON; empty for one whose fields stand in the outer struct.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// judgement is what the differences of a Pod lead to.
type judgement struct {
	refused string // why the Pod may not be started; empty: it may
	without string // what it runs without, and what its annotation says wrongly; empty: nothing
}

func (j judgement) said() []string {
	var said []string
	for _, s := range []string{j.refused, j.without} {
		if s != "" {
			said = append(said, s)
		}
	}
	return said
}

// judge decides about a Pod. One that was created before daemons judged is never refused.
func judge(pod *corev1.Pod, can abilities, since time.Time) judgement {
	listed := splitList(pod.Annotations[v1alpha1.WithoutAnnotation])
	var refusals, lacks []difference
	used := map[string]bool{}
	for _, d := range differences(&pod.Spec, can) {
		used[d.path] = true
		if d.beside || slices.Contains(listed, d.path) || createdBefore(pod, since) {
			lacks = append(lacks, d)
		} else {
			refusals = append(refusals, d)
		}
	}
	for path, requests := range requestsIn(&pod.Spec) {
		if slices.Contains(listed, path) && len(requests.Requests) > 0 {
			used[path] = true
			lacks = append(lacks, difference{path: path, why: "no room is kept for it", help: "take it out of the annotation to have it wait for room"})
		}
	}
	var said []string
	if len(lacks) > 0 {
		said = append(said, "runs without "+join(lacks))
	}
	var stray []string
	for _, name := range listed {
		if !used[name] {
			stray = append(stray, name)
		}
	}
	if len(stray) > 0 {
		said = append(said, fmt.Sprintf("annotation %s names what is no field that stands in the way: %s", v1alpha1.WithoutAnnotation, strings.Join(stray, ", ")))
	}
	j := judgement{without: strings.Join(said, "; ")}
	if len(refusals) > 0 {
		paths := make([]string, len(refusals))
		for i, d := range refusals {
			paths[i] = d.path
		}
		j.refused = fmt.Sprintf("not started, since this machine can't give it what it asks for: %s; to run it without, annotate it: %s=%s",
			join(refusals), v1alpha1.WithoutAnnotation, strings.Join(slices.Concat(listed, paths), ","))
	}
	return j
}

// createdBefore tells whether a Pod is older than the judging of Pods. Times of creation are whole seconds; of two in
// the same second the one that has run is the older.
func createdBefore(pod *corev1.Pod, since time.Time) bool {
	since = since.Truncate(time.Second)
	switch created := pod.CreationTimestamp.Time; {
	case since.IsZero() || created.After(since):
		return false
	case created.Before(since):
		return true
	}
	ran := func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, ran) || slices.ContainsFunc(pod.Status.ContainerStatuses, ran)
}

func join(ds []difference) string {
	texts := make([]string, len(ds))
	for i, d := range ds {
		texts[i] = d.String()
	}
	return strings.Join(texts, "; ")
}

func splitList(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
