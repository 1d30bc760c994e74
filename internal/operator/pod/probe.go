package pod

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"operatord.io/operatord/internal/process"
)

// checker does single probes, by kubelet's rules.
type checker struct {
	runtime *process.Runtime
	client  *http.Client
}

func newChecker(r *process.Runtime) checker {
	return checker{runtime: r, client: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // as kubelet: it asks about life, not identity
			DisableKeepAlives:  true,
			DisableCompression: true,
		},
		CheckRedirect: httpprobe.RedirectChecker(false),
	}}
}

// toldBytes bounds what is told of what a probe says.
const toldBytes = 1024

// check probes once. why is for people, and holds no secret of the container's.
func (c checker) check(ctx context.Context, id process.ID, spec *corev1.Container, address string, p *corev1.Probe) (ok bool, why string) {
	ok, why = c.probe(ctx, id, spec, address, p)
	if ok || why == "" {
		return ok, ""
	}
	why = strings.TrimSpace(c.runtime.Redact(id, why))
	return false, strings.ToValidUTF8(why[:min(len(why), toldBytes)], "")
}

func (c checker) probe(ctx context.Context, id process.ID, spec *corev1.Container, address string, p *corev1.Probe) (ok bool, why string) {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		req, err := httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, spec, address, "probe")
		if err != nil {
			return false, err.Error()
		}
		result, message, err := httpprobe.DoHTTPProbe(req.WithContext(ctx), c.client)
		if err != nil {
			return false, err.Error()
		}
		return result == probe.Success || result == probe.Warning, message
	case p.TCPSocket != nil:
		port, err := probe.ResolveContainerPort(p.TCPSocket.Port, spec)
		if err != nil {
			return false, err.Error()
		}
		host := p.TCPSocket.Host
		if host == "" {
			host = address
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return false, err.Error()
		}
		_ = conn.Close()
		return true, ""
	case p.Exec != nil:
		out, code, err := c.runtime.Exec(ctx, id, expandStatic(p.Exec.Command, spec.Env))
		switch {
		case err != nil:
			return false, err.Error()
		case code != 0:
			return false, fmt.Sprintf("exit code %d: %s", code, out)
		}
		return true, ""
	}
	return false, "this sort of probe isn't known here"
}

// expandStatic puts a container's variables into a probe's command, as kubelet does: those whose values stand in the
// Pod itself.
func expandStatic(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, v := range env {
		if v.ValueFrom == nil {
			values[v.Name] = v.Value
		}
	}
	expanded := make([]string, len(command))
	for i, arg := range command {
		expanded[i] = expansion.Expand(arg, expansion.MappingFuncFor(values))
	}
	return expanded
}
