package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// abilities are which resource limits this machine can set.
type abilities struct{ memory, cpu bool }

// unhonoured names the fields of a Pod that have no effect on this machine, because its processes share the
// machine's file system, network and identity. They don't keep the Pod from running.
func unhonoured(pod *corev1.Pod, can abilities) []string {
	var fields []string
	add := func(set bool, field, why string) {
		if set {
			fields = append(fields, field+": "+why)
		}
	}
	const (
		files   = "processes see the machine's own file system"
		network = "processes use the machine's own network"
		rights  = "processes have the rights of their user on this machine"
		name    = "processes see the machine's own name"
	)
	s := &pod.Spec
	add(len(s.Volumes) > 0 && anyMounts(s), "spec.volumes", files)
	add(len(s.HostAliases) > 0, "spec.hostAliases", network)
	add(s.DNSConfig != nil, "spec.dnsConfig", network)
	add(s.Hostname != "" || s.HostnameOverride != nil, "spec.hostname", name)
	add(s.Subdomain != "", "spec.subdomain", network)
	add(ptr.Deref(s.SetHostnameAsFQDN, false), "spec.setHostnameAsFQDN", name)
	add(ptr.Deref(s.ShareProcessNamespace, false), "spec.shareProcessNamespace", "all processes are in the machine's own namespace")
	add(s.HostUsers != nil && !*s.HostUsers, "spec.hostUsers", rights)
	add(s.RuntimeClassName != nil, "spec.runtimeClassName", "there is one runtime")
	add(len(s.EphemeralContainers) > 0, "spec.ephemeralContainers", "they are not started; use the machine's own tools")
	add(len(s.ResourceClaims) > 0, "spec.resourceClaims", "there are no devices to claim")
	add(s.Resources != nil && len(s.Resources.Limits) > 0, "spec.resources", "limits are per container here")
	add(len(s.TopologySpreadConstraints) > 0, "spec.topologySpreadConstraints", "there is one node")
	if a := s.Affinity; a != nil {
		add(a.PodAffinity != nil, "spec.affinity.podAffinity", "there is one node")
		add(a.PodAntiAffinity != nil, "spec.affinity.podAntiAffinity", "there is one node")
	}
	if c := s.SecurityContext; c != nil {
		add(len(c.Sysctls) > 0, "spec.securityContext.sysctls", network)
		add(c.SELinuxOptions != nil, "spec.securityContext.seLinuxOptions", rights)
		add(c.SeccompProfile != nil && c.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined, "spec.securityContext.seccompProfile", rights)
		add(c.AppArmorProfile != nil && c.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined, "spec.securityContext.appArmorProfile", rights)
	}
	each := func(list string, cs []corev1.Container) {
		for i := range cs {
			c := &cs[i]
			at := fmt.Sprintf("spec.%s[%d].", list, i)
			add(len(c.VolumeDevices) > 0, at+"volumeDevices", files)
			add(c.Stdin, at+"stdin", "standard input is empty")
			add(c.TTY, at+"tty", "there is no terminal")
			add(len(c.RestartPolicyRules) > 0, at+"restartPolicyRules", "restartPolicy alone decides")
			add(hasHostPort(c), at+"ports.hostPort", "a process listens where it wants to")
			add(!can.memory && !c.Resources.Limits.Memory().IsZero(), at+"resources.limits.memory", "the cgroup controller isn't available to operatord")
			add(!can.cpu && !c.Resources.Limits.Cpu().IsZero(), at+"resources.limits.cpu", "the cgroup controller isn't available to operatord")
			if l := c.Lifecycle; l != nil {
				add(l.PostStart != nil, at+"lifecycle.postStart", "hooks are not run")
				add(l.PreStop != nil, at+"lifecycle.preStop", "hooks are not run; the stop signal comes at once")
			}
			for kind, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
				add(probe != nil && !canProbe(probe), at+kind, "this sort of probe isn't known here, so it never succeeds")
			}
			if sc := c.SecurityContext; sc != nil {
				add(ptr.Deref(sc.Privileged, false), at+"securityContext.privileged", rights)
				add(ptr.Deref(sc.ReadOnlyRootFilesystem, false), at+"securityContext.readOnlyRootFilesystem", files)
				add(sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation, at+"securityContext.allowPrivilegeEscalation", rights)
				add(sc.Capabilities != nil, at+"securityContext.capabilities", rights)
				add(sc.SELinuxOptions != nil, at+"securityContext.seLinuxOptions", rights)
				add(sc.SeccompProfile != nil && sc.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined, at+"securityContext.seccompProfile", rights)
				add(sc.AppArmorProfile != nil && sc.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined, at+"securityContext.appArmorProfile", rights)
			}
		}
	}
	each("initContainers", s.InitContainers)
	each("containers", s.Containers)
	return fields
}

func anyMounts(s *corev1.PodSpec) bool {
	for _, cs := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range cs {
			if len(cs[i].VolumeMounts) > 0 {
				return true
			}
		}
	}
	return false
}

func hasHostPort(c *corev1.Container) bool {
	for _, p := range c.Ports {
		if p.HostPort != 0 && p.HostPort != p.ContainerPort {
			return true
		}
	}
	return false
}
