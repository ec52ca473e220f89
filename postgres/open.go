package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// Openers are the schemes that this package serves; see the package documentation.
var Openers = driver.Openers{"postgres": Open, "postgresql": Open}

// driverParams are the parameters of the address that are pgx's and libpq's own.
var driverParams = []string{
	"host", "port",
	"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslsni", "sslnegotiation", "sslcertmode",
	"channel_binding", "require_auth", "connect_timeout", "application_name", "target_session_attrs",
	"passfile", "service", "servicefile", "krbsrvname", "krbspn", "options", "search_path",
	"min_protocol_version", "max_protocol_version",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns",
	"pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
}

// Open is the [driver.Opener] of this package. It connects once, so that a wrong address or password is told
// at once.
func Open(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	o := Options{
		Table:        u.Param("table", ""),
		NoCreate:     !u.Bool("create", true),
		FailoverSafe: u.Bool("failover_safe", false),
		Timeout:      u.Duration("timeout", 0),
		Logger:       opts.Logger,
	}
	address := url.URL{Scheme: "postgres", User: u.User, Path: u.Path}
	params := url.Values{}
	for _, name := range driverParams {
		if value := u.Param(name, ""); value != "" {
			params.Set(name, value)
		}
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	addHosts(params, u.Hosts)
	if !params.Has("application_name") {
		params.Set("application_name", "locker")
	}
	if strings.Contains(params.Get("host"), ",") && !params.Has("target_session_attrs") {
		params.Set("target_session_attrs", "read-write") // of several, the one that locks can be written to
	}
	address.RawQuery = strings.ReplaceAll(params.Encode(), "+", "%20") // to libpq, + is a plus
	config, err := pgxpool.ParseConfig(address.String())
	if err != nil {
		// Not the error itself, which may repeat the address with the password.
		var parse *pgconn.ParseConfigError
		if cause := errors.Unwrap(err); errors.As(err, &parse) && cause != nil {
			err = cause
		}
		return nil, u.Invalid("%s", strings.ReplaceAll(err.Error(), address.String(), u.String()))
	}
	// Connections find out within 20 s that the server's host is gone, while there is nothing to send, and
	// proxies on the way do not take them for idle.
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}).DialContext
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		// pgx has read the files of passwords and certificates once; they are replaced while programs run.
		if fresh, err := pgxpool.ParseConfig(address.String()); err == nil {
			now := fresh.ConnConfig
			conn.Host, conn.Port, conn.User, conn.Password = now.Host, now.Port, now.User, now.Password
			conn.TLSConfig, conn.Fallbacks = now.TLSConfig, now.Fallbacks
		}
		return nil
	}
	if config.PingTimeout == 0 {
		// A connection that a proxy has forgotten is given up soon enough to try those beside it.
		config.PingTimeout = cmp.Or(o.Timeout, defaultTimeout) / 10
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, u.Invalid("%v", err)
	}
	b, err := New(pool, &o)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b.owned = true
	if err := b.greet(ctx); err != nil {
		return nil, oneline.Join(fmt.Errorf("%s: %w", u, err), b.Close())
	}
	return b, nil
}

// addHosts makes parameters of the hosts before the path, if there are none. There, net/url takes several of
// them for one, and refuses more than one IPv6 address; and to pgx, a port is that of all hosts without one.
func addHosts(params url.Values, all []string) {
	var hosts, ports []string
	some := false // has a port; if none has, there is PGPORT
	for _, address := range all {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			host = strings.Trim(address, "[]")
		}
		some = some || port != ""
		hosts, ports = append(hosts, host), append(ports, cmp.Or(port, "5432"))
	}
	if len(hosts) > 0 && !params.Has("host") {
		params.Set("host", strings.Join(hosts, ","))
		if some && !params.Has("port") {
			params.Set("port", strings.Join(ports, ","))
		}
	}
}

// greet finds out whether there is a server, the table where it is not to be made, and all that FailoverSafe
// needs.
func (b *Backend) greet(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	s, lacks, err := b.locate(bounded)
	switch {
	case err == nil && lacks == nil:
		b.found.Store(s)
	case err == nil && (!errors.Is(lacks, errNoTable) || b.opts.NoCreate):
		err = lacks
	}
	if err != nil {
		return b.failure(ctx, err)
	}
	return nil
}
