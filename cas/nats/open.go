package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/tlsurl"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"nats":  Open,
	"natss": Open,
}

// openTimeout bounds Open's check of the bucket if ctx does not, and half of it each attempt to connect
// to a server.
const openTimeout = 5 * time.Second

// Open is the [driver.Opener] of this package, for the schemes nats and natss; see the package
// documentation. It connects and checks the bucket, so that a wrong address, password or bucket is
// reported at once.
func Open(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	o := cas.Options{Timeout: u.Duration("timeout", 0)}
	settings := []nats.Option{
		nats.Name("locker"),
		nats.Timeout(openTimeout / 2),
		// What cannot be sent now fails, and is never sent later.
		nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(time.Second, time.Second),
		nats.PingInterval(2 * time.Second),
		nats.IgnoreAuthErrorAbort(),                                       // or a second refusal would close the connection for good
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // it would write to standard error
	}
	if file := u.Param("credentials", ""); file != "" {
		settings = append(settings, nats.UserCredentials(file))
	}
	if u.User != nil {
		password, has := u.User.Password()
		if settings = append(settings, nats.Token(u.User.Username())); has {
			settings[len(settings)-1] = nats.UserInfo(u.User.Username(), password)
		}
	}
	scheme := "nats://"
	if u.Scheme == "natss" {
		scheme = "tls://"
		config, err := tlsurl.Config(u)
		if err != nil {
			return nil, err
		}
		settings = append(settings, nats.Secure(config))
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	bucket := strings.Trim(u.Path, "/")
	if len(u.Hosts) == 0 || bucket == "" {
		return nil, u.Invalid("write %s://host:4222/bucket", u.Scheme)
	}
	var servers []string
	for _, h := range u.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "4222")
		}
		servers = append(servers, scheme+h)
	}
	conn, err := connect(ctx, strings.Join(servers, ","), settings)
	if err != nil {
		kind := driver.ErrUnavailable
		if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
			kind = driver.ErrRefused
		}
		return nil, fmt.Errorf("%s: %w: %w", u, err, kind)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := New(ctx, conn, bucket)
	if err != nil {
		conn.Close()
		if !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrInvalid) {
			err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
		}
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	s.owned = true
	return cas.New(s, &o)
}

// connect returns when ctx ends; what the driver still tries ends by itself.
func connect(ctx context.Context, servers string, settings []nats.Option) (*nats.Conn, error) {
	var conn *nats.Conn
	var err error
	connected := make(chan struct{})
	go func() {
		conn, err = nats.Connect(servers, settings...)
		close(connected)
	}()
	select {
	case <-connected:
		return conn, err
	case <-ctx.Done():
		go func() {
			<-connected
			conn.Close() // if there is one
		}()
		return nil, ctx.Err()
	}
}
