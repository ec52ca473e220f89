package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/clock"
)

// hosts is a session in the role of the driver's list of servers. The driver sees
// a single server, and dial decides which of them it connects to.
type hosts session

var _ zk.HostProvider = (*hosts)(nil)

func (*hosts) Init([]string) error { return nil }
func (*hosts) Len() int            { return 1 }
func (*hosts) Connected()          {}

// The pauses between two rounds through all servers.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Next implements [zk.HostProvider]. It pauses when all servers have failed. A
// session that is over gets no server: startAgain makes the driver check whether it
// has been closed, and give up.
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

// failed notes why a server could not be used, and for how long it hung.
func (s *session) failed(server string, err error, hung time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers.failed(server, err, hung, time.Now()) {
		s.change()
	}
}

const (
	// stagger is the head start of each server over the next one.
	stagger = 20 * time.Millisecond
	// maxUngreeted is how long a connection waits for its greeting at most. Servers end one that has said nothing for
	// 10 s (zookeeper.nio.sessionlessCnxnTimeout).
	maxUngreeted = 5 * time.Second
	// maxHanging is how many calls of a caller's function for one server may go on a second after their time was over,
	// since they heed no context, before no more are made.
	maxHanging = 4
)

// dials are the connections that are being made until a server takes up the session: one that is there sooner than the
// others, and does not take it up, must not keep them out. Those that have not begun by then do not begin. They belong
// to the driver's goroutine.
type dials struct {
	ctx     context.Context
	stop    context.CancelFunc
	under   map[string]*dialed // by server
	answers chan *dialed
}

type dialed struct {
	server         string
	patience, hung time.Duration
	begun          atomic.Bool // or not to begin any more
	conn           net.Conn
	err            error
}

// dial implements [zk.Dialer]. It tries all servers at nearly the same time, those
// that failed last at the end, and connects to the first that answers.
func (s *session) dial(string, string, time.Duration) (net.Conn, error) {
	if s.isOver() {
		return nil, s.Err() // the driver would open a new session, and send the requests of this one there
	}
	if s.dials == nil {
		ctx, stop := context.WithCancel(s.Context())
		s.dials = &dials{ctx, stop, map[string]*dialed{}, make(chan *dialed)}
	}
	all := s.dials
	s.mu.Lock()
	for i, server := range s.servers.order(time.Now()) {
		if all.under[server] == nil {
			d := &dialed{server: server, patience: s.servers.patience(server, s.backend.patience())}
			all.under[server] = d
			s.goroutines.Go(func() { s.keepDialed(all, d, time.Duration(i)*stagger) })
		}
	}
	s.mu.Unlock()
	var err error
	for len(all.under) > 0 {
		select {
		case d := <-all.answers:
			delete(all.under, d.server)
			if err = d.err; err == nil {
				maps.DeleteFunc(all.under, func(_ string, other *dialed) bool { return other.begun.CompareAndSwap(false, true) })
				return newLink(s, d.conn, d.server, d.patience), nil
			}
			switch {
			case d.hung > 0:
				err = fmt.Errorf("no connection after %v", d.hung)
			case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
				err = fmt.Errorf("%w (%w): %s", errNotServing, err, whyNotServing) // it hung up at once
			}
			s.failed(d.server, err, d.hung)
		case <-all.ctx.Done():
			return nil, all.ctx.Err()
		}
	}
	return nil, err
}

// keepDialed dials one server after a while, unless another is there by then. A connection that waits for its turn, as
// while the others hang, is made anew before the server ends it.
func (s *session) keepDialed(all *dials, d *dialed, after time.Duration) {
	if clock.Sleep(all.ctx, after) != nil || !d.begun.CompareAndSwap(false, true) {
		return
	}
	for {
		var stale <-chan time.Time
		if s.dialOne(all.ctx, d); d.err == nil {
			stale = time.After(maxUngreeted)
		}
		select {
		case all.answers <- d:
			return
		case <-stale:
		case <-all.ctx.Done():
		}
		if d.conn != nil {
			_ = d.conn.Close()
		}
		if all.ctx.Err() != nil {
			return
		}
	}
}

// dialOne dials one server once. It returns in time even if the caller's function does not.
func (s *session) dialOne(ctx context.Context, d *dialed) {
	limited, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	answer := make(chan func())
	some, _ := s.backend.hanging.LoadOrStore(d.server, new(atomic.Int32))
	if hanging := some.(*atomic.Int32); hanging.Load() < maxHanging {
		s.goroutines.Go(func() {
			hangs := time.AfterFunc(d.patience+time.Second, func() { hanging.Add(1) })
			conn, err := s.backend.opts.dial(limited, d.server)
			if !hangs.Stop() {
				hanging.Add(-1)
			}
			select {
			case answer <- func() { d.conn, d.err = conn, err }:
			case <-limited.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		})
	}
	select {
	case set := <-answer:
		set()
	case <-limited.Done():
		d.conn, d.err = nil, limited.Err()
	}
	if d.err != nil && limited.Err() != nil {
		d.hung = d.patience
	}
}

// endDials gives up the connections that are being made.
func (s *session) endDials() {
	if s.dials != nil {
		s.dials.stop()
		s.dials = nil
	}
}

// dial connects to a server, with the caller's function or TCP, and with TLS if that is wanted.
func (o *Options) dial(ctx context.Context, server string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, server)
	switch {
	case err != nil:
		return nil, err // beside it, a caller's function may return a nil pointer as a connection
	case o.TLS == nil:
		return conn, nil
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

// checkServers returns the addresses, each with its port.
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
