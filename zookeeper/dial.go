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

	"github.com/golockers/locker/driver"
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
	streak := s.streak
	s.mu.Unlock()
	if streak > 0 {
		most := min(lastPause, s.backend.opts.SessionTimeout/20)
		timer := time.NewTimer(clock.Jitter(clock.BackOff(streak, firstPause, most)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		case <-s.hurry:
			s.pause(firstPause)
		}
	}
	return "ZooKeeper", s.isOver()
}

func (s *session) pause(d time.Duration) { _ = clock.Sleep(s.ctx, d) }

// failure is why a server could not be used. It is remembered while the service
// can be had elsewhere: the others are tried before it (R23).
type failure struct {
	err      error
	at       time.Time
	hopeless bool // it is not for the moment only
}

// errNotServing is among the causes if a server was there, and did not take up
// the session.
var errNotServing = errors.New("it did not take up the session")

const whyNotServing = "it has no quorum (an election), or more connections of this host than its limit " +
	"(maxClientCnxns, 60 if it is not set)"

// failed notes why a server could not be used, and that all have failed.
func (s *session) failed(server string, err error) {
	var unknown x509Error
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[server] = failure{err, time.Now(), errors.As(err, &unknown) || errors.Is(err, errOtherProtocol)}
	var causes []string
	hopeless, serving := true, false
	for _, server := range s.backend.servers {
		f, ok := s.failures[server]
		if !ok || f.at.Before(s.taken) || f.at.Before(s.tried) {
			return
		}
		causes = append(causes, server+": "+strings.Join(strings.Fields(f.err.Error()), " "))
		hopeless = hopeless && f.hopeless
		serving = serving || errors.Is(f.err, errNotServing)
	}
	s.rounds++
	s.streak++
	s.tried = time.Now() // the next round counts from here
	all := strings.Join(causes, "; ")
	switch {
	case hopeless:
		s.outage = &refusal{fmt.Errorf("zookeeper: no server can be used: %s", all)}
	case serving:
		s.outage = fmt.Errorf("zookeeper: no server can be used (%s): %w: %w",
			all, errNotServing, driver.ErrUnavailable)
	default:
		s.outage = fmt.Errorf("zookeeper: no server can be used (%s): %w", all, driver.ErrUnavailable)
	}
	s.change()
}

// x509Error is what package tls says about certificates.
type x509Error = *tls.CertificateVerificationError

// errOtherProtocol is among the causes if one side speaks TLS and the other
// does not.
var errOtherProtocol = errors.New("one side speaks TLS, the other does not")

// stagger is how long a server has for itself before the next is tried, too.
const stagger = 20 * time.Millisecond

// dial implements [zk.Dialer]: it connects to the server that answers first, of
// all that are tried at nearly the same time. Those that failed last come last.
func (s *session) dial(string, string, time.Duration) (net.Conn, error) {
	if s.isOver() {
		// The driver would open a new session and carry on with what was
		// asked in the old one. A session that is over is never continued.
		return nil, errSessionOver
	}
	s.mu.Lock()
	servers := slices.Clone(s.servers)
	slices.SortStableFunc(servers, func(a, b string) int { return s.failures[a].at.Compare(s.failures[b].at) })
	patience := s.backend.patience()
	if s.streak == 0 && len(servers) > 1 {
		patience = min(patience, time.Second) // another may answer sooner
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	type dialed struct {
		server string
		conn   net.Conn
		err    error
	}
	answers := make(chan dialed)
	for i, server := range servers {
		s.goroutines.Go(func() {
			select {
			case <-time.After(time.Duration(i) * stagger):
			case <-ctx.Done():
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
	for left := servers; ; {
		select {
		case a := <-answers:
			if a.err == nil {
				return newLink(s, a.conn, a.server, patience), nil
			}
			if errors.Is(a.err, syscall.EPIPE) || errors.Is(a.err, syscall.ECONNRESET) {
				a.err = fmt.Errorf("%w (%w): %s", errNotServing, a.err, whyNotServing) // it hung up sooner than we looked
			}
			s.failed(a.server, a.err)
			left = slices.DeleteFunc(slices.Clone(left), func(server string) bool { return server == a.server })
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

var errSessionOver = errors.New("the session is over")

// dial connects to a server, by the caller's function or TCP, and TLS.
func (o *Options) dial(ctx context.Context, server string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = dialTCP
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
		var certificate x509Error
		if ctx.Err() == nil && !errors.As(err, &certificate) {
			return nil, fmt.Errorf("TLS: %w: if this is the port without TLS (clientPort), write zookeeper:// "+
				"or give the one with it (secureClientPort)", err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
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
			host, port = strings.Trim(s, "[]"), strconv.Itoa(zk.DefaultPort)
		}
		if host == "" {
			return nil, fmt.Errorf("the server %q has no host: write host:port", s)
		}
		all = append(all, net.JoinHostPort(host, cmp.Or(port, strconv.Itoa(zk.DefaultPort))))
	}
	return all, nil
}
