package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"operatord.io/operatord/internal/daemon"
)

// target says which daemon a subcommand talks to.
type target struct{ dataDir, kubeconfig string }

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.dataDir, "data-dir", daemon.DefaultDataDir(), "data directory of the daemon to talk to")
	f.StringVar(&t.kubeconfig, "kubeconfig", "", "kubeconfig of the daemon to talk to, instead of --data-dir")
}

// client talks to one daemon.
type client struct {
	server string
	token  string
	http   *http.Client
}

func (t *target) client() (*client, error) {
	path := t.kubeconfig
	if path == "" {
		if _, err := daemon.ReadEndpoints(t.dataDir); err != nil {
			return nil, err
		}
		path = filepath.Join(t.dataDir, "admin.kubeconfig")
	}
	return readKubeconfig(path)
}

// kubeconfig is clientcmd's v1.Config, as far as this client goes.
type kubeconfig struct {
	CurrentContext string              `json:"current-context"`
	Contexts       []kubeconfigContext `json:"contexts"`
	Clusters       []kubeconfigCluster `json:"clusters"`
	Users          []kubeconfigUser    `json:"users"`
}

type kubeconfigContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type kubeconfigCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server string `json:"server"`
		CA     string `json:"certificate-authority-data"`
		CAFile string `json:"certificate-authority"`
	} `json:"cluster"`
}

type kubeconfigUser struct {
	Name string `json:"name"`
	User struct {
		Token    string `json:"token"`
		Cert     string `json:"client-certificate-data"`
		CertFile string `json:"client-certificate"`
		Key      string `json:"client-key-data"`
		KeyFile  string `json:"client-key"`
	} `json:"user"`
}

// readKubeconfig makes a client of a kubeconfig's current context.
func readKubeconfig(path string) (*client, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f kubeconfig
	if err := yaml.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	context := slices.IndexFunc(f.Contexts, func(c kubeconfigContext) bool { return c.Name == f.CurrentContext })
	if context < 0 {
		return nil, fmt.Errorf("%s: the current context %q is not in it", path, f.CurrentContext)
	}
	use := f.Contexts[context].Context
	cluster := slices.IndexFunc(f.Clusters, func(c kubeconfigCluster) bool { return c.Name == use.Cluster })
	user := slices.IndexFunc(f.Users, func(u kubeconfigUser) bool { return u.Name == use.User })
	if cluster < 0 || user < 0 {
		return nil, fmt.Errorf("%s: cluster %q or user %q of context %q is not in it", path, use.Cluster, use.User, f.CurrentContext)
	}
	config, err := tlsConfig(path, f.Clusters[cluster], f.Users[user])
	if err != nil {
		return nil, err
	}
	return &client{
		server: strings.TrimSuffix(f.Clusters[cluster].Cluster.Server, "/"),
		token:  f.Users[user].User.Token,
		http:   &http.Client{Transport: &http.Transport{TLSClientConfig: config}},
	}, nil
}

// tlsConfig holds whom to trust and how to be known.
func tlsConfig(path string, cluster kubeconfigCluster, user kubeconfigUser) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := inline(path, cluster.Cluster.CA, cluster.Cluster.CAFile)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s: the certificate authority of cluster %q is not PEM", path, cluster.Name)
		}
	}
	cert, err := inline(path, user.User.Cert, user.User.CertFile)
	if err != nil || len(cert) == 0 {
		return config, err
	}
	key, err := inline(path, user.User.Key, user.User.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: client certificate of %q: %w", path, user.Name, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// inline is data in base64, or else the content of a file named relative to the kubeconfig.
func inline(kubeconfig, data, name string) ([]byte, error) {
	if data != "" {
		decoded, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kubeconfig, err)
		}
		return decoded, nil
	}
	if name == "" {
		return nil, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(kubeconfig), name)
	}
	return os.ReadFile(name)
}

// do sends a request without a body. An answer that is no success is an error with the server's words.
func (c *client) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "operatord/"+version)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		var status struct{ Message string }
		if json.Unmarshal(body, &status) == nil && status.Message != "" {
			return nil, errors.New(status.Message)
		}
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return body, nil
}

// collection finds the path of a kind's objects by any of its names, as kubectl would: kind, singular,
// plural, short name, or plural.group.
func (c *client) collection(ctx context.Context, kind, namespace string) (string, error) {
	var groups struct {
		Groups []struct {
			Name             string
			PreferredVersion struct{ GroupVersion string }
		}
	}
	body, err := c.do(ctx, http.MethodGet, "/apis")
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &groups); err != nil {
		return "", fmt.Errorf("discovery: %w", err)
	}
	roots := []string{"/api/v1"}
	names := []string{""}
	for _, g := range groups.Groups {
		roots = append(roots, "/apis/"+g.PreferredVersion.GroupVersion)
		names = append(names, g.Name)
	}
	for i, root := range roots {
		path, err := c.inGroup(ctx, root, names[i], kind, namespace)
		if err != nil || path != "" {
			return path, err
		}
	}
	return "", fmt.Errorf("the server has no kind %q", kind)
}

// inGroup looks for a kind in one group version; "" when it isn't there.
func (c *client) inGroup(ctx context.Context, root, group, kind, namespace string) (string, error) {
	body, err := c.do(ctx, http.MethodGet, root)
	if err != nil {
		return "", err
	}
	var list struct {
		Resources []struct {
			Name, SingularName, Kind string
			Namespaced               bool
			ShortNames               []string
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("discovery of %s: %w", root, err)
	}
	want := strings.ToLower(kind)
	for _, r := range list.Resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if want != r.Name && want != r.SingularName && want != strings.ToLower(r.Kind) &&
			want != r.Name+"."+group && !slices.Contains(r.ShortNames, want) {
			continue
		}
		if r.Namespaced {
			root += "/namespaces/" + namespace
		}
		return root + "/" + r.Name, nil
	}
	return "", nil
}
