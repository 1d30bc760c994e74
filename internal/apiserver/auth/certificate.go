package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"
)

// Certificates takes the common name of a client certificate for the user and its organisations for the
// groups. The listener asks for a certificate (tls.RequestClientCert) and leaves judging it to this
// Authenticator, so that a bad one is a 401 and not a broken connection.
type Certificates struct {
	roots *x509.CertPool
	known *lru.Cache // digest of a verified certificate → *certified
}

type certified struct {
	user     user.Info
	from, to time.Time // the time in which the whole chain is valid
}

const knownCertificates = 256

// NewCertificates accepts client certificates signed by one of the roots.
func NewCertificates(roots *x509.CertPool) *Certificates {
	return &Certificates{roots: roots, known: lru.New(knownCertificates)}
}

// Authenticate implements Authenticator. A certificate that doesn't verify is an error.
func (c *Certificates) Authenticate(r *http.Request) (user.Info, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	digest := sha256.Sum256(leaf.Raw)
	now := time.Now()
	if v, ok := c.known.Get(digest); ok {
		if k := v.(*certified); !now.Before(k.from) && !now.After(k.to) {
			return k.user, true, nil
		}
	}
	between := x509.NewCertPool()
	for _, cert := range r.TLS.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots:         c.roots,
		Intermediates: between,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, false, fmt.Errorf("auth: client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, false, nil
	}
	k := &certified{
		user: Authenticated(&user.DefaultInfo{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}),
		from: leaf.NotBefore,
		to:   leaf.NotAfter,
	}
	for _, cert := range chains[0] {
		if cert.NotBefore.After(k.from) {
			k.from = cert.NotBefore
		}
		if cert.NotAfter.Before(k.to) {
			k.to = cert.NotAfter
		}
	}
	c.known.Add(digest, k)
	return k.user, true, nil
}
