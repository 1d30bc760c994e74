package builtin

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"operatord.io/operatord/internal/resource"
)

func batchGroup(b *builder) []*resource.Kind {
	return []*resource.Kind{b.cronJob(), b.job()}
}

func (b *builder) cronJob() *resource.Kind {
	gv := batchv1.SchemeGroupVersion
	common := base{scheme: b.scheme, gv: gv, namespaced: true}
	return b.kind(definition{
		gvk:        gv.WithKind("CronJob"),
		object:     &batchv1.CronJob{},
		plural:     "cronjobs",
		singular:   "cronjob",
		shortNames: []string{"cj"},
		categories: []string{"all"},
		namespaced: true,
		strategy:   &borrowed{common, cronjob.Strategy},
		subresources: map[string]*resource.Subresource{
			"status": statusSubresource(&borrowed{common.of("status"), cronjob.StatusStrategy}),
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       fieldpath.NewExcludeFilterSetMap(cronjob.Strategy.GetResetFields()),
			"status": fieldpath.NewExcludeFilterSetMap(cronjob.StatusStrategy.GetResetFields()),
		},
		columns: newColumns(func(c *batchv1.CronJob) []any {
			last, zone, suspend := "<none>", "<none>", "<unset>"
			if c.Status.LastScheduleTime != nil {
				last = age(*c.Status.LastScheduleTime)
			}
			if c.Spec.TimeZone != nil {
				zone = *c.Spec.TimeZone
			}
			if c.Spec.Suspend != nil {
				suspend = map[bool]string{true: "True", false: "False"}[*c.Spec.Suspend]
			}
			names, images := containers(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
			return []any{
				c.Name, c.Spec.Schedule, zone, suspend, int64(len(c.Status.Active)), last, age(c.CreationTimestamp),
				names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
			}
		},
			nameColumn(),
			column("Schedule", "string", batchv1.CronJobSpec{}.SwaggerDoc()["schedule"]),
			column("Timezone", "string", batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"]),
			column("Suspend", "boolean", batchv1.CronJobSpec{}.SwaggerDoc()["suspend"]),
			column("Active", "integer", batchv1.CronJobStatus{}.SwaggerDoc()["active"]),
			column("Last Schedule", "string", batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"]),
			ageColumn(),
			containersColumn(),
			imagesColumn(),
			wide("Selector", "string", batchv1.JobSpec{}.SwaggerDoc()["selector"]),
		),
	})
}

func (b *builder) job() *resource.Kind {
	gv := batchv1.SchemeGroupVersion
	common := base{
		scheme: b.scheme, gv: gv, namespaced: true,
		features: []featuregate.Feature{features.WorkloadWithJob},
		collect:  rest.OrphanDependents, // as batch/v1 always did
	}
	return b.kind(definition{
		gvk:        gv.WithKind("Job"),
		object:     &batchv1.Job{},
		plural:     "jobs",
		singular:   "job",
		categories: []string{"all"},
		namespaced: true,
		strategy: &own[*batch.Job]{
			base:           common,
			prepareCreate:  prepareJob,
			prepareUpdate:  prepareJobUpdate,
			validate:       validateJob,
			validateUpdate: validateJobUpdate,
			warnCreate:     warnJob,
			warnUpdate:     warnJobUpdate,
			// Defaulting labels a Job as its Pods are; it ran before those got the generated labels.
			canonicalize: func(job *batch.Job) {
				if len(job.Labels) == 0 {
					job.Labels = maps.Clone(job.Spec.Template.Labels)
				}
			},
		},
		subresources: map[string]*resource.Subresource{
			"status": statusSubresource(&own[*batch.Job]{
				base:           common.of("status"),
				prepareUpdate:  func(job, old *batch.Job) { job.Spec = old.Spec },
				validateUpdate: validateJobStatus,
			}),
		},
		resets: map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"":       resets(gv, at("status")),
			"status": resets(gv, at("spec")),
		},
		fields: []string{"status.successful"},
		values: selectable(func(job *struct {
			Status struct {
				Succeeded int `json:"succeeded"`
			} `json:"status"`
		}) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(job.Status.Succeeded)}
		}),
		columns: newColumns(jobCells,
			nameColumn(),
			column("Status", "string", "Status of the job."),
			column("Completions", "string", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
			column("Duration", "string", "Time required to complete the job."),
			ageColumn(),
			containersColumn(),
			imagesColumn(),
			wide("Selector", "string", batchv1.JobSpec{}.SwaggerDoc()["selector"]),
		),
	})
}

func jobCells(j *batchv1.Job) []any {
	completions := fmt.Sprintf("%d/1", j.Status.Succeeded)
	switch {
	case j.Spec.Completions != nil:
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case j.Spec.Parallelism != nil && *j.Spec.Parallelism > 1:
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	}
	took := ""
	if start := j.Status.StartTime; start != nil {
		took = duration.HumanDuration(time.Since(start.Time))
		if end := j.Status.CompletionTime; end != nil {
			took = duration.HumanDuration(end.Sub(start.Time))
		}
	}
	is := func(t batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == t {
				return c.Status == "True"
			}
		}
		return false
	}
	status := "Running"
	switch {
	case is(batchv1.JobComplete):
		status = "Complete"
	case is(batchv1.JobFailed):
		status = "Failed"
	case j.DeletionTimestamp != nil:
		status = "Terminating"
	case is(batchv1.JobSuspended):
		status = "Suspended"
	case is(batchv1.JobFailureTarget):
		status = "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		status = "SuccessCriteriaMet"
	}
	names, images := containers(j.Spec.Template.Spec.Containers)
	return []any{j.Name, status, completions, took, age(j.CreationTimestamp), names, images, metav1.FormatLabelSelector(j.Spec.Selector)}
}
