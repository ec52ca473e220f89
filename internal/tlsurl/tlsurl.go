// Package tlsurl has the TLS parameters of a backend's URL: one reader for all schemes with TLS.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/golockers/locker/driver"
)

// Config returns the configuration for a scheme with TLS. These parameters are the
// same for all such schemes:
//
//	ca           a PEM file with the authorities to trust; default: those of the system
//	cert, key    PEM files with the client's certificate and its key
//	server_name  the name to expect in the server's certificate; default: the host
//
// The files of cert and key are read again for each connection, that of ca once. Its
// error matches [driver.ErrInvalid].
func Config(u *driver.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name", "")}
	ca, cert, key := u.Param("ca", ""), u.Param("cert", ""), u.Param("key", "")
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, u.Invalid("ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, u.Invalid("ca: %s has no PEM certificate in it", ca)
		}
	}
	if cert == "" && key == "" {
		return config, nil
	}
	if cert == "" || key == "" {
		return nil, u.Invalid("cert and key go together: give both or none")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, u.Invalid("cert and key: %v", err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(cert, key); err == nil {
			return &now, nil
		}
		return &pair, nil // one of the files was replaced, and the other is next
	}
	return config, nil
}
