package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func get(header map[string]string) *http.Request {
	r := httptest.NewRequest("GET", "/version", nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	return r
}

func TestChain(t *testing.T) {
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	chain := Chain{NewTokens(map[string]user.Info{"secret": admin, "": admin}), Anonymous{}}
	for name, c := range map[string]struct {
		header string
		want   string // user's name; "" for refused
	}{
		"no credentials":     {"", "system:anonymous"},
		"good token":         {"Bearer secret", "admin"},
		"scheme in any case": {"bearer secret", "admin"},
		"bad token":          {"Bearer guess", ""},
		"empty token":        {"Bearer ", ""},
		"unknown scheme":     {"Basic YTpi", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := get(nil)
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			u, ok, err := chain.Authenticate(r)
			switch {
			case c.want == "" && (ok || err == nil):
				t.Errorf("taken as %v", u)
			case c.want != "" && (!ok || err != nil || u.GetName() != c.want):
				t.Errorf("got %v, %v, %v; want %s", u, ok, err, c.want)
			}
		})
	}
	u, _, _ := chain.Authenticate(get(map[string]string{"Authorization": "Bearer secret"}))
	if got, want := u.GetGroups(), []string{user.SystemPrivilegedGroup, user.AllAuthenticated}; !reflect.DeepEqual(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	if len(admin.Groups) != 1 {
		t.Error("the caller's user was changed")
	}
}

// certificate makes one, signed by parent or by itself.
func certificate(t *testing.T, subject pkix.Name, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, to time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     to,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = tmpl, key
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage, tmpl.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestCertificates(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ca, caKey := certificate(t, pkix.Name{CommonName: "ca"}, nil, nil, later)
	other, otherKey := certificate(t, pkix.Name{CommonName: "other"}, nil, nil, later)
	good, _ := certificate(t, pkix.Name{CommonName: "jane", Organization: []string{"devs", "ops"}}, ca, caKey, later)
	strange, _ := certificate(t, pkix.Name{CommonName: "jane"}, other, otherKey, later)
	old, _ := certificate(t, pkix.Name{CommonName: "jane"}, ca, caKey, time.Now().Add(-time.Minute))

	roots := x509.NewCertPool()
	roots.AddCert(ca)
	certs := NewCertificates(roots)
	request := func(c *x509.Certificate) *http.Request {
		r := get(nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		return r
	}
	for range 2 { // the second time from what is known
		u, ok, err := certs.Authenticate(request(good))
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if want := []string{"ops", "devs", user.AllAuthenticated}; u.GetName() != "jane" || !reflect.DeepEqual(u.GetGroups(), want) {
			t.Errorf("got %s %v, want jane %v", u.GetName(), u.GetGroups(), want)
		}
	}
	for name, c := range map[string]*x509.Certificate{"another authority": strange, "expired": old} {
		if u, ok, err := certs.Authenticate(request(c)); ok || err == nil {
			t.Errorf("%s: taken as %v", name, u)
		}
		if u, ok, err := (Chain{certs, Anonymous{}}).Authenticate(request(c)); ok || err == nil {
			t.Errorf("%s: a bad certificate became %v", name, u)
		}
	}
	if _, ok, err := certs.Authenticate(get(nil)); ok || err != nil {
		t.Error("without a certificate:", ok, err)
	}
}

func TestKnownCertificateExpires(t *testing.T) {
	ca, caKey := certificate(t, pkix.Name{CommonName: "ca"}, nil, nil, time.Now().Add(time.Hour))
	c, _ := certificate(t, pkix.Name{CommonName: "jane"}, ca, caKey, time.Now().Add(time.Hour))
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	certs := NewCertificates(roots)
	r := get(nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
	if _, ok, err := certs.Authenticate(r); !ok {
		t.Fatal(err)
	}
	v, ok := certs.known.Get(sha256.Sum256(c.Raw))
	if !ok {
		t.Fatal("the certificate isn't known after it was verified")
	}
	v.(*certified).to = time.Now().Add(-time.Second)
	c.NotAfter = time.Now().Add(-time.Second) // what verifying again will find
	if _, ok, _ := certs.Authenticate(r); ok {
		t.Error("a certificate that was known is taken after it has expired")
	}
}

func TestPeers(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	peers := Peers{uint32(os.Getuid()): &user.DefaultInfo{Name: "me"}}
	var known user.Info
	s := &http.Server{
		ConnContext: ConnContext,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			known, _, _ = peers.Authenticate(r)
		}),
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	c := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(dir, "s"))
	}}}
	resp, err := c.Get("http://unix/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if known == nil || known.GetName() != "me" {
		t.Errorf("the peer is %v", known)
	}
	if _, ok, err := peers.Authenticate(get(nil)); ok || err != nil {
		t.Error("a request over TCP has a peer:", ok, err)
	}
}

// rules allows what it holds: "verb group/resource namespace/name".
type rules map[string]bool

func (r rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	res := a.GetResource()
	if a.GetSubresource() != "" {
		res += "/" + a.GetSubresource()
	}
	if r[a.GetVerb()+" "+a.GetAPIGroup()+"/"+res+" "+a.GetNamespace()+"/"+a.GetName()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestImpersonate(t *testing.T) {
	by := &user.DefaultInfo{Name: "boss"}
	all := rules{
		"impersonate /users /jane":                                     true,
		"impersonate /users /system:anonymous":                         true,
		"impersonate /groups /devs":                                    true,
		"impersonate /serviceaccounts ns/sa":                           true,
		"impersonate authentication.k8s.io/uids /u1":                   true,
		"impersonate authentication.k8s.io/userextras/reason /testing": true,
	}
	for name, c := range map[string]struct {
		header http.Header
		want   *user.DefaultInfo
		code   int
	}{
		"nobody":   {header: http.Header{}, want: by},
		"a user":   {header: http.Header{"Impersonate-User": {"jane"}}, want: &user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated"}}},
		"everyone": {header: http.Header{"Impersonate-User": {"system:anonymous"}}, want: &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}},
		"a service account": {
			header: http.Header{"Impersonate-User": {"system:serviceaccount:ns:sa"}},
			want:   &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}},
		},
		"all of a user": {
			header: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"devs"}, "Impersonate-Uid": {"u1"}, "Impersonate-Extra-Reason": {"testing"}},
			want:   &user.DefaultInfo{Name: "jane", UID: "u1", Groups: []string{"devs", "system:authenticated"}, Extra: map[string][]string{"reason": {"testing"}}},
		},
		"another user":  {header: http.Header{"Impersonate-User": {"root"}}, code: 403},
		"another group": {header: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"system:masters"}}, code: 403},
		"another extra": {header: http.Header{"Impersonate-User": {"jane"}, "Impersonate-Extra-Reason": {"fun"}}, code: 403},
		"only a group":  {header: http.Header{"Impersonate-Group": {"devs"}}, code: 400},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := Impersonate(t.Context(), by, c.header, all)
			if c.code != 0 {
				var status apierrors.APIStatus
				if !errors.As(err, &status) || status.Status().Code != int32(c.code) {
					t.Errorf("got %v, %v; want %d", u, err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
			if !reflect.DeepEqual(got, c.want) && !(len(got.Groups) == 0 && len(c.want.Groups) == 0 && got.Name == c.want.Name) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestBuiltinRules(t *testing.T) {
	admin := &user.DefaultInfo{Name: "a", Groups: []string{user.SystemPrivilegedGroup}}
	known := &user.DefaultInfo{Name: "k", Groups: []string{user.AllAuthenticated}}
	nobody := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	path := func(p string) authorizer.AttributesRecord { return authorizer.AttributesRecord{Verb: "get", Path: p} }
	secrets := authorizer.AttributesRecord{Verb: "list", Resource: "secrets", ResourceRequest: true}
	review := authorizer.AttributesRecord{Verb: "create", APIGroup: "authorization.k8s.io", Resource: "selfsubjectaccessreviews", ResourceRequest: true}
	for _, c := range []struct {
		u    user.Info
		a    authorizer.AttributesRecord
		want bool
	}{
		{admin, secrets, true}, {known, secrets, false}, {nobody, secrets, false},
		{known, review, true}, {nobody, review, false},
		{nobody, path("/healthz"), true}, {nobody, path("/readyz/ping"), true}, {nobody, path("/version"), true},
		{nobody, path("/apis"), false}, {known, path("/apis"), true}, {known, path("/apis/apps/v1"), true},
		{known, path("/openapi/v3"), true}, {known, path("/metrics"), false}, {admin, path("/metrics"), true},
		{nobody, path("/healthzz"), false}, {known, path("/"), true}, {known, path("/secret"), false},
		{known, authorizer.AttributesRecord{Verb: "post", Path: "/apis"}, false},
	} {
		c.a.User = c.u
		err := Check(t.Context(), Builtin{}, c.a)
		if (err == nil) != c.want {
			t.Errorf("%s %s %s%s: %v, want allowed %v", c.u.GetName(), c.a.Verb, c.a.Path, c.a.Resource, err, c.want)
		}
	}
}

// The rules that are listed are the rules that hold.
func TestBuiltinRulesAreListed(t *testing.T) {
	for _, groups := range [][]string{{user.SystemPrivilegedGroup}, {user.AllAuthenticated}, {user.AllUnauthenticated}} {
		u := &user.DefaultInfo{Name: "u", Groups: groups}
		resources, paths, incomplete, err := Builtin{}.RulesFor(t.Context(), u, "default")
		if err != nil || incomplete {
			t.Fatal(incomplete, err)
		}
		for _, r := range resources {
			for _, res := range r.GetResources() {
				a := authorizer.AttributesRecord{User: u, Verb: r.GetVerbs()[0], APIGroup: r.GetAPIGroups()[0], Resource: res, ResourceRequest: true}
				if err := Check(t.Context(), Builtin{}, a); err != nil {
					t.Errorf("%v: %v", groups, err)
				}
			}
		}
		for _, p := range paths {
			for _, url := range p.GetNonResourceURLs() {
				a := authorizer.AttributesRecord{User: u, Verb: strings.Replace(p.GetVerbs()[0], "*", "get", 1), Path: strings.Replace(url, "*", "x", 1)}
				if err := Check(t.Context(), Builtin{}, a); err != nil {
					t.Errorf("%v: %v", groups, err)
				}
			}
		}
		if len(paths) == 0 {
			t.Errorf("%v may see nothing", groups)
		}
	}
}

func TestForbiddenMessages(t *testing.T) {
	u := &user.DefaultInfo{Name: "<jane>"}
	for want, a := range map[string]authorizer.AttributesRecord{
		`secrets is forbidden: User "&lt;jane&gt;" cannot list resource "secrets" in API group "" in the namespace "ns"`:                              {Verb: "list", Resource: "secrets", Namespace: "ns", ResourceRequest: true},
		`deployments.apps "d" is forbidden: User "&lt;jane&gt;" cannot update resource "deployments/status" in API group "apps" at the cluster scope`: {Verb: "update", APIGroup: "apps", Resource: "deployments", Subresource: "status", Name: "d", ResourceRequest: true},
		`forbidden: User "&lt;jane&gt;" cannot get path "/metrics"`:                                                                                   {Verb: "get", Path: "/metrics"},
	} {
		a.User = u
		err := Check(t.Context(), rules{}, a)
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	failing := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("no rules")
	})
	if err := Check(t.Context(), failing, authorizer.AttributesRecord{User: u}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "no rules") {
		t.Error(err)
	}
}
