package pod

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corehelper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/utils/ptr"

	"operatord.io/operatord/internal/controller"
)

// As kubelet does: the Lease is the heartbeat, the Node is written when it changes and now and then.
const (
	renewLease   = 10 * time.Second
	leaseSeconds = 40
	reportNode   = 5 * time.Minute
	retryNode    = time.Second
	maxPods      = 4096
)

// keepNode registers this machine and keeps its Node and Lease until ctx ends.
func (op *Operator) keepNode(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := op.reportNode(ctx)
		if err == nil {
			err = op.renewLease(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		// Both only say that the view hasn't got there yet.
		late := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
		if err != nil && !late && !failing {
			op.Log.Error("can't keep the Node up to date; trying again", "node", op.NodeName, "error", err)
		}
		failing = err != nil
		if failing {
			timer.Reset(retryNode)
		} else {
			timer.Reset(renewLease)
		}
	}
}

// reportNode creates the Node, or writes its status if something changed or the last report is old.
func (op *Operator) reportNode(ctx context.Context) error {
	found, err := op.Reader.Get(nodeKind, controller.Key{Name: op.NodeName})
	if apierrors.IsNotFound(err) {
		node := &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: op.NodeName, Labels: nodeLabels(op.NodeName)},
		}
		node.Status = op.nodeStatus(node)
		// If it exists, the view will show it at the next try.
		return op.Writer.Create(ctx, node)
	}
	if err != nil {
		return err
	}
	node, ok := found.(*corev1.Node)
	if !ok {
		return fmt.Errorf("Node %s is a %T", op.NodeName, found)
	}
	next := node.DeepCopy()
	for k, v := range nodeLabels(op.NodeName) {
		metav1.SetMetaDataLabel(&next.ObjectMeta, k, v)
	}
	if !equality.Semantic.DeepEqual(node.Labels, next.Labels) {
		return op.Writer.Update(ctx, next) // the status follows at the next look
	}
	next.Status = op.nodeStatus(node)
	if equality.Semantic.DeepEqual(node.Status, next.Status) {
		return nil
	}
	return op.Writer.Update(ctx, next, "status")
}

// renewLease says that the node is alive.
func (op *Operator) renewLease(ctx context.Context) error {
	now := metav1.NewMicroTime(op.Now().Truncate(time.Microsecond))
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(op.NodeName), LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now,
	}
	key := controller.Key{Namespace: corev1.NamespaceNodeLease, Name: op.NodeName}
	found, err := op.Reader.Get(leaseKind, key)
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Spec:       spec,
		}
		if node, err := op.Reader.Get(nodeKind, controller.Key{Name: op.NodeName}); err == nil {
			lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID()}}
		}
		return op.Writer.Create(ctx, lease)
	}
	if err != nil {
		return err
	}
	lease, ok := found.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("Lease %s is a %T", key, found)
	}
	next := lease.DeepCopy()
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = spec.HolderIdentity, spec.LeaseDurationSeconds, spec.RenewTime
	return op.Writer.Update(ctx, next)
}

func nodeLabels(name string) map[string]string {
	return map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}
}

// nodeStatus is the Node's status as it is now. Heartbeat times move only when the last report is old, so that
// nothing is written while nothing changes.
func (op *Operator) nodeStatus(node *corev1.Node) corev1.NodeStatus {
	s := *node.Status.DeepCopy()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods: *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	var mem unix.Sysinfo_t
	if err := unix.Sysinfo(&mem); err == nil {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(int64(uint64(mem.Totalram)*uint64(mem.Unit)), resource.BinarySI)
	}
	full := false
	var disk unix.Statfs_t
	if err := unix.Statfs(op.Dir, &disk); err == nil {
		capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Blocks)*int64(disk.Bsize), resource.BinarySI)
		full = disk.Bavail < disk.Blocks/20
	}
	// What others have said the machine has beside (kubectl patch node --subresource=status) is theirs.
	for name, q := range node.Status.Capacity {
		if _, known := capacity[name]; !known && corehelper.IsExtendedResourceName(name) {
			capacity[name] = q
		}
	}
	s.Capacity, s.Allocatable = capacity, capacity.DeepCopy()
	s.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: hostIP},
		{Type: corev1.NodeHostName, Address: op.NodeName},
	}
	s.NodeInfo = op.nodeInfo()

	now := seconds(op.Now())
	old := false
	for _, c := range s.Conditions {
		old = old || now.Sub(c.LastHeartbeatTime.Time) >= reportNode
	}
	set := func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		c := corev1.NodeCondition{Type: t, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
		for i := range s.Conditions {
			b := &s.Conditions[i]
			if b.Type != t {
				continue
			}
			if b.Status == status {
				c.LastTransitionTime = b.LastTransitionTime
				if !old && b.Reason == reason {
					c.LastHeartbeatTime = b.LastHeartbeatTime
				}
			}
			*b = c
			return
		}
		s.Conditions = append(s.Conditions, c)
	}
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "operatord evicts nothing for want of memory")
	if full {
		set(corev1.NodeDiskPressure, corev1.ConditionTrue, "KubeletHasDiskPressure", "less than 5 % is free where operatord keeps its data")
	} else {
		set(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "at least 5 % is free where operatord keeps its data")
	}
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "operatord evicts nothing for want of process ids")
	set(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "operatord runs Pods as processes of this machine")
	return s
}

func (op *Operator) nodeInfo() corev1.NodeSystemInfo {
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	image := "Linux"
	for line := range strings.Lines(read("/etc/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			image = strings.Trim(v, `"`)
		}
	}
	return corev1.NodeSystemInfo{
		MachineID:               read("/etc/machine-id"),
		SystemUUID:              read("/etc/machine-id"),
		BootID:                  read("/proc/sys/kernel/random/boot_id"),
		KernelVersion:           read("/proc/sys/kernel/osrelease"),
		OSImage:                 image,
		ContainerRuntimeVersion: "process://" + op.Version,
		KubeletVersion:          "v1.37.2",
		OperatingSystem:         runtime.GOOS,
		Architecture:            runtime.GOARCH,
	}
}

// nodeName makes a Node's name of a machine's: lower case, and only what a name may hold.
func nodeName(host string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, host)
	if name = strings.Trim(name, "-."); name == "" || name == "(none)" {
		return "localhost"
	}
	return name
}
