package daemon

import (
	"net/http"
	"os"
	"runtime"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"

	"operatord.io/operatord/internal/apiserver"
	"operatord.io/operatord/internal/apiserver/auth"
	"operatord.io/operatord/internal/resource/builtin"
)

// kubernetesVersion is the release whose API is served.
const (
	kubernetesVersion = "v1.37.2"
	kubernetesMajor   = "1"
	kubernetesMinor   = "37"
)

// apiHandler is the API, for the TLS listener and the unix socket.
func (s *server) apiHandler() http.Handler {
	admin := &user.DefaultInfo{Name: adminName, Groups: []string{adminGroup}}
	tokens := auth.NewTokens(map[string]user.Info{s.token: admin})
	return apiserver.New(apiserver.Config{
		Verbs:    s.verbs,
		Registry: s.registry,
		Authenticator: noticing{auth.Chain{
			auth.NewCertificates(s.ca.pool()),
			auth.Peers{uint32(os.Geteuid()): admin},
			tokens,
			auth.Anonymous{},
		}},
		Authorizer: auth.Builtin{},
		Tokens:     tokens,
		Planner:    s.planner(),
		Ready:      s.health.ready,
		Published:  builtin.OpenAPI,
		Listener:   s.apiListener(),
		Log:        s.cfg.Log,
		Version: version.Info{
			Major:      kubernetesMajor,
			Minor:      kubernetesMinor,
			GitVersion: kubernetesVersion + "+operatord." + s.cfg.Version,
			GoVersion:  runtime.Version(),
			Compiler:   runtime.Compiler,
			Platform:   runtime.GOOS + "/" + runtime.GOARCH,
		},
	})
}
