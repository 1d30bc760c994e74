//go:build tools

// Package pins keeps in go.mod the Kubernetes staging modules that k8s.io/kubernetes names with a
// replaced version v0.0.0 and that the product itself does not import, so that `go mod tidy` and
// `go list -m all` work without a replace directive. It is never built.
package pins

import (
	_ "k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/cloud-provider/config/install"
	_ "k8s.io/cluster-bootstrap/token/util"
	_ "k8s.io/code-generator/cmd/conversion-gen/args"
	_ "k8s.io/cri-api/pkg/errors"
	_ "k8s.io/cri-client/pkg/util"
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/csi-translation-lib/plugins"
	_ "k8s.io/dynamic-resource-allocation/api/metadata/install"
	_ "k8s.io/endpointslice/trafficdist"
	_ "k8s.io/externaljwt/apis/v1"
	_ "k8s.io/kms/pkg/util"
	_ "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	_ "k8s.io/kube-controller-manager/config/v1alpha1"
	_ "k8s.io/kube-proxy/config/v1alpha1"
	_ "k8s.io/kube-scheduler/config/v1"
	_ "k8s.io/kubectl/pkg/apps"
	_ "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	_ "k8s.io/mount-utils"
	_ "k8s.io/pod-security-admission/api"
	_ "k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	_ "k8s.io/streaming/pkg/httpstream"
)
