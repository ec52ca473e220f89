package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certs is a certificate authority of a test's own, with a certificate for servers on this machine
// (127.0.0.1, ::1, localhost) and one for clients. The fields are paths of PEM files, which are removed
// when the test ends.
type Certs struct {
	CAFile         string
	CertFile       string // of the server
	KeyFile        string
	ClientCertFile string
	ClientKeyFile  string

	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey
	roots  *x509.CertPool
	client tls.Certificate
}

// NewCerts makes an authority and its certificates, valid from a year ago to a year from now. Servers that
// shall trust each other (a replica and its primary) and clients of several servers need the same Certs.
// With a name, the servers' certificate is for that name alone.
func NewCerts(t TB, name ...string) *Certs {
	t.Helper()
	c, err := newCerts(t.TempDir(), name)
	if err != nil {
		t.Fatalf("lab: make certificates: %v", err)
	}
	return c
}

// ClientConfig returns a configuration that trusts the authority alone and shows the client's
// certificate. Each call returns a new one.
func (c *Certs) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      c.roots,
		ServerName:   "localhost",
		Certificates: []tls.Certificate{c.client},
	}
}

func newCerts(dir string, names []string) (*Certs, error) {
	file := func(name string) string { return filepath.Join(dir, name+".pem") }
	c := &Certs{
		CAFile: file("ca"), CertFile: file("server"), KeyFile: file("server-key"),
		ClientCertFile: file("client"), ClientKeyFile: file("client-key"), roots: x509.NewCertPool(),
	}
	ca := template(1, "test authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	client := template(3, "test client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	err := errors.Join(c.issue(ca, c.CAFile, ""), c.Renew(names...), c.issue(client, c.ClientCertFile, c.ClientKeyFile))
	if err != nil {
		return nil, err
	}
	root, err := os.ReadFile(c.CAFile)
	c.roots.AppendCertsFromPEM(root)
	if err == nil {
		c.client, err = tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKeyFile)
	}
	return c, err
}

// Renew has the authority issue another certificate for servers, with a serial number of its own, into the
// files of the one before. It is for the names given, or for this machine.
func (c *Certs) Renew(names ...string) error {
	server := template(time.Now().UnixNano(), "test server")
	if server.DNSNames = names; names == nil {
		server.DNSNames = []string{"localhost"}
		server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	// A server is also a client: of its primary, and of the other nodes of a cluster.
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return c.issue(server, c.CertFile, c.KeyFile)
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		// With room for servers whose clock was moved.
		NotBefore: time.Now().AddDate(-1, 0, 0),
		NotAfter:  time.Now().AddDate(1, 0, 0),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

// issue makes a key, has the authority sign the certificate, and writes both; the first certificate is that of the
// authority, whose key is not written.
func (c *Certs) issue(cert *x509.Certificate, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if c.ca == nil {
		c.ca, c.caKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, c.ca, &key.PublicKey, c.caKey)
	if err == nil {
		err = writePEM(certFile, "CERTIFICATE", der)
	}
	if err == nil && keyFile != "" {
		if der, err = x509.MarshalPKCS8PrivateKey(key); err == nil {
			err = writePEM(keyFile, "PRIVATE KEY", der)
		}
	}
	return err
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
