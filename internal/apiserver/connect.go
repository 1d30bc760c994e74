package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// connects tells whether a subresource is a connection into a workload, which a client would wait on.
func connects(gr schema.GroupResource, subresource string) bool {
	if gr.Group != "" {
		return false
	}
	switch subresource {
	case "exec", "attach", "portforward", "log":
		return gr.Resource == "pods"
	case "proxy":
		return gr.Resource == "pods" || gr.Resource == "services" || gr.Resource == "nodes"
	}
	return false
}

// errConnect says at once that there is no such connection.
func errConnect(gr schema.GroupResource, subresource string) error {
	instead := "status.containerStatuses[].containerID says which"
	if subresource == "log" {
		instead = "their output is in run/POD-UID/CONTAINER/RESTARTS/log of the data directory"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotImplemented,
		Reason:  "NotImplemented",
		Message: fmt.Sprintf("%s/%s is not served: containers are processes of this machine; %s", gr.Resource, subresource, instead),
		Details: &metav1.StatusDetails{Kind: gr.Resource + "/" + subresource},
	}}
}
