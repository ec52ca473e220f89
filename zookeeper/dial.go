package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/clock"
)

// hosts is a session as the driver asks it for a server. The driver sees one,
// whatever there is behind it: which one is connected to, dial decides.
type hosts session

var _ zk.HostProvider = (*hosts)(nil)

// Init implements [zk.HostProvider].
func (*hosts) Init([]string) error { return nil }

// Len implements [zk.HostProvider].
func (*hosts) Len() int { return 1 }

// Connected implements [zk.HostProvider].
func (*hosts) Connected() {}

// Pauses between two rounds through all servers.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Next implements [zk.HostProvider]. It pauses when all servers have failed. A
// session that is over gets no server any more: with startAgain, the driver looks
// whether it is closed, and gives up.
func (h *hosts) Next() (server string, startAgain bool) {
	s := (*session)(h)
	s.mu.Lock()
	streak := s.servers.streak
	s.mu.Unlock()
	if streak > 0 {
		most := min(lastPause, s.backend.opts.SessionTimeout/20)
		timer := time.NewTimer(clock.Jitter(clock.BackOff(streak, firstPause, most)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.Context().Done():
		case <-s.hurry:
			s.pause(firstPause)
		}
	}
	return "ZooKeeper", s.isOver()
}

// failed notes why a server could not be used.
func (s *session) failed(server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers.failed(server, err, time.Now()) {
		s.change()
	}
}

// stagger is how long a server has for itself before the next is tried, too.
const stagger = 20 * time.Millisecond

// dial implements [zk.Dialer]: it connects to the server that answers first, of
// all that are tried at nearly the same time. Those that failed last come last.
func (s *session) dial(string, string, time.Duration) (net.Conn, error) {
	if s.isOver() {
		return nil, s.Err() // the driver would open a new session, and do there what was asked in this one
	}
	s.mu.Lock()
	order, patience := s.servers.order(), s.backend.patience()
	if s.servers.streak == 0 && len(order) > 1 {
		patience = min(patience, time.Second) // another may answer sooner
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	type dialed struct {
		server string
		conn   net.Conn
		err    error
	}
	answers := make(chan dialed)
	for i, server := range order {
		s.goroutines.Go(func() {
			if clock.Sleep(ctx, time.Duration(i)*stagger) != nil {
				return
			}
			conn, err := s.backend.opts.dial(ctx, server)
			select {
			case answers <- dialed{server, conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		})
	}
	for left := order; ; {
		select {
		case a := <-answers:
			if a.err == nil {
				return newLink(s, a.conn, a.server, patience), nil
			}
			if errors.Is(a.err, syscall.EPIPE) || errors.Is(a.err, syscall.ECONNRESET) {
				a.err = fmt.Errorf("%w (%w): %s", errNotServing, a.err, whyNotServing) // it hung up sooner than we looked
			}
			s.failed(a.server, a.err)
			left = slices.DeleteFunc(left, func(server string) bool { return server == a.server })
			if len(left) == 0 {
				return nil, a.err
			}
		case <-ctx.Done():
			for _, server := range left {
				s.failed(server, fmt.Errorf("no connection after %v", patience))
			}
			return nil, ctx.Err()
		}
	}
}

// dial connects to a server, by the caller's function or TCP, and TLS.
func (o *Options) dial(ctx context.Context, server string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, server)
	if err != nil || o.TLS == nil {
		return conn, err
	}
	config := o.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(server)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		var certificate *tls.CertificateVerificationError
		if ctx.Err() == nil && !errors.As(err, &certificate) {
			return nil, fmt.Errorf("TLS: %w: if this is the port without TLS (clientPort), write zookeeper:// "+
				"or give the one with it (secureClientPort)", err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// checkServers returns the addresses with a port each.
func checkServers(servers []string) ([]string, error) {
	if len(servers) == 0 {
		return nil, errors.New("no server is given: give at least one host:port")
	}
	var all []string
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), ""
		}
		if host == "" {
			return nil, fmt.Errorf("the server %q has no host: write host:port", s)
		}
		all = append(all, net.JoinHostPort(host, cmp.Or(port, strconv.Itoa(zk.DefaultPort))))
	}
	return all, nil
}
