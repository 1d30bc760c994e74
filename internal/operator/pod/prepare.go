package pod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	podresource "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"operatord.io/operatord/api/v1alpha1"
	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/process"
)

// searchPath is the PATH of a container that sets none.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// prepare makes what a container's next attempt is started with, or says why it can't be started.
func (op *Operator) prepare(pod *corev1.Pod, c *container, address string, can abilities) (process.Spec, *blocked) {
	if !op.isHost(c.spec.Image) {
		return process.Spec{}, &blocked{reason: "ErrImagePull", message: fmt.Sprintf("image %q can't be run: operatord runs the programs of this machine, not images. "+
			"Either set the image to \"host\", or have this name mean the same: serve --host-images '%s,%s'",
			c.spec.Image, strings.Join(op.HostImages, ","), c.spec.Image)}
	}
	id := process.ID{Group: string(pod.UID), Name: c.spec.Name, Attempt: c.nextAttempt()}
	env, err := op.environment(pod, c.spec, address)
	if err != nil {
		return process.Spec{}, &blocked{reason: "CreateContainerConfigError", message: err.Error()}
	}
	who, err := runAs(pod, c.spec)
	if err != nil {
		return process.Spec{}, &blocked{reason: "CreateContainerConfigError", message: err.Error()}
	}
	expand := expansion.MappingFuncFor(env.values)
	var args []string
	for _, a := range slices.Concat(c.spec.Command, c.spec.Args) {
		args = append(args, expansion.Expand(a, expand))
	}
	if len(args) == 0 {
		return process.Spec{}, &blocked{reason: "CreateContainerError", message: "there is no command: this machine has no default one, so the container has to name it"}
	}
	spec := process.Spec{
		ID:       id,
		Owner:    pod.Namespace + "/" + pod.Name,
		Revision: pod.ResourceVersion,
		Args:     args,
		Command:  slices.Concat(c.spec.Command, c.spec.Args)[0],
		Env:      env.list(),
		Secrets:  slices.Sorted(maps.Keys(env.secrets)),
		Dir:      c.spec.WorkingDir,
		User:     who,
	}
	if can.memory {
		spec.Limits.MemoryBytes = c.spec.Resources.Limits.Memory().Value()
	}
	if can.cpu {
		spec.Limits.CPUMillis = c.spec.Resources.Limits.Cpu().MilliValue()
	}
	if why := op.whyRefused(id); why != "" {
		return spec, &blocked{reason: "CreateContainerError", message: why, retry: true}
	}
	return spec, nil
}

// environment is a set of variables that keeps the order in which they were set, and which of them hold a value of a
// Secret, be it as part of another.
type environment struct {
	names   []string
	values  map[string]string
	secrets map[string]bool
}

func (e *environment) set(name, value string, secret bool) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
	if delete(e.secrets, name); secret {
		e.secrets[name] = true
	}
}

// expand puts variables that are set by now into a value, and tells whether one of them is secret.
func (e *environment) expand(value string) (expanded string, secret bool) {
	mapped := expansion.MappingFuncFor(e.values)
	expanded = expansion.Expand(value, func(name string) string {
		secret = secret || e.secrets[name]
		return mapped(name)
	})
	return expanded, secret
}

func (e *environment) list() []string {
	list := make([]string, len(e.names))
	for i, n := range e.names {
		list[i] = n + "=" + e.values[n]
	}
	return list
}

// environment is what a container sees: some of ours, then envFrom, then env, later ones winning.
func (op *Operator) environment(pod *corev1.Pod, c *corev1.Container, address string) (*environment, error) {
	e := &environment{values: map[string]string{}, secrets: map[string]bool{}}
	e.set("PATH", searchPath, false)
	e.set("HOSTNAME", pod.Name, false)
	e.set("POD_NAME", pod.Name, false)
	e.set("POD_NAMESPACE", pod.Namespace, false)
	e.set("POD_IP", address, false)
	e.set("OPERATORD_LABELS", op.labels.path(pod.UID), false)
	if data := pod.Annotations[v1alpha1.DataAnnotation]; data != "" {
		e.set("OPERATORD_DATA", data, false)
	}
	for _, from := range c.EnvFrom {
		if err := op.envFrom(pod, from, e); err != nil {
			return nil, err
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			// Refers to what was set before it, as in Kubernetes.
			value, secret := e.expand(v.Value)
			e.set(v.Name, value, secret)
			continue
		}
		value, ok, err := op.valueFrom(pod, c, v.ValueFrom, address)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		if ok {
			e.set(v.Name, value, v.ValueFrom.SecretKeyRef != nil)
		}
	}
	return e, nil
}

func (op *Operator) envFrom(pod *corev1.Pod, from corev1.EnvFromSource, e *environment) error {
	var data map[string]string
	var err error
	var optional *bool
	switch {
	case from.ConfigMapRef != nil:
		data, err = op.configMap(pod.Namespace, from.ConfigMapRef.Name)
		optional = from.ConfigMapRef.Optional
	case from.SecretRef != nil:
		data, err = op.secret(pod.Namespace, from.SecretRef.Name)
		optional = from.SecretRef.Optional
	default:
		return nil
	}
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("envFrom: %w", err)
	}
	names := make([]string, 0, len(data))
	for name := range data {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		e.set(from.Prefix+name, data[name], from.SecretRef != nil)
	}
	return nil
}

// valueFrom finds one variable's value. ok is false where an optional one isn't there.
func (op *Operator) valueFrom(pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, address string) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = field(pod, from.FieldRef.FieldPath, address)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		named := cmp.Or(from.ResourceFieldRef.ContainerName, c.Name)
		// What isn't limited may take all that the machine has.
		value, err = podresource.ExtractResourceValueByContainerNameAndNodeAllocatable(from.ResourceFieldRef, pod, named, op.node().Status.Allocatable)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		data, err := op.configMap(pod.Namespace, r.Name)
		return key(data, err, "ConfigMap", r.Name, r.Key, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		data, err := op.secret(pod.Namespace, r.Name)
		return key(data, err, "Secret", r.Name, r.Key, r.Optional)
	}
	return "", false, errors.New("this source of a value isn't supported on this machine")
}

func key(data map[string]string, err error, kind, name, key string, optional *bool) (string, bool, error) {
	value, ok := data[key]
	switch {
	case err == nil && ok:
		return value, true, nil
	case optional != nil && *optional && (err == nil || apierrors.IsNotFound(err)):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return "", false, fmt.Errorf("couldn't find key %s in %s %s", key, kind, name)
}

func field(pod *corev1.Pod, path, address string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return address, nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

func (op *Operator) configMap(namespace, name string) (map[string]string, error) {
	obj, err := op.Reader.Get(configMapKind, controller.Key{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	m, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s can't be read", name)
	}
	return m.Data, nil
}

func (op *Operator) secret(namespace, name string) (map[string]string, error) {
	obj, err := op.Reader.Get(secretKind, controller.Key{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("Secret %s can't be read", name)
	}
	data := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return data, nil
}

// refersToConfigMap tells whether a Pod's environment needs a ConfigMap.
func refersToConfigMap(pod *corev1.Pod, name string) bool {
	return refers(pod, func(e corev1.EnvFromSource) bool {
		return e.ConfigMapRef != nil && e.ConfigMapRef.Name == name
	}, func(v *corev1.EnvVarSource) bool {
		return v.ConfigMapKeyRef != nil && v.ConfigMapKeyRef.Name == name
	})
}

// refersToSecret tells whether a Pod's environment needs a Secret.
func refersToSecret(pod *corev1.Pod, name string) bool {
	return refers(pod, func(e corev1.EnvFromSource) bool {
		return e.SecretRef != nil && e.SecretRef.Name == name
	}, func(v *corev1.EnvVarSource) bool {
		return v.SecretKeyRef != nil && v.SecretKeyRef.Name == name
	})
}

func refers(pod *corev1.Pod, from func(corev1.EnvFromSource) bool, value func(*corev1.EnvVarSource) bool) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(c.EnvFrom, from) {
			return true
		}
		if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.ValueFrom != nil && value(v.ValueFrom) }) {
			return true
		}
	}
	return false
}

// runAs is the user of a container; nil: the daemon's own. Group and further groups come from the machine's
// own files where the Pod doesn't say.
func runAs(pod *corev1.Pod, c *corev1.Container) (*process.User, error) {
	var uid, gid *int64
	var nonRoot *bool
	var more []int64
	if s := pod.Spec.SecurityContext; s != nil {
		uid, gid, nonRoot, more = s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot, slices.Clone(s.SupplementalGroups)
		if s.FSGroup != nil {
			more = append(more, *s.FSGroup)
		}
	}
	if s := c.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			uid = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			gid = s.RunAsGroup
		}
		if s.RunAsNonRoot != nil {
			nonRoot = s.RunAsNonRoot
		}
	}
	me := os.Geteuid()
	effective := int64(me)
	if uid != nil {
		effective = *uid
	}
	if nonRoot != nil && *nonRoot && effective == 0 {
		return nil, errors.New("the container has runAsNonRoot and would run as root: set runAsUser")
	}
	if me != 0 {
		if effective != int64(me) || gid != nil && *gid != int64(os.Getegid()) {
			return nil, fmt.Errorf("the container wants user %d, but operatord runs as user %d, which may not change users: run operatord as root, or leave runAsUser and runAsGroup out", effective, me)
		}
		have, err := os.Getgroups()
		if err != nil {
			return nil, fmt.Errorf("the groups of operatord's own user: %w", err)
		}
		for _, g := range more {
			if !slices.Contains(have, int(g)) && g != int64(os.Getegid()) {
				return nil, fmt.Errorf("the container wants group %d, which operatord's own user isn't in: run operatord as root, or leave supplementalGroups and fsGroup out", g)
			}
		}
		return nil, nil
	}
	if uid == nil && gid == nil && len(more) == 0 {
		return nil, nil
	}
	who := &process.User{UID: uint32(effective), GID: uint32(effective)}
	known, err := user.LookupId(strconv.FormatInt(effective, 10))
	if err == nil {
		if n, err := strconv.ParseUint(known.Gid, 10, 32); err == nil {
			who.GID = uint32(n)
		}
		var groups []string
		if !strictGroups(pod) {
			groups, _ = known.GroupIds()
		}
		for _, g := range groups {
			if n, err := strconv.ParseUint(g, 10, 32); err == nil && uint32(n) != who.GID {
				who.Groups = append(who.Groups, uint32(n))
			}
		}
	}
	if gid != nil {
		who.GID = uint32(*gid)
	}
	for _, g := range more {
		who.Groups = append(who.Groups, uint32(g))
	}
	return who, nil
}

// strictGroups tells whether a Pod's processes are to be in no group but those that the Pod names.
func strictGroups(pod *corev1.Pod) bool {
	s := pod.Spec.SecurityContext
	return s != nil && s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict
}
