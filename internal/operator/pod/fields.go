package pod

import (
	corev1 "k8s.io/api/core/v1"
)

// How a field of a Pod is treated. The zero rule is obeyed.
type rule struct {
	why    string                         // how a process would differ from what the field says; empty: it is obeyed
	help   string                         // what would help
	when   func(any, *abilities) bool     // for which values that is so; nil: for all that are set
	parts  func(any, *abilities) []string // which keys of a map are meant; nil: all of the field
	inert  bool                           // it changes nothing for a process, and neither does what is in it
	beside bool                           // what it asks for is left out, and the rest of the Pod runs
}

var (
	obeyed = rule{}
	inert  = rule{inert: true}
)

// refused are fields that can't be obeyed.
func refused(why, help string) rule { return rule{why: why, help: help} }

// refusedIf are fields that can't be obeyed with some values. A pointer's value is what it points to.
func refusedIf[T any](when func(T) bool, why, help string) rule {
	return rule{why: why, help: help, when: func(v any, _ *abilities) bool { return when(v.(T)) }}
}

// unless are values that change nothing; any other can't be obeyed.
func unless[T comparable](harmless ...T) func(T) bool {
	return func(v T) bool {
		for _, h := range harmless {
			if v == h {
				return false
			}
		}
		return true
	}
}

func isTrue(v bool) bool  { return v }
func isFalse(v bool) bool { return !v }

// What several fields have in common.
const (
	files   = "processes see the machine's own file system"
	network = "processes use the machine's own network"
	rights  = "processes have the rights of their user on this machine"
	names   = "processes see the machine's own name"

	helpFiles   = "have the program use paths of this machine, and data in $OPERATORD_DATA"
	helpNetwork = "leave it out and set the machine's own network up"
	helpRights  = "set runAsUser to a user with fewer rights"
	helpNames   = "leave it out; $HOSTNAME is the Pod's name"
	helpLeave   = "leave it out"
)

// fields is the contract between a Pod and its processes: every field that a PodSpec can have, as TYPE.JSON-NAME,
// and what becomes of it. A field of which nothing is said here is refused, so that one that a later version of
// Kubernetes brings is never silently ignored. A field that is refused or inert stands for all that is in it; what is
// in the others has rules of its own. docs/processes.md has the table for people.
var fields = map[string]rule{
	"PodSpec.containers":                    obeyed,
	"PodSpec.initContainers":                obeyed,
	"PodSpec.restartPolicy":                 obeyed,
	"PodSpec.terminationGracePeriodSeconds": obeyed,
	"PodSpec.activeDeadlineSeconds":         obeyed,
	"PodSpec.nodeName":                      obeyed,
	"PodSpec.nodeSelector":                  obeyed,
	"PodSpec.affinity":                      obeyed,
	"PodSpec.tolerations":                   obeyed,
	"PodSpec.schedulerName":                 obeyed,
	"PodSpec.schedulingGates":               obeyed,
	"PodSpec.readinessGates":                obeyed,
	"PodSpec.securityContext":               obeyed,
	"PodSpec.resources": refusedIf(func(r corev1.ResourceRequirements) bool { return len(r.Limits)+len(r.Claims) > 0 },
		"limits are set for each container alone", "set them in the containers"),
	"PodSpec.overhead":                  obeyed, // by the scheduler
	"PodSpec.topologySpreadConstraints": obeyed,
	"PodSpec.hostNetwork":               obeyed, // as every process here
	"PodSpec.hostPID":                   obeyed, // likewise
	"PodSpec.hostIPC":                   obeyed, // likewise
	"PodSpec.preemptionPolicy":          inert,  // nothing is preempted: a Pod without room waits and says so
	"PodSpec.enableServiceLinks":        inert,  // there are no services to link
	"PodSpec.imagePullSecrets":          inert,  // nothing is pulled
	"PodSpec.serviceAccount":            inert,  // as serviceAccountName, of which it is the old name
	"PodSpec.volumes": {why: files, help: helpFiles, when: func(v any, can *abilities) bool {
		return can.mounts // one that nothing mounts changes nothing, in Kubernetes neither
	}},
	"PodSpec.ephemeralContainers": {why: "they are not started", help: "use the machine's own tools", beside: true},
	"PodSpec.dnsPolicy":           refusedIf(unless(corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault), network, helpNetwork),
	"PodSpec.dnsConfig":           refusedIf(func(c corev1.PodDNSConfig) bool { return len(c.Nameservers)+len(c.Searches)+len(c.Options) > 0 }, network, helpNetwork),
	"PodSpec.hostAliases":         refused(network, "leave them out, and add them to the machine's /etc/hosts"),
	"PodSpec.hostname":            refused(names, helpNames),
	"PodSpec.hostnameOverride":    refused(names, helpNames),
	"PodSpec.subdomain":           refused(network, helpNetwork),
	"PodSpec.setHostnameAsFQDN":   refusedIf(isTrue, names, helpNames),
	"PodSpec.serviceAccountName": {why: "no token of it is given to the process", help: "set automountServiceAccountToken to false and give the program a kubeconfig",
		when: func(v any, can *abilities) bool { return v.(string) != "default" && !can.tokenless }},
	"PodSpec.automountServiceAccountToken": refusedIf(isTrue, "no token is given to the process", "leave it out and give the program a kubeconfig"),
	"PodSpec.shareProcessNamespace":        refusedIf(isTrue, "all processes are in the machine's own namespace", helpLeave),
	"PodSpec.priority":                     obeyed, // among Pods that wait for room
	"PodSpec.priorityClassName":            refusedIf(unless("system-cluster-critical", "system-node-critical"), "there are no classes of priority but Kubernetes' own two", "set priority instead"),
	"PodSpec.runtimeClassName":             refused("there is one runtime", helpLeave),
	"PodSpec.os":                           refusedIf(unless(corev1.PodOS{Name: corev1.Linux}), "this machine runs Linux", "run it on a machine with that system"),
	"PodSpec.hostUsers":                    refusedIf(isFalse, rights, helpRights),
	"PodSpec.resourceClaims":               refused("there are no devices to claim", helpLeave),
	"PodSpec.schedulingGroup":              refused("Pods are started one by one", helpLeave),
	"PodSpec.evictionResponders":           refused("no eviction asks them", helpLeave),

	"Affinity.nodeAffinity":    obeyed,
	"Affinity.podAffinity":     obeyed,
	"Affinity.podAntiAffinity": obeyed,
	"NodeAffinity.requiredDuringSchedulingIgnoredDuringExecution":     obeyed,
	"NodeAffinity.preferredDuringSchedulingIgnoredDuringExecution":    inert, // there is one node to prefer
	"PodAffinity.requiredDuringSchedulingIgnoredDuringExecution":      refused("where other Pods run isn't looked at: there is one node", "prefer it instead of requiring it"),
	"PodAffinity.preferredDuringSchedulingIgnoredDuringExecution":     inert, // likewise
	"PodAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution":  refused("there is one node, so Pods can't be kept apart", "prefer it instead of requiring it"),
	"PodAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": inert, // likewise
	"NodeSelector.nodeSelectorTerms":                                  obeyed,
	"NodeSelectorTerm.matchExpressions":                               obeyed,
	"NodeSelectorTerm.matchFields":                                    obeyed,
	"NodeSelectorRequirement.key":                                     obeyed,
	"NodeSelectorRequirement.operator":                                obeyed,
	"NodeSelectorRequirement.values":                                  obeyed,
	"Toleration.key":                                                  obeyed,
	"Toleration.operator":                                             obeyed,
	"Toleration.value":                                                obeyed,
	"Toleration.effect":                                               obeyed,
	"Toleration.tolerationSeconds":                                    inert, // nothing is evicted
	"PodSchedulingGate.name":                                          obeyed,
	"PodReadinessGate.conditionType":                                  obeyed,
	"TopologySpreadConstraint.maxSkew":                                obeyed, // one domain is always even
	"TopologySpreadConstraint.topologyKey":                            refusedIf(unless(corev1.LabelHostname), "there is one node", "use kubernetes.io/hostname, or leave the constraint out"),
	"TopologySpreadConstraint.whenUnsatisfiable":                      obeyed,
	"TopologySpreadConstraint.labelSelector":                          inert,
	"TopologySpreadConstraint.minDomains":                             refusedIf(unless[int32](1), "there is one node", helpLeave),
	"TopologySpreadConstraint.nodeAffinityPolicy":                     inert,
	"TopologySpreadConstraint.nodeTaintsPolicy":                       inert,
	"TopologySpreadConstraint.matchLabelKeys":                         inert,

	"PodSecurityContext.runAsUser":                obeyed,
	"PodSecurityContext.runAsGroup":               obeyed,
	"PodSecurityContext.runAsNonRoot":             obeyed,
	"PodSecurityContext.supplementalGroups":       obeyed,
	"PodSecurityContext.supplementalGroupsPolicy": obeyed,
	"PodSecurityContext.fsGroup":                  obeyed, // as a group of the process; there are no volumes to own
	"PodSecurityContext.fsGroupChangePolicy":      inert,
	"PodSecurityContext.seLinuxChangePolicy":      inert,
	"PodSecurityContext.seLinuxOptions":           refusedIf(unless(corev1.SELinuxOptions{}), rights, helpRights),
	"PodSecurityContext.windowsOptions":           refused("this machine runs Linux", helpLeave),
	"PodSecurityContext.sysctls":                  refused("processes share the machine's kernel parameters", "leave them out and set them on the machine"),
	"PodSecurityContext.seccompProfile":           refusedIf(confined, "system calls are not filtered", helpRights),
	"PodSecurityContext.appArmorProfile":          refusedIf(armoured, rights, helpRights),

	"Container.name":                     obeyed,
	"Container.image":                    obeyed,
	"Container.command":                  obeyed,
	"Container.args":                     obeyed,
	"Container.workingDir":               obeyed,
	"Container.ports":                    obeyed,
	"Container.envFrom":                  obeyed,
	"Container.env":                      obeyed,
	"Container.resources":                obeyed,
	"Container.resizePolicy":             inert, // nothing is resized while it runs
	"Container.restartPolicy":            obeyed,
	"Container.restartPolicyRules":       refused("restartPolicy alone decides", helpLeave),
	"Container.volumeMounts":             refused(files, helpFiles),
	"Container.volumeDevices":            refused(files, helpFiles),
	"Container.livenessProbe":            obeyed,
	"Container.readinessProbe":           obeyed,
	"Container.startupProbe":             obeyed,
	"Container.lifecycle":                obeyed,
	"Container.terminationMessagePath":   refusedIf(unless("", corev1.TerminationMessagePathDefault), "no file of a process's own is read for its last message", "leave it out, and set terminationMessagePolicy to FallbackToLogsOnError"),
	"Container.terminationMessagePolicy": obeyed,
	"Container.imagePullPolicy":          inert, // nothing is pulled
	"Container.securityContext":          obeyed,
	"Container.stdin":                    refused("standard input is empty", helpLeave),
	"Container.stdinOnce":                inert, // says something of stdin only
	"Container.tty":                      refused("there is no terminal", helpLeave),

	"ContainerPort.name":          obeyed,
	"ContainerPort.containerPort": obeyed,
	"ContainerPort.protocol":      obeyed,
	"ContainerPort.hostPort": {why: "a process listens where it binds to", help: "leave it out, and have the program listen there",
		when: func(_ any, can *abilities) bool { return !can.hostNetwork }},
	"ContainerPort.hostIP": refused("a process listens where it binds to", "leave it out, and have the program listen there"),

	"EnvFromSource.prefix":           obeyed,
	"EnvFromSource.configMapRef":     obeyed,
	"EnvFromSource.secretRef":        obeyed,
	"ConfigMapEnvSource.optional":    obeyed,
	"SecretEnvSource.optional":       obeyed,
	"LocalObjectReference.name":      obeyed,
	"EnvVar.name":                    obeyed,
	"EnvVar.value":                   obeyed,
	"EnvVar.valueFrom":               obeyed,
	"EnvVarSource.fieldRef":          obeyed,
	"EnvVarSource.resourceFieldRef":  obeyed,
	"EnvVarSource.configMapKeyRef":   obeyed,
	"EnvVarSource.secretKeyRef":      obeyed,
	"EnvVarSource.fileKeyRef":        refused(files, "use a ConfigMap or a Secret"),
	"ObjectFieldSelector.apiVersion": obeyed,
	"ObjectFieldSelector.fieldPath":  obeyed,
	"ResourceFieldSelector.resource": obeyed,
	"ResourceFieldSelector.divisor":  obeyed,
	"ConfigMapKeySelector.key":       obeyed,
	"ConfigMapKeySelector.optional":  obeyed,
	"SecretKeySelector.key":          obeyed,
	"SecretKeySelector.optional":     obeyed,
	"ResourceRequirements.requests":  obeyed, // by the scheduler
	"ResourceRequirements.claims":    refused("there are no devices to claim", helpLeave),
	"ResourceRequirements.limits": {why: "this limit isn't set here", help: "leave it out, or give operatord the controller: docs/processes.md",
		parts: func(v any, can *abilities) []string { return can.unlimited(v.(corev1.ResourceList)) }},
	"ResourceFieldSelector.containerName": obeyed,

	"Probe.initialDelaySeconds":           obeyed,
	"Probe.timeoutSeconds":                obeyed,
	"Probe.periodSeconds":                 obeyed,
	"Probe.successThreshold":              obeyed,
	"Probe.failureThreshold":              obeyed,
	"Probe.terminationGracePeriodSeconds": obeyed,
	"ProbeHandler.exec":                   obeyed,
	"ProbeHandler.httpGet":                obeyed,
	"ProbeHandler.tcpSocket":              obeyed,
	"ProbeHandler.grpc":                   refused("this sort of probe isn't known here", "use httpGet, tcpSocket or exec"),
	"ExecAction.command":                  obeyed,
	"HTTPGetAction.path":                  obeyed,
	"HTTPGetAction.port":                  obeyed,
	"HTTPGetAction.host":                  obeyed,
	"HTTPGetAction.scheme":                obeyed,
	"HTTPGetAction.httpHeaders":           obeyed,
	"HTTPGetAction.protocol":              refusedIf(unless(corev1.HTTPProtocolHTTP1), "probes speak HTTP/1.1", helpLeave),
	"HTTPHeader.name":                     obeyed,
	"HTTPHeader.value":                    obeyed,
	"TCPSocketAction.port":                obeyed,
	"TCPSocketAction.host":                obeyed,
	"Lifecycle.stopSignal":                obeyed,
	"Lifecycle.postStart":                 refused("hooks are not run", "do it in the program, or in an init container"),
	"Lifecycle.preStop":                   refused("hooks are not run; the stop signal comes at once", "do it in the program when the stop signal comes"),

	"SecurityContext.runAsUser":                obeyed,
	"SecurityContext.runAsGroup":               obeyed,
	"SecurityContext.runAsNonRoot":             obeyed,
	"SecurityContext.allowPrivilegeEscalation": refusedIf(isFalse, rights, helpRights),
	"SecurityContext.capabilities":             refusedIf(func(c corev1.Capabilities) bool { return len(c.Add)+len(c.Drop) > 0 }, rights, helpRights),
	"SecurityContext.privileged":               refusedIf(isTrue, rights, helpLeave),
	"SecurityContext.readOnlyRootFilesystem":   refusedIf(isTrue, files, helpRights),
	"SecurityContext.procMount":                refusedIf(unless(corev1.DefaultProcMount), "processes see the machine's own /proc", helpLeave),
	"SecurityContext.seLinuxOptions":           refusedIf(unless(corev1.SELinuxOptions{}), rights, helpRights),
	"SecurityContext.windowsOptions":           refused("this machine runs Linux", helpLeave),
	"SecurityContext.seccompProfile":           refusedIf(confined, "system calls are not filtered", helpRights),
	"SecurityContext.appArmorProfile":          refusedIf(armoured, rights, helpRights),
}

func confined(p corev1.SeccompProfile) bool { return p.Type != corev1.SeccompProfileTypeUnconfined }

func armoured(p corev1.AppArmorProfile) bool { return p.Type != corev1.AppArmorProfileTypeUnconfined }
