package builtin

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	jobutil "k8s.io/kubernetes/pkg/api/job"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

func prepareJob(job *batch.Job) {
	if !*job.Spec.ManualSelector {
		selectOwnPods(job)
	}
	job.Status = batch.JobStatus{}
	job.Generation = 1
	if !utilfeature.DefaultFeatureGate.Enabled(features.JobManagedBy) {
		job.Spec.ManagedBy = nil
	}
	jobutil.DropDisabledFields(&job.Spec, nil)
	podutil.DropDisabledTemplateFields(&job.Spec.Template, nil)
}

func prepareJobUpdate(job, old *batch.Job) {
	job.Status = old.Status
	jobutil.DropDisabledFields(&job.Spec, &old.Spec)
	podutil.DropDisabledTemplateFields(&job.Spec.Template, &old.Spec.Template)
	if !equality.Semantic.DeepEqual(job.Spec, old.Spec) {
		job.Generation = old.Generation + 1
	}
}

// selectOwnPods labels the Job's Pods with its name and uid, and selects them by uid. What the user set stays;
// validation refuses it where it contradicts.
func selectOwnPods(job *batch.Job) {
	labels := map[string]string{
		batch.LegacyJobNameLabel:       job.Name,
		batch.JobNameLabel:             job.Name,
		batch.LegacyControllerUidLabel: string(job.UID),
		batch.ControllerUidLabel:       string(job.UID),
	}
	maps.Copy(labels, job.Spec.Template.Labels)
	job.Spec.Template.Labels = labels
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if _, ok := job.Spec.Selector.MatchLabels[batch.ControllerUidLabel]; !ok {
		job.Spec.Selector.MatchLabels = merged(job.Spec.Selector.MatchLabels, map[string]string{batch.ControllerUidLabel: string(job.UID)})
	}
}

func validateJob(job *batch.Job) field.ErrorList {
	return validation.ValidateJobCreate(job, jobOptions(job, nil))
}

func validateJobUpdate(job, old *batch.Job) field.ErrorList {
	return validation.ValidateJobUpdate(job, old, jobOptions(job, old))
}

func jobOptions(job, old *batch.Job) validation.JobValidationOptions {
	var oldTemplate *core.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Spec.Template
	}
	opts := validation.JobValidationOptions{
		PodValidationOptions:  podutil.GetValidationOptionsFromPodTemplate(&job.Spec.Template, oldTemplate),
		RequirePrefixedLabels: true,
	}
	if old == nil {
		return opts
	}
	on := utilfeature.DefaultFeatureGate.Enabled
	opts.AllowInvalidLabelValueInSelector = opts.AllowInvalidLabelValueInSelector || metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	suspended := ptr.Deref(old.Spec.Suspend, false)
	notStarted := old.Status.StartTime == nil
	opts.AllowMutableSchedulingDirectives = suspended && notStarted
	idle := suspended && (notStarted || validation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended)) && old.Status.Active == 0
	if on(features.MutablePodResourcesForSuspendedJobs) {
		opts.AllowMutablePodResources = idle
	}
	if on(features.MutableSchedulingDirectivesForSuspendedJobs) {
		opts.AllowMutableSchedulingDirectives = idle
	}
	_, hadName := old.Spec.Template.Labels[batch.JobNameLabel]
	_, hadUID := old.Spec.Template.Labels[batch.ControllerUidLabel]
	opts.RequirePrefixedLabels = hadName && hadUID
	return opts
}

func warnJob(ctx context.Context, job *batch.Job) []string {
	return append(nameWarnings(job.Name, "Pod names and hostnames"),
		jobutil.WarningsForJobSpec(ctx, field.NewPath("spec"), &job.Spec, nil)...)
}

func warnJobUpdate(ctx context.Context, job, old *batch.Job) []string {
	if job.Generation == old.Generation {
		return nil
	}
	return jobutil.WarningsForJobSpec(ctx, field.NewPath("spec"), &job.Spec, &old.Spec)
}

func validateJobStatus(job, old *batch.Job) field.ErrorList {
	return validation.ValidateJobUpdateStatus(job, old, jobStatusOptions(job, old))
}

// jobStatusOptions hold a new status to a rule only where a field that the rule is about has changed.
func jobStatusOptions(job, old *batch.Job) validation.JobStatusValidationOptions {
	if !utilfeature.DefaultFeatureGate.Enabled(features.JobManagedBy) {
		return validation.JobStatusValidationOptions{}
	}
	condition := func(t batch.JobConditionType) bool {
		return validation.IsConditionTrue(old.Status.Conditions, t) != validation.IsConditionTrue(job.Status.Conditions, t)
	}
	indexed := ptr.Deref(job.Spec.CompletionMode, batch.NonIndexedCompletion) == batch.IndexedCompletion
	finished := validation.IsJobFinished(old) != validation.IsJobFinished(job)
	complete := validation.IsJobComplete(old) != validation.IsJobComplete(job)
	failed := validation.IsJobFailed(old) != validation.IsJobFailed(job)
	completedIndexes := old.Status.CompletedIndexes != job.Status.CompletedIndexes
	failedIndexes := !ptr.Equal(old.Status.FailedIndexes, job.Status.FailedIndexes)
	active := old.Status.Active != job.Status.Active
	start := !ptr.Equal(old.Status.StartTime, job.Status.StartTime)
	completion := !ptr.Equal(old.Status.CompletionTime, job.Status.CompletionTime)
	uncounted := !equality.Semantic.DeepEqual(old.Status.UncountedTerminatedPods, job.Status.UncountedTerminatedPods)
	ready := !ptr.Equal(old.Status.Ready, job.Status.Ready)
	terminating := !ptr.Equal(old.Status.Terminating, job.Status.Terminating)
	suspendedEmpty := ptr.Equal(job.Spec.Suspend, ptr.To(true)) && ptr.Equal(job.Spec.Completions, ptr.To[int32](0))
	resuming := validation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended) && validation.IsConditionFalse(job.Status.Conditions, batch.JobSuspended)
	return validation.JobStatusValidationOptions{
		RejectDecreasingSucceededCounter:             !indexed || !ptr.Equal(job.Spec.Completions, job.Spec.Parallelism),
		RejectDecreasingFailedCounter:                true,
		RejectDisablingTerminalCondition:             true,
		RejectInvalidCompletedIndexes:                completedIndexes,
		RejectInvalidFailedIndexes:                   failedIndexes,
		RejectCompletedIndexesForNonIndexedJob:       completedIndexes,
		RejectFailedIndexesForNoBackoffLimitPerIndex: failedIndexes,
		RejectFailedIndexesOverlappingCompleted:      failedIndexes || completedIndexes,
		RejectFailedJobWithoutFailureTarget:          failed || failedIndexes,
		RejectCompleteJobWithoutSuccessCriteriaMet:   complete || condition(batch.JobSuccessCriteriaMet),
		RejectFinishedJobWithActivePods:              finished || active,
		RejectFinishedJobWithoutStartTime:            (finished || start) && !suspendedEmpty,
		RejectFinishedJobWithUncountedTerminatedPods: finished || uncounted,
		RejectStartTimeUpdateForUnsuspendedJob:       start && !resuming,
		RejectCompletionTimeBeforeStartTime:          start || completion,
		RejectMutatingCompletionTime:                 true,
		RejectNotCompleteJobWithCompletionTime:       complete || completion,
		RejectCompleteJobWithoutCompletionTime:       complete || completion,
		RejectCompleteJobWithFailedCondition:         complete || failed,
		RejectCompleteJobWithFailureTargetCondition:  complete || condition(batch.JobFailureTarget),
		RejectMoreReadyThanActivePods:                ready || active,
		RejectFinishedJobWithTerminatingPods:         finished || terminating,
	}
}
