package pod

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"operatord.io/operatord/internal/process"
)

// role is what a container is for.
type role int

const (
	roleInit    role = iota // runs to its end before the next is started
	roleSidecar             // an init container that goes on running
	roleMain
)

// container is one container of a Pod as it is now.
type container struct {
	spec   *corev1.Container
	role   role
	policy corev1.RestartPolicy
	rerun  bool                    // an init container that may run again after it has succeeded
	runs   []process.Process       // attempts of which there are records, oldest first
	stored *corev1.ContainerStatus // what the Pod's status says; nil: nothing

	lastWords map[int]string // of attempts that have failed, if they are to be told in the status

	launch  process.Spec // how the next attempt is started, unless it is blocked
	blocked *blocked
	probed  probed    // about the present attempt
	asked   time.Time // when this daemon sent its present attempt the stop signal; zero: it has not
}

// blocked says why a container can't be started now, as the state waiting.
type blocked struct {
	reason, message string
	retry           bool // nothing tells when the cause is gone: it has to be tried
}

// probed is what a container's probes say.
type probed struct {
	ready, started bool
	unready        string // what its readiness probe says; empty: nothing yet, or it is ready
	unhealthy      string // why its liveness (or startup) probe has given it up; empty: it hasn't
}

// last is the present or latest attempt; nil: never run, as far as is known.
func (c *container) last() *process.Process {
	if len(c.runs) == 0 {
		return nil
	}
	return &c.runs[len(c.runs)-1]
}

func (c *container) running() bool {
	last := c.last()
	return last != nil && last.State == process.Running
}

// nextAttempt is the number of the attempt after the last one, of which the records may be gone.
func (c *container) nextAttempt() int {
	next := 0
	if last := c.last(); last != nil {
		next = last.Attempt + 1
	}
	if s := c.stored; s != nil && s.ContainerID != "" {
		next = max(next, int(s.RestartCount)+1)
	}
	if last := c.last(); last != nil && last.State == process.Created {
		return last.Attempt
	}
	return next
}

// observation is the world as a reconcile sees it.
type observation struct {
	now        time.Time
	address    string
	hostIP     string
	containers []*container // init containers first, in order
	waiting    string       // why nothing is started at all; empty: nothing stands in the way
	unadmitted []string     // what the machine has not enough of for the Pod
	judgement  judgement    // what of the Pod can't be obeyed here
}

func (o *observation) of(role role) []*container {
	var found []*container
	for _, c := range o.containers {
		if c.role == role || role == roleInit && c.role == roleSidecar {
			found = append(found, c)
		}
	}
	return found
}

// anyRun tells whether anything of the Pod has ever been started here.
func (o *observation) anyRun() bool {
	for _, c := range o.containers {
		if len(c.runs) > 0 {
			return true
		}
	}
	return false
}

// empty tells whether no process of the Pod is left.
func (o *observation) empty() bool {
	for _, c := range o.containers {
		for _, p := range c.runs {
			if !p.Empty && p.State != process.Created {
				return false
			}
		}
	}
	return true
}

// observe reads everything that a Pod's reconcile depends on. Nothing is changed but the address book.
func (op *Operator) observe(pod *corev1.Pod, cleared bool) (*observation, error) {
	processes, err := op.Runtime.Group(string(pod.UID))
	if err != nil {
		return nil, err
	}
	ip, err := op.address.of(op.Reader, pod)
	if err != nil {
		return nil, err
	}
	can := abilitiesOf(op.Runtime)
	o := &observation{now: op.Now(), address: ip.String(), hostIP: hostIP, judgement: judge(pod, can, op.JudgedSince)}
	if !cleared {
		o.waiting = "processes of an earlier Pod of this name have not ended yet"
	}
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		c := &container{spec: spec, role: roleInit, policy: pod.Spec.RestartPolicy}
		if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			c.role, c.policy = roleSidecar, corev1.RestartPolicyAlways
		} else if c.policy == corev1.RestartPolicyAlways {
			c.policy, c.rerun = corev1.RestartPolicyOnFailure, true
		}
		c.stored = statusOf(pod.Status.InitContainerStatuses, spec.Name)
		o.containers = append(o.containers, c)
	}
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		c := &container{spec: spec, role: roleMain, policy: pod.Spec.RestartPolicy}
		if spec.RestartPolicy != nil {
			c.policy = corev1.RestartPolicy(*spec.RestartPolicy)
		}
		c.stored = statusOf(pod.Status.ContainerStatuses, spec.Name)
		o.containers = append(o.containers, c)
	}
	for _, c := range o.containers {
		for _, p := range processes {
			if p.Name == c.spec.Name {
				c.runs = append(c.runs, p)
			}
		}
		if c.launch, c.blocked = op.prepare(pod, c, o.address, can); o.judgement.refused != "" {
			c.blocked = &blocked{reason: notHonoured, message: o.judgement.refused}
		}
		if err := op.listen(c); err != nil {
			return nil, err
		}
		if last := c.last(); last != nil {
			if last.State == process.Created && last.Error != "" && c.blocked == nil {
				c.blocked = &blocked{reason: "CreateContainerError", message: last.Error, retry: true}
			}
			c.probed = op.probes.of(*last, c)
			c.asked = op.whenAsked(last.ID)
		}
	}
	return o, nil
}

// What kubelet tells of a log: k8s.io/kubernetes/pkg/kubelet/container.
const (
	lastWordsLines = 80
	lastWordsBytes = 2048
)

// listen takes in what a container's failed attempts have said last, if its policy is that the status tells it.
func (op *Operator) listen(c *container) error {
	if c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return nil
	}
	for _, run := range c.runs[max(0, len(c.runs)-2):] {
		if !run.Over() || !run.Empty || run.ExitCode == 0 {
			continue
		}
		words, err := op.Runtime.Tail(run.ID, lastWordsLines, lastWordsBytes)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", run.ID, err)
		}
		if c.lastWords == nil {
			c.lastWords = map[int]string{}
		}
		c.lastWords[run.Attempt] = strings.ToValidUTF8(words, "\uFFFD")
	}
	return nil
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// containerID tells which process a container is.
func containerID(p *process.Process) string {
	if p == nil || p.PID == 0 {
		return ""
	}
	return "process://" + strconv.Itoa(p.PID) + "/" + strconv.FormatUint(p.StartTime, 10) + "/" + p.BootID
}
