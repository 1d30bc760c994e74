package builtin

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

func TestConfigMap(t *testing.T) {
	k := kind(t, "", "ConfigMap")
	_, err := resourcetest.Create(k, `{metadata: {name: a}, data: {"bad key": v}}`)
	wantCauses(t, err, `data[bad key]: Invalid value: "bad key": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`)
	o := create(t, k, `{metadata: {name: a}, data: {k: v}, immutable: true}`)
	wantCauses(t, o.Change("", set("data", map[string]any{"k": "w"})), `data: Forbidden: field is immutable when `+"`immutable`"+` is set`)
}

func TestSecret(t *testing.T) {
	k := kind(t, "", "Secret")
	o := create(t, k, `{metadata: {name: a}, stringData: {k: v}, data: {k: eA==, l: eQ==}}`)
	wantField(t, o, `{"k":"dg==","l":"eQ=="}`, "data")
	wantField(t, o, `"Opaque"`, "type")
	wantField(t, o, ``, "stringData")
	wantCauses(t, o.Change("", set("type", "x/y")), `type: Invalid value: "x/y": field is immutable`)
	o = create(t, k, `{metadata: {name: a}, type: kubernetes.io/tls, data: {tls.crt: eA==, tls.key: eQ==}}`)
	if len(o.Warnings) != 1 || !strings.HasPrefix(o.Warnings[0], "tls: failed to find any PEM data in certificate input") {
		t.Errorf("warnings are %q", o.Warnings)
	}
	if f, err := k.Versions[0].Fields.Values([]byte(`{"type":"Opaque"}`)); err != nil || f["type"] != "Opaque" {
		t.Errorf("fields are %v, %v", f, err)
	}
}

func TestServiceAccount(t *testing.T) {
	k := kind(t, "", "ServiceAccount")
	o := create(t, k, `{metadata: {name: a, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}, secrets: [{name: s, uid: u}]}`)
	wantField(t, o, `[{"name":"s"}]`, "secrets")
	if len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0], "deprecated in v1.32+") {
		t.Errorf("warnings are %q", o.Warnings)
	}
	if err := o.Change("", func(map[string]any) {}); err != nil || len(o.Warnings) != 0 {
		t.Errorf("an annotation that was there before warns: %v, %v", o.Warnings, err)
	}
}

func TestNamespace(t *testing.T) {
	k := kind(t, "", "Namespace")
	o := create(t, k, `{metadata: {name: a}, status: {phase: Terminating}}`)
	wantField(t, o, `["kubernetes"]`, "spec", "finalizers")
	wantField(t, o, `"Active"`, "status", "phase")
	wantField(t, o, `{"kubernetes.io/metadata.name":"a"}`, "metadata", "labels")
	_, err := resourcetest.Create(k, `{metadata: {name: Bad}}`)
	if !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}

	// Finalizers and phase aren't a PUT's to change.
	if err := o.Change("", func(content map[string]any) {
		content["spec"] = map[string]any{}
		content["status"] = map[string]any{"phase": "Terminating"}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `["kubernetes"]`, "spec", "finalizers")
	wantField(t, o, `"Active"`, "status", "phase")

	// The first DELETE marks it; spec.finalizers hold it until finalize takes them away.
	marker, holder := k.Strategy.(resource.DeletionMarker), k.Strategy.(resource.DeletionHolder)
	hub, err := o.Hub()
	if err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	marker.MarkDeleted(hub, &metav1.DeleteOptions{PropagationPolicy: &foreground}, now)
	ns := hub.(*core.Namespace)
	if !ns.DeletionTimestamp.Equal(&now) || ns.Status.Phase != core.NamespaceTerminating || !slices.Equal(ns.Finalizers, []string{"foregroundDeletion"}) {
		t.Errorf("marked: %+v", ns)
	}
	if !holder.HoldsDeletion(ns) {
		t.Error("spec.finalizers don't hold it")
	}
	if err := o.Change("finalize", func(content map[string]any) { content["spec"] = map[string]any{} }); err != nil {
		t.Fatal(err)
	}
	hub, err = o.Hub()
	if err != nil {
		t.Fatal(err)
	}
	if holder.HoldsDeletion(hub) {
		t.Error("held without finalizers")
	}
	if !k.ReturnDeleted || slices.Contains(k.Verbs, "deletecollection") {
		t.Error("a DELETE answers with the object, and there is no deletecollection")
	}
	if f, err := k.Versions[0].Fields.Values(o.JSON()); err != nil || f["name"] != "a" || f["status.phase"] != "Active" {
		t.Errorf("fields are %v, %v", f, err)
	}
}

func TestNamespacePropagation(t *testing.T) {
	orphan := true
	background := metav1.DeletePropagationBackground
	for _, c := range []struct {
		name string
		opts *metav1.DeleteOptions
		had  []string
		want []string
	}{
		{"nothing said keeps what is there", nil, []string{"orphan", "x/y"}, []string{"orphan", "x/y"}},
		{"orphanDependents", &metav1.DeleteOptions{OrphanDependents: &orphan}, []string{"x/y"}, []string{"x/y", "orphan"}},
		{"background takes them away", &metav1.DeleteOptions{PropagationPolicy: &background}, []string{"foregroundDeletion", "x/y"}, []string{"x/y"}},
	} {
		ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Finalizers: c.had}}
		(&namespaces{}).MarkDeleted(ns, c.opts, metav1.Now())
		if !slices.Equal(ns.Finalizers, c.want) {
			t.Errorf("%s: finalizers are %v, want %v", c.name, ns.Finalizers, c.want)
		}
	}
}

func TestNode(t *testing.T) {
	k := kind(t, "", "Node")
	o := create(t, k, `{metadata: {name: a, labels: {node-role.kubernetes.io/x: "", kubernetes.io/role: b}}, spec: {externalID: e}, status: {conditions: [{type: Ready, status: "True"}], nodeInfo: {kubeletVersion: v1, kernelVersion: "6", architecture: amd64}, addresses: [{type: InternalIP, address: 127.0.0.1}]}}`)
	if !slices.Equal(o.Warnings, []string{"spec.externalID: this field is deprecated, and is unused by Kubernetes"}) {
		t.Errorf("warnings are %q", o.Warnings)
	}
	cells, err := k.Versions[0].Columns.Cells(o.JSON())
	if err != nil {
		t.Fatal(err)
	}
	cells[3] = "age"
	if want := []any{"a", "Ready", "b,x", "age", "v1", "127.0.0.1", "<none>", "<unknown>", "6 (amd64)", "<unknown>"}; !slices.Equal(cells, want) {
		t.Errorf("cells are %v", cells)
	}
	if err := o.Change("", set("status", map[string]any{})); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `"v1"`, "status", "nodeInfo", "kubeletVersion")
	if err := o.Change("status", func(content map[string]any) {
		content["spec"] = map[string]any{"unschedulable": true}
		content["status"] = map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "v2"}}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `"v2"`, "status", "nodeInfo", "kubeletVersion")
	wantField(t, o, ``, "spec", "unschedulable")
}

func TestPodDefaults(t *testing.T) {
	o := create(t, kind(t, "", "Pod"), `{metadata: {name: a}, spec: {containers: [{name: c, image: "x:latest", resources: {limits: {cpu: 500m}}}]}, status: {phase: Running}}`)
	wantField(t, o, `"Pending"`, "status", "phase")
	wantField(t, o, `"Burstable"`, "status", "qosClass")
	wantField(t, o, `"Always"`, "spec", "restartPolicy")
	wantField(t, o, `30`, "spec", "terminationGracePeriodSeconds")
	wantField(t, o, `0`, "spec", "priority")
	wantField(t, o, `"PreemptLowerPriority"`, "spec", "preemptionPolicy")
	wantField(t, o, `1`, "metadata", "generation")
	wantField(t, o, `[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]`, "spec", "tolerations")
	if c := fieldOf(o, "spec", "containers"); !strings.Contains(c, `"requests":{"cpu":"500m"}`) || !strings.Contains(c, `"imagePullPolicy":"Always"`) {
		t.Errorf("containers are %s", c)
	}
}

func TestPodToleratesByItself(t *testing.T) {
	o := create(t, kind(t, "", "Pod"), `{metadata: {name: a}, spec: {priorityClassName: system-node-critical, tolerations: [{operator: Exists}], containers: [{name: c, image: x}]}}`)
	wantField(t, o, `[{"operator":"Exists"}]`, "spec", "tolerations")
	wantField(t, o, `2000001000`, "spec", "priority")
}

func TestPodUpdates(t *testing.T) {
	k := kind(t, "", "Pod")
	_, err := resourcetest.Create(k, `{metadata: {name: a}, spec: {containers: [{name: C, image: x}]}}`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.containers[0].name: Invalid value: "C"`) {
		t.Errorf("a bad container: %v", err)
	}
	o := create(t, k, minimal["Pod"])
	err = o.Change("", func(content map[string]any) { content["spec"].(map[string]any)["restartPolicy"] = "Never" })
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec: Forbidden: pod updates may not change fields other than") {
		t.Errorf("an update of the spec: %v", err)
	}
	image := func(content map[string]any) {
		content["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "other"
	}
	if err := o.Change("", image); err != nil || o.Generation() != 2 {
		t.Errorf("another image: %v, generation %d", err, o.Generation())
	}
	if err := o.Change("status", func(content map[string]any) {
		image(content)
		content["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}}
		content["status"] = map[string]any{"phase": "Running", "podIPs": []any{map[string]any{"ip": "10.0.0.1"}}}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `"Running"`, "status", "phase")
	wantField(t, o, `"BestEffort"`, "status", "qosClass")
	wantField(t, o, ``, "metadata", "ownerReferences")
	if err := o.Change("", set("status", map[string]any{"phase": "Failed"})); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `"Running"`, "status", "phase")
}

func TestPodSelectors(t *testing.T) {
	v := kind(t, "", "Pod").Versions[0]
	got, err := v.Fields.Values([]byte(`{"spec":{"nodeName":"n","restartPolicy":"Never","schedulerName":"s","serviceAccountName":"sa","hostNetwork":true},"status":{"phase":"Running","podIP":"ignored","podIPs":[{"ip":"10.0.0.1"}],"nominatedNodeName":"m"}}`))
	want := fields.Set{
		"spec.hostNetwork": "true", "spec.nodeName": "n", "spec.restartPolicy": "Never", "spec.schedulerName": "s", "spec.serviceAccountName": "sa",
		"status.phase": "Running", "status.podIP": "10.0.0.1", "status.nominatedNodeName": "m",
	}
	if err != nil || got.String() != want.String() {
		t.Errorf("fields are %v, %v", got, err)
	}
	if label, _, err := v.Fields.Convert("spec.host", "n"); err != nil || label != "spec.nodeName" {
		t.Errorf("spec.host is %s, %v", label, err)
	}
}

func TestPodGrace(t *testing.T) {
	strategy := kind(t, "", "Pod").Strategy.(rest.RESTGracefulDeleteStrategy)
	seconds := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name string
		node string
		term *int64
		ask  *int64
		end  core.PodPhase
		want int64
	}{
		{"its own period", "n", seconds(30), nil, core.PodRunning, 30},
		{"what is asked for", "n", seconds(30), seconds(5), core.PodRunning, 5},
		{"at once if it isn't on a node", "", seconds(30), seconds(5), core.PodPending, 0},
		{"at once if it has ended", "n", seconds(30), nil, core.PodSucceeded, 0},
		{"a negative period is a second", "n", nil, seconds(-1), core.PodRunning, 1},
		{"none without a period", "n", nil, nil, core.PodRunning, 0},
	} {
		pod := &core.Pod{Spec: core.PodSpec{NodeName: c.node, TerminationGracePeriodSeconds: c.term}, Status: core.PodStatus{Phase: c.end}}
		opts := &metav1.DeleteOptions{GracePeriodSeconds: c.ask}
		if !strategy.CheckGracefulDelete(t.Context(), pod, opts) || *opts.GracePeriodSeconds != c.want {
			t.Errorf("%s: %d, want %d", c.name, *opts.GracePeriodSeconds, c.want)
		}
	}
}

func TestBinding(t *testing.T) {
	k := kind(t, "", "Pod")
	sub := k.Subresource(k.Versions[0], "binding")
	if !sub.Project.Creates() || sub.Strategy == nil || sub.Body != corev1.SchemeGroupVersion.WithKind("Binding") {
		t.Fatalf("subresource is %+v", sub)
	}
	hub, err := create(t, k, minimal["Pod"]).Hub()
	if err != nil {
		t.Fatal(err)
	}
	bind := func(pod resource.Object, body string) (*core.Pod, error) {
		t.Helper()
		b, _, err := sub.Project.Decode([]byte(body), resource.DecodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := sub.Project.Put(t.Context(), k.Versions[0], pod, b)
		if err != nil {
			return nil, err
		}
		return out.(*core.Pod), nil
	}
	bound, err := bind(hub, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"a","annotations":{"x":"y"},"labels":{"l":"m"},"resourceVersion":"5"},"target":{"kind":"Node","name":"n"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if bound.Spec.NodeName != "n" || bound.Annotations["x"] != "y" || bound.Labels["l"] != "m" || bound.ResourceVersion != "5" {
		t.Errorf("bound %+v", bound)
	}
	if c := bound.Status.Conditions; len(c) != 1 || c[0].Type != core.PodScheduled || c[0].Status != core.ConditionTrue {
		t.Errorf("conditions are %+v", c)
	}
	if _, err := bind(bound, `{"metadata":{"name":"a"},"target":{"name":"m"}}`); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `pod a is already assigned to node "n"`) {
		t.Errorf("bound twice: %v", err)
	}
	if _, err := bind(hub, `{"metadata":{"name":"b"},"target":{"name":"n"}}`); !apierrors.IsBadRequest(err) {
		t.Errorf("another name: %v", err)
	}
	if _, err := bind(hub, `{"metadata":{"name":"a"},"target":{}}`); err == nil || !strings.Contains(err.Error(), "target.name: Required value") {
		t.Errorf("no target: %v", err)
	}
	if _, err := sub.Project.Get(k.Versions[0], hub); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("GET: %v", err)
	}
}

func TestPodColumns(t *testing.T) {
	for _, c := range []struct{ name, pod, ready, status, restarts string }{
		{"pending", `{"spec":{"containers":[{"name":"a"},{"name":"b"}]},"status":{"phase":"Pending"}}`, "0/2", "Pending", "0"},
		{"running", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","ready":true,"restartCount":2,"state":{"running":{}}}]}}`, "1/1", "Running", "2"},
		{"waiting", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending","containerStatuses":[{"name":"a","state":{"waiting":{"reason":"ErrImagePull"}}}]}}`, "0/1", "ErrImagePull", "0"},
		{"failed", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":3}}}]}}`, "0/1", "ExitCode:3", "0"},
		{"killed", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":137,"signal":9}}}]}}`, "0/1", "Signal:9", "0"},
		{"completed", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Succeeded","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`, "0/1", "Completed", "0"},
		{"half completed", `{"spec":{"containers":[{"name":"a"},{"name":"b"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}}`, "1/2", "NotReady", "0"},
		{"initialising", `{"spec":{"initContainers":[{"name":"i"},{"name":"j"}],"containers":[{"name":"a"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":0}}},{"name":"j","state":{"running":{}}}]}}`, "0/1", "Init:1/2", "0"},
		{"init failed", `{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":4,"state":{"terminated":{"exitCode":2,"reason":"Error"}}}]}}`, "0/1", "Init:Error", "4"},
		{"a sidecar counts", `{"spec":{"initContainers":[{"name":"s","restartPolicy":"Always"}],"containers":[{"name":"a"}]},"status":{"phase":"Running","initContainerStatuses":[{"name":"s","ready":true,"started":true,"restartCount":1,"state":{"running":{}}}],"containerStatuses":[{"name":"a","ready":true,"state":{"running":{}}}]}}`, "2/2", "Running", "1"},
		{"going", `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running"}}`, "0/1", "Terminating", "0"},
		{"lost", `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","reason":"NodeLost"}}`, "0/1", "Unknown", "0"},
		{"gated", `{"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","reason":"SchedulingGated"}]}}`, "0/1", "SchedulingGated", "0"},
	} {
		cells, err := kind(t, "", "Pod").Versions[0].Columns.Cells([]byte(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		if cells[1] != c.ready || cells[2] != c.status || cells[3] != c.restarts {
			t.Errorf("%s: %v, want %s %s %s", c.name, cells, c.ready, c.status, c.restarts)
		}
	}
	conditions := kind(t, "", "Pod").Versions[0].Columns.(resource.RowConditions)
	if c := conditions.Conditions([]byte(`{"status":{"phase":"Failed"}}`)); len(c) != 1 || c[0].Message != "The pod failed." {
		t.Errorf("conditions of a failed Pod are %v", c)
	}
	if c := conditions.Conditions([]byte(`{"status":{"phase":"Running"}}`)); c != nil {
		t.Errorf("conditions of a running Pod are %v", c)
	}
}

func TestEvents(t *testing.T) {
	old, k := kind(t, "", "Event"), kind(t, "events.k8s.io", "Event")
	if resource.Key(old, "default", "a") != resource.Key(k, "default", "a") {
		t.Error("the two groups don't share their objects")
	}
	if policy := k.Strategy.(rest.GarbageCollectionDeleteStrategy).DefaultGarbageCollectionPolicy(t.Context()); policy != rest.Unsupported {
		t.Errorf("garbage collection is %s", policy)
	}
	o := create(t, k, minimal["Event.events.k8s.io"])
	if data := string(storedJSON(t, o)); !strings.Contains(data, `"involvedObject":{"kind":"Pod"`) || !strings.Contains(data, `"apiVersion":"v1"`) {
		t.Errorf("stored %s", data)
	}
	wantField(t, o, `"events.k8s.io/v1"`, "apiVersion")
	wantField(t, o, `{"kind":"Pod","name":"p","namespace":"default"}`, "regarding")
	o.Kind, o.Version = old, old.Versions[0]
	wantField(t, o, `{"kind":"Pod","name":"p","namespace":"default"}`, "involvedObject")
	wantField(t, o, `"x.y/z"`, "reportingComponent")
	if f, err := old.Versions[0].Fields.Values(o.JSON()); err != nil || f["involvedObject.name"] != "p" || f["source"] != "x.y/z" || f["reason"] != "R" {
		t.Errorf("fields are %v, %v", f, err)
	}
	_, err := resourcetest.Create(k, `{metadata: {name: a}, regarding: {namespace: default}}`)
	if !apierrors.IsInvalid(err) || !strings.HasPrefix(err.Error(), `Event "a" is invalid: `) || !strings.Contains(err.Error(), "eventTime: Required value") {
		t.Errorf("without a time: %v", err)
	}
	cells, err := old.Versions[0].Columns.Cells([]byte(`{"metadata":{"name":"e"},"type":"Warning","reason":"R","involvedObject":{"kind":"Pod","name":"p"},"message":" m ","source":{"component":"c","host":"h"},"count":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []any{"<unknown>", "Warning", "R", "pod/p", "", "c, h", "m", "<unknown>", int64(3), "e"}; !slices.Equal(cells, want) {
		t.Errorf("cells are %v", cells)
	}
}
