package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
)

// memberName is the name of a member's Pod.
func memberName(cluster string, ordinal int) string { return cluster + "-" + strconv.Itoa(ordinal) }

// ordinalOf tells whether name is a member's name of the cluster, and which. Ordinals are written the one way
// in which memberName writes them: demo-01 and demo-+1 are nobody's names.
func ordinalOf(cluster, name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, cluster+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == digits
}

// Watches are the other kinds that concern Clusters.
func (op *Operator) Watches() []controller.Watch {
	return []controller.Watch{
		{Kind: podKind, Map: clusterOfPod},
		{Kind: backupKind, Map: clustersOfBackup},
	}
}

// clusterOfPod goes by name, so that strangers with a member's name are noticed too.
func clusterOfPod(_ controller.Reader, pod controller.Object) []controller.Key {
	i := strings.LastIndexByte(pod.GetName(), '-')
	if i <= 0 {
		return nil
	}
	cluster := pod.GetName()[:i]
	if _, ok := ordinalOf(cluster, pod.GetName()); !ok {
		return nil
	}
	return []controller.Key{{Namespace: pod.GetNamespace(), Name: cluster}}
}

func clustersOfBackup(r controller.Reader, backup controller.Object) []controller.Key {
	var keys []controller.Key
	for obj := range r.List(clusterKind, controller.Query{Namespace: backup.GetNamespace()}) {
		if c, ok := obj.(*v1alpha1.Cluster); ok && c.Spec.RestoreFrom == backup.GetName() && !c.Status.Restored {
			keys = append(keys, controller.Key{Namespace: c.Namespace, Name: c.Name})
		}
	}
	return keys
}

// byOrdinal sorts members: demo-2 before demo-10.
func byOrdinal(ms []Member) {
	slices.SortFunc(ms, func(a, b Member) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}
