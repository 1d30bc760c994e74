package builtin

import (
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

func TestDeployment(t *testing.T) {
	k := kind(t, "apps", "Deployment")
	o := create(t, k, workload)
	wantField(t, o, `1`, "spec", "replicas")
	wantField(t, o, `"RollingUpdate"`, "spec", "strategy", "type")
	wantField(t, o, `1`, "metadata", "generation")
	_, err := resourcetest.Create(k, strings.Replace(workload, "labels: {app: a}", "labels: {app: b}", 1))
	wantCauses(t, err, `spec.template.metadata.labels: Invalid value: {"app":"b"}: `+"`selector`"+` does not match template `+"`labels`")
	if err := o.Change("status", func(content map[string]any) {
		content["spec"].(map[string]any)["replicas"] = 9
		content["status"] = map[string]any{"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1, "observedGeneration": 1}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `1`, "spec", "replicas")
	wantField(t, o, `1`, "metadata", "generation")
	if err := o.Change("", func(content map[string]any) {
		content["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
		content["status"] = map[string]any{}
	}); err != nil {
		t.Fatal(err)
	}
	wantField(t, o, `2`, "metadata", "generation") // annotations reach the replica sets
	wantField(t, o, `2`, "status", "replicas")
	cells, err := k.Versions[0].Columns.Cells(o.JSON())
	if err != nil {
		t.Fatal(err)
	}
	cells[4] = "age"
	if want := []any{"a", "1/1", int64(2), int64(1), "age", "c", "host", "app=a"}; !slices.Equal(cells, want) {
		t.Errorf("cells are %#v", cells)
	}
	err = o.Change("", func(content map[string]any) {
		content["spec"].(map[string]any)["selector"] = map[string]any{"matchLabels": map[string]any{"app": "b"}}
	})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("another selector: %v", err)
	}
}

func TestWorkloadScale(t *testing.T) {
	for _, name := range []string{"Deployment", "ReplicaSet", "StatefulSet"} {
		t.Run(name, func(t *testing.T) {
			k := kind(t, "apps", name)
			o := create(t, k, workload)
			if err := o.Scale(4); err != nil {
				t.Fatal(err)
			}
			wantField(t, o, `4`, "spec", "replicas")
			wantField(t, o, `2`, "metadata", "generation")
			hub, err := o.Hub()
			if err != nil {
				t.Fatal(err)
			}
			owners := map[string]string{}
			for _, m := range hub.GetManagedFields() {
				owners[m.Manager+"/"+m.Subresource] = string(m.FieldsV1.Raw)
			}
			if owners["scaler/scale"] != `{"f:spec":{"f:replicas":{}}}` {
				t.Errorf("owners are %v", owners)
			}
			sub := k.Subresource(k.Versions[0], "scale")
			body, err := sub.Project.Get(k.Versions[0], hub)
			if err != nil {
				t.Fatal(err)
			}
			if s := body.(*autoscalingv1.Scale); s.Spec.Replicas != 4 || s.Status.Selector != "app=a" || s.ManagedFields != nil {
				t.Errorf("scale is %+v", s)
			}
			wantCauses(t, o.Scale(-1), `spec.replicas: Invalid value: -1: must be greater than or equal to 0`)
			_, err = sub.Project.Put(t.Context(), k.Versions[0], hub, &autoscalingv1.Scale{ObjectMeta: metaWithUID("other")})
			if !apierrors.IsConflict(err) {
				t.Errorf("another uid: %v", err)
			}
		})
	}
}

func TestReplicaSet(t *testing.T) {
	k := kind(t, "apps", "ReplicaSet")
	o := create(t, k, workload)
	if err := o.Change("status", set("status", map[string]any{"replicas": 3, "readyReplicas": 2})); err != nil {
		t.Fatal(err)
	}
	if f, err := k.Versions[0].Fields.Values(o.JSON()); err != nil || f["status.replicas"] != "3" {
		t.Errorf("fields are %v, %v", f, err)
	}
	wantField(t, o, `1`, "metadata", "generation")
}

func TestApplyToBuiltin(t *testing.T) {
	o := create(t, kind(t, "apps", "Deployment"), workload)
	more := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: c, env: [{name: E, value: v}]}, {name: d, image: host}]}}}}`
	if err := o.Apply(more, "", "applier", false); err != nil {
		t.Fatal(err)
	}
	if c := fieldOf(o, "spec", "template", "spec", "containers"); !strings.Contains(c, `"env":[{"name":"E","value":"v"}]`) || !strings.Contains(c, `"name":"d"`) || strings.Count(c, `"image":"host"`) != 2 {
		t.Errorf("containers are %s", c)
	}
	err := o.Apply(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: c, image: other}]}}}}`, "", "second", false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "test" using apps/v1: .spec.template.spec.containers[name="c"].image`) {
		t.Errorf("another image: %v", err)
	}
}

func TestJob(t *testing.T) {
	k := kind(t, "batch", "Job")
	o := create(t, k, minimal["Job.batch"])
	uid := strings.Trim(fieldOf(o, "metadata", "uid"), `"`)
	labels := `{"batch.kubernetes.io/controller-uid":"` + uid + `","batch.kubernetes.io/job-name":"a","controller-uid":"` + uid + `","job-name":"a"}`
	wantField(t, o, labels, "spec", "template", "metadata", "labels")
	wantField(t, o, labels, "metadata", "labels")
	wantField(t, o, `{"batch.kubernetes.io/controller-uid":"`+uid+`"}`, "spec", "selector", "matchLabels")
	wantField(t, o, `6`, "spec", "backoffLimit")
	_, err := resourcetest.Create(k, strings.Replace(minimal["Job.batch"], "restartPolicy: Never, ", "", 1))
	wantCauses(t, err, `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`)
	if policy := k.Strategy.(rest.GarbageCollectionDeleteStrategy).DefaultGarbageCollectionPolicy(t.Context()); policy != rest.OrphanDependents {
		t.Errorf("garbage collection is %s", policy)
	}
	status := func(s map[string]any) error { return o.Change("status", set("status", s)) }
	if err := status(map[string]any{"active": 1, "startTime": "2020-01-01T00:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	err = status(map[string]any{"startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:01:00Z"})
	wantCauses(t, err, `status.completionTime: Invalid value: "2020-01-01T00:01:00Z": cannot set completionTime when there is no Complete=True condition`)
	if err := status(map[string]any{
		"startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:01:00Z", "succeeded": 1,
		"conditions": []any{map[string]any{"type": "SuccessCriteriaMet", "status": "True"}, map[string]any{"type": "Complete", "status": "True"}},
	}); err != nil {
		t.Fatal(err)
	}
	cells, err := k.Versions[0].Columns.Cells(o.JSON())
	if err != nil || cells[1] != "Complete" || cells[2] != "1/1" || cells[3] != "60s" {
		t.Errorf("cells are %v, %v", cells, err)
	}
	if f, err := k.Versions[0].Fields.Values(o.JSON()); err != nil || f["status.successful"] != "1" {
		t.Errorf("fields are %v, %v", f, err)
	}
	err = status(map[string]any{"startTime": "2020-01-01T00:00:00Z", "succeeded": 1})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.conditions: Invalid value") {
		t.Errorf("taking back Complete: %v", err)
	}
}

func TestCronJob(t *testing.T) {
	k := kind(t, "batch", "CronJob")
	_, err := resourcetest.Create(k, strings.Replace(minimal["CronJob.batch"], "* * * * *", "now", 1))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.schedule: Invalid value: "now"`) {
		t.Errorf("a bad schedule: %v", err)
	}
	cells, err := k.Versions[0].Columns.Cells(create(t, k, minimal["CronJob.batch"]).JSON())
	if err != nil || !slices.Equal(cells[1:6], []any{"* * * * *", "<none>", "False", int64(0), "<none>"}) {
		t.Errorf("cells are %v, %v", cells, err)
	}
}

func TestLease(t *testing.T) {
	k := kind(t, "coordination.k8s.io", "Lease")
	if !k.Strategy.AllowCreateOnUpdate(t.Context()) || k.Strategy.AllowUnconditionalUpdate(t.Context()) {
		t.Error("a PUT creates a Lease, and needs a resourceVersion to replace one")
	}
	o := create(t, k, minimal["Lease.coordination.k8s.io"])
	err := o.Change("", set("spec", map[string]any{"holderIdentity": "me", "leaseDurationSeconds": 0}))
	wantCauses(t, err, `spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0`)
	cells, err := k.Versions[0].Columns.Cells(o.JSON())
	if err != nil || cells[1] != "me" {
		t.Errorf("cells are %v, %v", cells, err)
	}
}

var _ resource.Strategy = (*borrowed)(nil)
