package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts tells the driver which server to try next, and how soon. Unlike the
// driver's own list it does not pause for a second before it goes back to the
// only server that there is, and names are looked up again for each
// connection. All its methods but Len are called by one goroutine of the
// driver.
type hosts struct {
	session *session
	servers []string
	next    int
	tried   int // since the last success
}

var _ zk.HostProvider = (*hosts)(nil)

// Pauses between two rounds through all servers.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

func newHosts(s *session, servers []string) *hosts {
	h := &hosts{session: s, servers: slices.Clone(servers)}
	rand.Shuffle(len(h.servers), func(i, j int) { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] })
	return h
}

// Init implements [zk.HostProvider].
func (h *hosts) Init([]string) error { return nil }

// Len implements [zk.HostProvider].
func (h *hosts) Len() int { return len(h.servers) }

// Connected implements [zk.HostProvider].
func (h *hosts) Connected() { h.tried = 0 }

// Next implements [zk.HostProvider]. It pauses when every server has failed.
// A session that is over gets no server any more: "start again" makes the
// driver look whether it is closed, and give up.
func (h *hosts) Next() (server string, startAgain bool) {
	s := h.session
	if h.tried > 0 && h.tried%len(h.servers) == 0 {
		s.roundFailed()
		pause := firstPause
		for range min(h.tried/len(h.servers)-1, 7) {
			pause *= 2
		}
		pause = min(pause, lastPause, s.backend.opts.SessionTimeout/10)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.dead:
		case <-s.hurry:
			s.pause(5 * firstPause)
		}
	}
	if h.tried%len(h.servers) == 0 {
		s.roundBegins()
	}
	h.tried++
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	return server, s.isDead()
}

// dial implements [zk.Dialer] for the session's connections.
func (s *session) dial(_, server string, _ time.Duration) (net.Conn, error) {
	if s.isDead() {
		// The driver would open a new session and carry on with what was
		// asked in the old one. A session that is over is never continued.
		return nil, errSessionOver
	}
	patience := s.backend.patience()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	conn, err := s.backend.opts.dial(ctx, server)
	if err != nil {
		s.linkFailed(server, err)
		return nil, err
	}
	l := newLink(s, conn, server, patience)
	s.opened(l)
	return l, nil
}

var errSessionOver = errors.New("the session is over")

// dial connects to a server, by the caller's function or TCP, and TLS.
func (o *Options) dial(ctx context.Context, server string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		var d net.Dialer
		dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
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
			host, port = strings.Trim(s, "[]"), strconv.Itoa(zk.DefaultPort)
		}
		if host == "" {
			return nil, fmt.Errorf("the server %q has no host: write host:port", s)
		}
		all = append(all, net.JoinHostPort(host, port))
	}
	return all, nil
}
