package daemon

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// The administrator, as admin.token, admin.kubeconfig and the unix socket know it.
const (
	adminName  = "admin"
	adminGroup = "system:masters"
)

// openToken reads the administrator's token, or makes it the first time.
func openToken(d *dataDir) (string, error) {
	data, err := os.ReadFile(d.file(tokenFile))
	if err == nil {
		if token := strings.TrimSpace(string(data)); token != "" {
			return token, nil
		}
		return "", fmt.Errorf("daemon: %s is empty: remove it to get a new token", d.file(tokenFile))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("daemon: the administrator's token: %w", err)
	}
	token := rand.Text()
	return token, d.write(tokenFile, 0o600, []byte(token), true)
}

// kubeconfig is the part of clientcmd's v1.Config that is needed.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server string `json:"server"`
		CA     string `json:"certificate-authority-data"`
	} `json:"cluster"`
}

type namedUser struct {
	Name string `json:"name"`
	User struct {
		Cert string `json:"client-certificate-data"`
		Key  string `json:"client-key-data"`
	} `json:"user"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster   string `json:"cluster"`
		User      string `json:"user"`
		Namespace string `json:"namespace,omitempty"`
	} `json:"context"`
}

// makeKubeconfig signs a client certificate and writes a kubeconfig around it.
func (a *authority) makeKubeconfig(server, user string, groups []string, lifetime time.Duration) ([]byte, error) {
	cert, key, err := a.client(user, groups, lifetime)
	if err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	c := kubeconfig{
		APIVersion: "v1", Kind: "Config",
		Clusters: make([]namedCluster, 1), Users: make([]namedUser, 1), Contexts: make([]namedContext, 1),
		CurrentContext: "operatord",
	}
	c.Clusters[0].Name = "operatord"
	c.Clusters[0].Cluster.Server = server
	c.Clusters[0].Cluster.CA = encode(a.pem)
	c.Users[0].Name = user
	c.Users[0].User.Cert = encode(cert)
	c.Users[0].User.Key = encode(key)
	c.Contexts[0].Name = "operatord"
	c.Contexts[0].Context.Cluster = "operatord"
	c.Contexts[0].Context.User = user
	return yaml.Marshal(c)
}

// Endpoints say where a daemon is reached.
type Endpoints struct {
	API  string `json:"api"`
	HTTP string `json:"http"`
	PID  int    `json:"pid"`
}

// ReadEndpoints finds the daemon of a data directory.
func ReadEndpoints(dir string) (Endpoints, error) {
	var e Endpoints
	if dir == "" {
		return e, errNoDataDir
	}
	data, err := os.ReadFile(filepath.Join(dir, endpointsFile))
	if errors.Is(err, os.ErrNotExist) {
		return e, fmt.Errorf("no daemon is ready in %s (there is no %s): start `operatord serve`, or name another directory with --data-dir", dir, endpointsFile)
	}
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("%s: %w", filepath.Join(dir, endpointsFile), err)
	}
	return e, nil
}

// AdminKubeconfig is the administrator's kubeconfig in a data directory.
func AdminKubeconfig(dir string) ([]byte, error) {
	return credential(dir, kubeconfigFile)
}

// AdminToken is the administrator's token in a data directory.
func AdminToken(dir string) ([]byte, error) {
	return credential(dir, tokenFile)
}

func credential(dir, name string) ([]byte, error) {
	if dir == "" {
		return nil, errNoDataDir
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no %s in %s: start `operatord serve` there first, or name another directory with --data-dir", name, dir)
	}
	return data, err
}

// IssueKubeconfig makes a kubeconfig for a user with a certificate of its own, signed by the authority of
// a data directory. Whoever may read that directory may do so; the daemon need not run.
func IssueKubeconfig(dir, server, user string, groups []string, lifetime time.Duration) ([]byte, error) {
	a, err := loadAuthority(&dataDir{path: dir})
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w (start `operatord serve --data-dir %s` once to make it)", err, dir)
	}
	return a.makeKubeconfig(server, user, groups, lifetime)
}
