package locker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSConfig returns the configuration for a scheme that means TLS, from the
// parameters that are the same for all of them:
//
//	ca           a PEM file with the authorities to trust; default: those of the system
//	cert, key    PEM files with the client's certificate and its key
//	server_name  the name to expect in the server's certificate; default: the host
//
// Its error matches [ErrInvalid].
func (u *URL) TLSConfig() (*tls.Config, error) {
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
	if (cert == "") != (key == "") {
		return nil, u.Invalid("cert and key go together: give both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, u.Invalid("cert and key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Invalid returns an error that says what is wrong with the URL. It names the
// URL, without password and parameters, and matches [ErrInvalid].
func (u *URL) Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: backend URL: %s: %s", ErrInvalid, u, fmt.Sprintf(format, args...))
}
