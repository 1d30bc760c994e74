package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

const (
	caLifetime     = 20 * 365 * 24 * time.Hour
	serverLifetime = 365 * 24 * time.Hour
	renewBefore    = 30 * 24 * time.Hour
	caRenewBefore  = serverLifetime
	adminLifetime  = caLifetime
	clockSkew      = 5 * time.Minute
)

// authority is the certificate authority of one data directory. It signs the server's certificate and
// those of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // the certificate
}

// loadAuthority reads ca.crt and ca.key.
func loadAuthority(d *dataDir) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(d.file(caCertFile), d.file(caKeyFile))
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, not an ECDSA key", d.file(caKeyFile), pair.PrivateKey)
	}
	return &authority{cert: pair.Leaf, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw})}, nil
}

// openAuthority reads the authority, or makes it the first time. One that can't be read is an error and
// never replaced: clients have its certificate. One whose time is over, or whose certificate was made while the clock
// was wrong, gets a new certificate for the same key.
func openAuthority(d *dataDir, log *slog.Logger) (*authority, error) {
	a, err := loadAuthority(d)
	if err == nil {
		now := time.Now()
		if now.After(a.cert.NotBefore) && now.Before(a.cert.NotAfter.Add(-caRenewBefore)) {
			return a, nil
		}
		log.Warn("the certificate authority's certificate is renewed, for the same key: clients that hold the old one need the new kubeconfig once that has run out",
			"notBefore", a.cert.NotBefore, "notAfter", a.cert.NotAfter, "file", d.file(caCertFile))
		return a, a.certify(d)
	}
	if _, missing := os.Stat(d.file(caCertFile)); !errors.Is(missing, os.ErrNotExist) {
		return nil, fmt.Errorf("daemon: certificate authority: %w (remove %s and %s to make a new one; clients then need new kubeconfigs)", err, d.file(caCertFile), d.file(caKeyFile))
	}
	return makeAuthority(d)
}

// makeAuthority writes the key first, so that a certificate without its key is never what is left.
func makeAuthority(d *dataDir) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("daemon: certificate authority: %w", err)
	}
	a := &authority{key: key}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := d.write(caKeyFile, 0o600, keyPEM, true); err != nil {
		return nil, err
	}
	return a, a.certify(d)
}

// certify makes the authority's own certificate, of the same subject as the last one's, and writes it.
func (a *authority) certify(d *dataDir) error {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("operatord-ca@%d", time.Now().Unix())},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	if a.cert != nil {
		template.Subject = a.cert.Subject
	}
	a.cert = template
	der, err := a.sign(template, &a.key.PublicKey, caLifetime)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("daemon: certificate authority: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return d.write(caCertFile, 0o644, a.pem, true)
}

// sign fills in serial number and validity, and signs.
func (a *authority) sign(template *x509.Certificate, public *ecdsa.PublicKey, lifetime time.Duration) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("daemon: make a serial number: %w", err)
	}
	now := time.Now()
	template.SerialNumber = serial
	template.NotBefore = now.Add(-clockSkew)
	template.NotAfter = now.Add(lifetime)
	if a.cert != template && template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("daemon: sign a certificate for %s: %w", template.Subject, err)
	}
	return der, nil
}

// pool is the authority as what a verifier trusts.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client makes a certificate and key, as PEM, for a user and its groups.
func (a *authority) client(name string, groups []string, lifetime time.Duration) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("daemon: make a client key: %w", err)
	}
	der, err := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &private.PublicKey, lifetime)
	if err != nil {
		return nil, nil, err
	}
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("daemon: encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// serverCertificate is the server's own, made at start and again before it runs out.
type serverCertificate struct {
	ca    *authority
	names []string
	ips   []net.IP

	mu   sync.Mutex
	cert *tls.Certificate
}

// newServerCertificate is valid for this machine's names and for the addresses that addr listens on.
func newServerCertificate(ca *authority, addr net.Addr) (*serverCertificate, error) {
	s := &serverCertificate{
		ca:    ca,
		names: []string{"localhost", "operatord", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		ips:   []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if host, err := os.Hostname(); err == nil {
		s.names = append(s.names, host)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		ips, err := addressesOf(tcp.IP)
		if err != nil {
			return nil, err
		}
		s.ips = append(s.ips, ips...)
	}
	if _, err := s.get(nil); err != nil {
		return nil, err
	}
	return s, nil
}

// addressesOf is ip itself, or all of this machine's addresses where it means all of them.
func addressesOf(ip net.IP) ([]net.IP, error) {
	if !ip.IsUnspecified() {
		return []net.IP{ip}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("daemon: this machine's addresses: %w", err)
	}
	var ips []net.IP
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP)
		}
	}
	return ips, nil
}

// get is for tls.Config.GetCertificate.
func (s *serverCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cert != nil && time.Until(s.cert.Leaf.NotAfter) > renewBefore && time.Until(s.cert.Leaf.NotBefore) <= 0 {
		return s.cert, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("daemon: make the server's key: %w", err)
	}
	der, err := s.ca.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "operatord"},
		DNSNames:    s.names,
		IPAddresses: s.ips,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &key.PublicKey, serverLifetime)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("daemon: read the server's certificate: %w", err)
	}
	s.cert = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return s.cert, nil
}
