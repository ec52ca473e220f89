package zookeeper

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/golockers/locker"
)

var _ locker.Opener = Open

// Open is the [locker.Opener] of this package, for the schemes zookeeper and
// zookeepers (TLS); see the package documentation. It connects and opens the
// session, so that a wrong address or missing right is told at once.
func Open(ctx context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
	o := Options{
		SessionTimeout: opts.TTL,
		TickTime:       u.Duration("tick", 0),
		Prefix:         strings.TrimSuffix(u.Path, "/"),
		Logger:         opts.Logger,
	}
	for i, a := range u.List("auth") {
		// What is wrong is told without what was given: it has a password.
		scheme, credentials, _ := strings.Cut(a, ":")
		if scheme == "" || credentials == "" || scheme == "digest" && !strings.Contains(credentials, ":") {
			return nil, bad(u, fmt.Sprintf("parameter auth number %d: write it as auth=digest:user:password, with what is special in it escaped", i+1))
		}
		o.Auth = append(o.Auth, Auth{Scheme: scheme, Credentials: credentials})
	}
	if u.User != nil {
		return nil, bad(u, "ZooKeeper knows no user in the address: give ?auth=digest:user:password")
	}
	var err error
	if u.Scheme == "zookeepers" {
		o.TLS, err = tlsConfig(u)
	}
	if err == nil {
		err = u.Check()
	}
	if err != nil && len(o.Auth) > 0 {
		// A parameter that is not known may be the rest of a password.
		err = bad(u, "a parameter is unknown, given twice or has a wrong value: beside the common ones there are "+
			"auth, tick, and ca, cert, key, server_name for zookeepers; write & in a password as %26, # as %23 and % as %25")
	}
	if err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, bad(u, "it has no host: write "+u.Scheme+"://host1:2181,host2:2181/prefix")
	}
	b, err := New(u.Hosts, &o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	s, err := b.session(ctx)
	if err == nil {
		if _, timeout := s.granted(); timeout < b.opts.SessionTimeout {
			err = fmt.Errorf("a TTL of %v is asked for, and the servers grant sessions of %v: give ?ttl=%v, or raise their maxSessionTimeout: %w",
				b.opts.SessionTimeout, timeout, timeout, errors.ErrUnsupported)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", u, err), b.Close())
	}
	return b, nil
}

func tlsConfig(u *locker.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Param("server_name", "")}
	ca, cert, key := u.Param("ca", ""), u.Param("cert", ""), u.Param("key", "")
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, bad(u, "ca: "+err.Error())
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, bad(u, fmt.Sprintf("ca: %s has no PEM certificate in it", ca))
		}
	}
	if (cert == "") != (key == "") {
		return nil, bad(u, "cert and key go together: give both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, bad(u, "cert and key: "+err.Error())
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func bad(u *locker.URL, what string) error {
	return fmt.Errorf("%w: backend URL: %s: %s", locker.ErrInvalid, u, what)
}
