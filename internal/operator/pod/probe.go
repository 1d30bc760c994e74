package pod

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"

	"operatord.io/operatord/internal/process"
)

// canProbe tells whether a probe is of a sort that is known here.
func canProbe(p *corev1.Probe) bool {
	return p.HTTPGet != nil || p.TCPSocket != nil || p.Exec != nil
}

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

// check probes once. why is for people.
func (c checker) check(ctx context.Context, id process.ID, spec *corev1.Container, address string, p *corev1.Probe) (ok bool, why string) {
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
		out, code, err := c.runtime.Exec(ctx, id, p.Exec.Command)
		switch {
		case err != nil:
			return false, err.Error()
		case code != 0:
			return false, fmt.Sprintf("exit code %d: %.1024s", code, out)
		}
		return true, ""
	}
	return false, "this sort of probe isn't known here"
}
