package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/tlsurl"
)

// openTimeout bounds Open where ctx does not.
const openTimeout = 5 * time.Second

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"etcd":  Open,
	"etcds": Open,
}

// Open is the [driver.Opener] of this package, for the schemes etcd and etcds;
// see the package documentation. It connects and makes a request, so that a
// wrong address, password or certificate, a cluster without a majority, and a
// prefix that may not be used are told at once.
func Open(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	o := Options{
		Prefix:  strings.Trim(u.Path, "/"),
		Timeout: u.Duration("timeout", 0),
		Members: int(min(u.Uint("members", 0), 1000)),

		StrictExpiry: u.Bool("strict_expiry", false),
	}
	if o.StrictExpiry {
		o.MaxTTL = max(driver.DefaultTTL, opts.TTL)
	}
	config, err := clientConfig(u)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, u.Invalid("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := reach(ctx, u, config); err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	client, err := connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, explain("etcd", "", err))
	}
	b, err := New(client, &o)
	if err != nil {
		return nil, oneline.Join(err, client.Close())
	}
	b.owned = true
	if err := b.check(ctx); err != nil {
		return nil, oneline.Join(fmt.Errorf("%s: %w", u, err), b.Close())
	}
	if b.opts.Members == 0 {
		// Who may not ask claims nothing that depends on it.
		if n, err := b.voters(ctx); err == nil {
			b.opts.Members = n
		}
	}
	return b, nil
}

// reach returns an error at once if no member can be connected to. The driver
// would go on trying for as long as ctx lasts, and not say why.
func reach(ctx context.Context, u *driver.URL, config clientv3.Config) error {
	config.Username, config.Password = "", "" // or New would log in, and wait
	client, err := clientv3.New(config)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	defer func() { _ = client.Close() }()
	p, err := newPool(client, openTimeout)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	defer func() { _ = p.close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, len(p.members))
	for _, m := range p.members {
		go func() { answers <- m.connect(ctx) }()
	}
	for range p.members {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w%s: %w", err, rightScheme(ctx, u, p.members[0], err), driver.ErrUnavailable)
}

// rightScheme says what to write if the one side speaks TLS and the other not.
func rightScheme(ctx context.Context, u *driver.URL, m *member, err error) string {
	if u.Scheme == "etcds" {
		text := err.Error()
		if strings.Contains(text, "handshake failed: EOF") ||
			strings.Contains(text, "first record does not look like a TLS handshake") {
			return ": if it does not speak TLS, write etcd:// instead of etcds://"
		}
		return ""
	}
	_, host, _ := strings.Cut(m.addr, "://")
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", host)
	var alert tls.AlertError
	if err != nil && !errors.As(err, &alert) {
		return ""
	}
	if conn != nil {
		_ = conn.Close()
	}
	return ": it speaks TLS: write etcds:// instead of etcd://"
}

// connect makes the client, which lives on when ctx is over.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	life, end := context.WithCancel(context.Background())
	config.Context = life
	stop := context.AfterFunc(ctx, end) // logging in takes no context
	client, err := clientv3.New(config)
	if err == nil && !stop() {
		_ = client.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	return client, nil
}

// check needs members of one cluster, the rights to read and write below the prefix, a
// majority, and a store that is not full. It writes nothing: the key is never there.
func (b *Backend) check(ctx context.Context) error {
	if err := b.pool.agree(ctx); err != nil {
		return b.failure(ctx, err)
	}
	never := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(b.keys.locks()), "!=", 0)}
	put := []clientv3.Op{clientv3.OpPut(b.keys.locks(), "")}
	read := clientv3.OpGet(b.keys.base, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithLimit(1))
	_, _, err := b.pool.txn(ctx, ordinary, never, put, []clientv3.Op{read})
	return b.failure(ctx, err)
}

func clientConfig(u *driver.URL) (clientv3.Config, error) {
	c := clientv3.Config{
		Logger:               zap.NewNop(), // it would write to standard error
		DialTimeout:          openTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions:          []grpc.DialOption{grpc.WithNoProxy()}, // HTTPS_PROXY is for the web
	}
	if len(u.Hosts) == 0 {
		return c, u.Invalid("it has no host: write %s://host:2379", u.Scheme)
	}
	scheme := "http"
	if u.Scheme == "etcds" {
		scheme = "https"
		config, err := tlsurl.Config(u)
		if err != nil {
			return c, err
		}
		if name := config.ServerName; name != "" {
			// The driver expects the name that it connects to, whatever ServerName says.
			c.DialOptions = append(c.DialOptions, grpc.WithAuthority(name))
		}
		c.TLS = config
	}
	for _, h := range u.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "2379")
		}
		c.Endpoints = append(c.Endpoints, scheme+"://"+h)
	}
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		if c.Username == "" || c.Password == "" {
			return c, u.Invalid("a user and a password go together: write %s://user:password@host:2379", u.Scheme)
		}
	}
	return c, nil
}
