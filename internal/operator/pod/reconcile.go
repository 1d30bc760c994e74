package pod

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/process"
)

// Reconcile makes this machine match one Pod, and the Pod's status this machine.
func (op *Operator) Reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	found, err := op.Reader.Get(podKind, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	pod, _ := found.(*corev1.Pod)
	if err == nil && pod == nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("%s is a %T, not a Pod", key, found))
	}
	var present types.UID
	if pod != nil {
		present = pod.UID
	}
	// Past Pods of this name first: their processes may hold what the present one needs.
	cleared, err := op.clear(ctx, key, present)
	if err != nil {
		return controller.Result{}, err
	}
	op.ledger.fill(op.Reader, op.NodeName)
	switch {
	case pod == nil:
		return controller.Result{}, op.settle(ctx, key, nil)
	case pod.Spec.NodeName == "":
		return controller.Result{}, op.schedule(ctx, pod)
	case pod.Spec.NodeName != op.NodeName:
		return controller.Result{}, errors.Join(op.settle(ctx, key, nil), op.letGo(ctx, pod))
	}
	return op.sync(ctx, key, pod, cleared)
}

// sync is a reconcile of a Pod that is bound to this machine.
func (op *Operator) sync(ctx context.Context, key controller.Key, pod *corev1.Pod, cleared bool) (controller.Result, error) {
	op.note(key, pod.UID)
	o, err := op.observe(pod, cleared)
	if err != nil {
		return controller.Result{}, err
	}
	if o.unadmitted, err = op.admit(ctx, key, pod, o); err != nil {
		return controller.Result{}, err
	}
	p := decide(pod, o)
	next := pod.DeepCopy()
	next.Status = report(pod, o, p)
	if !equality.Semantic.DeepEqual(pod.Status, next.Status) {
		if err := op.Writer.Update(ctx, next, "status"); err != nil {
			if apierrors.IsNotFound(err) {
				return controller.Result{}, nil // its deletion is on the way here
			}
			return controller.Result{}, err
		}
		op.recordChanges(ctx, pod, next, o)
	}
	if err := op.act(ctx, next, o, p); err != nil {
		return controller.Result{}, err
	}
	op.probes.sync(key, pod.UID, probesOf(next, o, p))
	return controller.Result{RequeueAfter: p.after}, nil
}

// admit gives a Pod that is bound to this machine its room. What there isn't enough of is returned for one that
// was bound past the scheduler: it is turned away, as a kubelet does. What was ever started is never turned away.
func (op *Operator) admit(ctx context.Context, key controller.Key, pod *corev1.Pod, o *observation) ([]string, error) {
	if !holdsRoom(pod, op.NodeName) {
		return nil, op.settle(ctx, key, nil)
	}
	if pod.Status.StartTime == nil && !o.anyRun() && pod.DeletionTimestamp == nil {
		if insufficient, err := op.take(ctx, pod, op.node()); err != nil || len(insufficient) > 0 {
			return insufficient, errors.Join(err, op.settle(ctx, key, nil))
		}
	}
	return nil, op.settle(ctx, key, pod)
}

// act does what was decided.
func (op *Operator) act(ctx context.Context, pod *corev1.Pod, o *observation, p plan) error {
	var failed []error
	for _, id := range p.kill {
		if err := op.Runtime.Kill(ctx, id); err != nil && !errors.Is(err, process.ErrNotFound) {
			var left *process.LeftoverError
			if errors.As(err, &left) {
				op.event(ctx, pod, corev1.EventTypeWarning, "FailedKillPod", err.Error(), id.String())
			}
			failed = append(failed, err)
		}
	}
	for _, s := range p.stop {
		if !op.askOnce(s.id) {
			continue
		}
		why := ""
		if s.unhealthy != "" {
			op.event(ctx, pod, corev1.EventTypeWarning, "Unhealthy", s.unhealthy, s.id.String())
			why = ": " + s.unhealthy + ", and it will be restarted if its policy says so"
		}
		op.event(ctx, pod, corev1.EventTypeNormal, "Killing", "Stopping container "+s.id.Name+why, s.id.String())
		if err := op.Runtime.Signal(ctx, s.id, s.signal); err != nil && !errors.Is(err, process.ErrOver) {
			op.forgetAsked(s.id)
			failed = append(failed, err)
		}
	}
	if len(p.start) > 0 {
		if err := op.writeLabels(pod); err != nil {
			return err
		}
	}
	for _, c := range p.start {
		spec := c.launch
		if err := op.launch(ctx, spec); err != nil {
			op.refuse(spec.ID, err.Error())
			failed = append(failed, err)
			continue
		}
		op.refuse(spec.ID, "")
	}
	for _, id := range p.forget {
		if err := op.Runtime.Remove(ctx, id); err != nil {
			failed = append(failed, err)
		}
	}
	if len(p.start) == 0 && o.anyRun() {
		if err := op.writeLabels(pod); err != nil {
			failed = append(failed, err)
		}
	}
	if p.finish {
		err := op.Writer.Delete(ctx, podKind, controller.Key{Namespace: pod.Namespace, Name: pod.Name}, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// launch starts an attempt. A user of its own must be able to reach its labels and data, which lie below the
// daemon's private directory.
func (op *Operator) launch(ctx context.Context, spec process.Spec) error {
	if spec.User != nil {
		if err := process.Reach(filepath.Dir(op.Dir), *spec.User); err != nil {
			return err
		}
	}
	_, err := op.Runtime.Ensure(ctx, spec)
	return err
}

// clear ends and forgets the processes of Pods that had this name before, and tells whether all are gone.
// present is the uid of the Pod that has it now; empty: none.
func (op *Operator) clear(ctx context.Context, key controller.Key, present types.UID) (bool, error) {
	cleared := true
	for _, uid := range op.past(key, present) {
		processes, err := op.Runtime.Group(string(uid))
		if err != nil {
			return false, err
		}
		gone := true
		for _, p := range processes {
			// Nothing is killed on the word of a view older than the process.
			if err := op.viewNotOlder(ctx, p.Revision); err != nil {
				return false, err
			}
			if !p.Empty {
				gone = false
				if err := op.Runtime.Kill(ctx, p.ID); err != nil && !errors.Is(err, process.ErrNotFound) {
					return false, err
				}
				continue // Changed wakes the key when it is over
			}
			if err := op.Runtime.Remove(ctx, p.ID); err != nil && !errors.Is(err, process.ErrAlive) {
				return false, err
			}
			op.forgetProcess(p.ID)
		}
		if !gone {
			cleared = false
			continue
		}
		op.probes.sync(key, uid, nil)
		if err := op.labels.remove(uid); err != nil {
			return false, err
		}
		op.address.release(uid)
		op.forget(key, uid)
	}
	return cleared, nil
}

// viewNotOlder fails unless the views have reached a revision soon.
func (op *Operator) viewNotOlder(ctx context.Context, revision string) error {
	if revision == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := op.Reader.AtLeast(ctx, revision); err != nil {
		return fmt.Errorf("processes without a Pod are left alone until the Pods of revision %s are known: %w", revision, err)
	}
	return nil
}

// note remembers that a Pod has something on this machine.
func (op *Operator) note(key controller.Key, uid types.UID) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.here[key] == nil {
		op.here[key] = map[types.UID]bool{}
	}
	op.here[key][uid] = true
}

func (op *Operator) past(key controller.Key, present types.UID) []types.UID {
	op.mu.Lock()
	defer op.mu.Unlock()
	var uids []types.UID
	for uid := range op.here[key] {
		if uid != present {
			uids = append(uids, uid)
		}
	}
	return uids
}

func (op *Operator) forget(key controller.Key, uid types.UID) {
	op.mu.Lock()
	defer op.mu.Unlock()
	delete(op.here[key], uid)
	if len(op.here[key]) == 0 {
		delete(op.here, key)
	}
}

// askOnce tells whether a process is to be sent its stop signal: once in a daemon's life, since a second one
// may mean "at once" to it.
func (op *Operator) askOnce(id process.ID) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	if _, ok := op.asked[id]; ok {
		return false
	}
	op.asked[id] = op.Now()
	return true
}

func (op *Operator) whenAsked(id process.ID) time.Time {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.asked[id]
}

func (op *Operator) forgetAsked(id process.ID) {
	op.mu.Lock()
	defer op.mu.Unlock()
	delete(op.asked, id)
}

// refuse remembers why the runtime could not start an attempt; an empty why that it could.
func (op *Operator) refuse(id process.ID, why string) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if why == "" {
		delete(op.refused, id)
	} else {
		op.refused[id] = why
	}
}

func (op *Operator) whyRefused(id process.ID) string {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.refused[id]
}

func (op *Operator) forgetProcess(id process.ID) {
	op.mu.Lock()
	defer op.mu.Unlock()
	delete(op.asked, id)
	delete(op.refused, id)
}
