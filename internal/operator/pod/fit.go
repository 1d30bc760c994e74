package pod

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helper "k8s.io/component-helpers/scheduling/corev1"

	"operatord.io/operatord/internal/controller"
)

// ledger is what the Pods bound to this machine's Node request of it, and which Pods wait because of that. A Pod is
// entered before it is bound, so that two that are looked at together are never given the same room; when there is
// more of it, those that wait get it in their order, whichever of them is looked at first.
type ledger struct {
	mu          sync.Mutex
	filled      bool
	allocatable corev1.ResourceList // of the Node, as it was seen last
	pods        map[controller.Key]entry
	total       corev1.ResourceList
	waiting     map[controller.Key]waiter // none of them fits
}

type entry struct {
	uid      types.UID
	requests corev1.ResourceList
}

// waiter is what a Pod waits for, and where it stands among those that do.
type waiter struct {
	entry
	priority int32
	created  int64
}

// requestsOf is what a Pod requests, itself included: it takes the room of one.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(unrequested(pod), resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// holdsRoom tells whether a Pod takes room on a Node: bound to it, and not over.
func holdsRoom(pod *corev1.Pod, node string) bool {
	return pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// fill enters the Pods that are bound already, once.
func (l *ledger) fill(r controller.Reader, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filled {
		return
	}
	l.filled = true
	l.pods, l.total, l.waiting = map[controller.Key]entry{}, corev1.ResourceList{}, map[controller.Key]waiter{}
	for obj := range r.List(podKind, controller.Query{}) {
		if pod, ok := obj.(*corev1.Pod); ok && holdsRoom(pod, node) {
			l.enter(keyOf(pod), entry{uid: pod.UID, requests: requestsOf(pod)})
		}
	}
}

// see takes note of what the Node has, and gives the Pods for which there is room by that.
func (l *ledger) see(allocatable corev1.ResourceList) []controller.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	if equality.Semantic.DeepEqual(l.allocatable, allocatable) {
		return nil
	}
	l.allocatable = allocatable
	return l.grant()
}

// take enters a Pod if there is room for it, and says what there isn't enough of if not. One that has room keeps it.
func (l *ledger) take(pod *corev1.Pod) (insufficient []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(pod)
	if l.pods[key].uid == pod.UID {
		return nil
	}
	e := entry{uid: pod.UID, requests: requestsOf(pod)}
	if insufficient = l.lacks(e.requests); len(insufficient) > 0 {
		l.waiting[key] = waiter{entry: e, priority: corev1helper.PodPriority(pod), created: pod.CreationTimestamp.UnixNano()}
		return insufficient
	}
	l.enter(key, e)
	return nil
}

// settle brings what a key requests up to date: pod is nil if nothing of that name takes room. It gives the Pods
// for which there is room now.
func (l *ledger) settle(key controller.Key, pod *corev1.Pod) []controller.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, had := l.pods[key]
	if pod == nil {
		delete(l.waiting, key)
		l.leave(key)
	} else {
		l.enter(key, entry{uid: pod.UID, requests: requestsOf(pod)})
	}
	if !had || pod != nil && !shrinks(before.requests, l.pods[key].requests) {
		return nil
	}
	return l.grant()
}

// grant enters those that wait and fit now, the most important first.
func (l *ledger) grant() []controller.Key {
	keys := slices.SortedFunc(maps.Keys(l.waiting), func(a, b controller.Key) int {
		x, y := l.waiting[a], l.waiting[b]
		return cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(x.created, y.created), cmp.Compare(a.Name, b.Name))
	})
	return slices.DeleteFunc(keys, func(key controller.Key) bool {
		w := l.waiting[key]
		if len(l.lacks(w.requests)) > 0 {
			return true
		}
		l.enter(key, w.entry)
		return false
	})
}

// lacks says what there isn't enough of, in the scheduler's words and order.
func (l *ledger) lacks(requests corev1.ResourceList) (insufficient []string) {
	for name, wanted := range requests {
		if wanted.IsZero() {
			continue
		}
		free := l.allocatable[name].DeepCopy()
		free.Sub(l.total[name])
		if wanted.Cmp(free) <= 0 {
			continue
		}
		if name == corev1.ResourcePods {
			insufficient = append(insufficient, "Too many pods")
		} else {
			insufficient = append(insufficient, "Insufficient "+string(name))
		}
	}
	slices.Sort(insufficient)
	return insufficient
}

func (l *ledger) enter(key controller.Key, e entry) {
	l.leave(key)
	delete(l.waiting, key)
	l.pods[key] = e
	for name, q := range e.requests {
		sum := l.total[name].DeepCopy()
		sum.Add(q)
		l.total[name] = sum
	}
}

func (l *ledger) leave(key controller.Key) {
	for name, q := range l.pods[key].requests {
		sum := l.total[name].DeepCopy()
		sum.Sub(q)
		l.total[name] = sum
	}
	delete(l.pods, key)
}

// shrinks tells whether less of anything is requested than before.
func shrinks(before, after corev1.ResourceList) bool {
	for name, q := range before {
		if q.Cmp(after[name]) > 0 {
			return true
		}
	}
	return false
}

func keyOf(pod *corev1.Pod) controller.Key {
	return controller.Key{Namespace: pod.Namespace, Name: pod.Name}
}
