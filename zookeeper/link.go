package zookeeper

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"
)

// link is one TCP (or TLS) connection of a session, as the driver sees it. It looks at the head of each packet that
// passes, for what the driver keeps to itself: the session's ID and its granted timeout in the answer to the greeting,
// and the answer to the request that ends the session. It knows when the greeting was sent.
//
// The driver greets on one goroutine, and starts those that send and receive afterwards.
type link struct {
	net.Conn
	session  *session
	server   string
	began    time.Time     // read before the greeting was sent (R1)
	greeting *time.Timer   // gives up the connection; nil: the greeting was answered
	in       *bufio.Reader // the driver reads each packet in two parts
	rest     int           // what is left of the packet that is being read

	mu      sync.Mutex
	closing []byte        // the number of the request that ends the session; nil: it was not sent
	restore chan struct{} // closed when the driver has sent its watches again; nil: it has none, or has
	asked   bool          // a request was sent
}

// Operation codes of the protocol.
const (
	opClose      = -11
	opSetAuth    = 100
	opSetWatches = 101
)

// packetHead is how much of a packet is looked at: its length, and 16 bytes. Those are the protocol's version,
// timeout and session ID in the answer to a greeting, and number, transaction and error in each other answer.
const packetHead = 4 + 16

func newLink(s *session, conn net.Conn, server string, patience time.Duration) *link {
	l := &link{Conn: conn, in: bufio.NewReader(conn), session: s, server: server, began: time.Now()}
	// The driver would wait for the answer to its greeting for many session timeouts.
	l.greeting = l.within(patience, fmt.Errorf("%w within %v", errNotServing, patience))
	s.mu.Lock()
	if len(s.watched) > 0 {
		l.restore = make(chan struct{})
	}
	s.latest = l
	s.mu.Unlock()
	if s.isOver() {
		l.abort()
	}
	return l
}

// within has the driver try another server if the returned timer is not stopped in time, because of err.
func (l *link) within(patience time.Duration, err error) *time.Timer {
	return time.AfterFunc(patience, func() {
		l.session.failed(l.server, err)
		l.abort()
	})
}

// Write passes on one packet: the driver writes each by itself. What it is is noted first: the answer may be
// there before the driver is told that it was sent.
func (l *link) Write(p []byte) (int, error) {
	if l.greeting != nil {
		n, err := l.Conn.Write(p)
		return n, l.notTakenUp(err)
	}
	l.mu.Lock()
	if len(p) >= 12 {
		switch int32(binary.BigEndian.Uint32(p[8:])) {
		case opSetAuth:
		case opSetWatches:
			if l.restore != nil {
				close(l.restore)
				l.restore = nil
			}
		case opClose:
			l.closing = bytes.Clone(p[4:8])
			fallthrough
		default:
			l.asked = true
		}
	}
	l.mu.Unlock()
	return l.Conn.Write(p)
}

// Read looks at a packet as soon as its head is there.
func (l *link) Read(p []byte) (int, error) {
	if l.rest == 0 {
		head, err := l.in.Peek(packetHead)
		if err == nil && l.greeting != nil {
			_, err = l.in.Peek(packetLength(head)) // an answer that is cut off is none
		}
		switch {
		case l.greeting != nil && err != nil:
			return 0, l.notTakenUp(err)
		case err != nil:
			return 0, err
		case l.greeting != nil:
			l.greet(head)
		default:
			l.follow(head)
		}
		l.rest = packetLength(head)
	}
	n, err := l.in.Read(p[:min(len(p), l.rest)])
	l.rest -= n
	return n, err
}

func packetLength(head []byte) int { return 4 + int(min(binary.BigEndian.Uint32(head), maxAnswer)) }

// greet notes that the server has taken up the session.
func (l *link) greet(head []byte) {
	inTime := l.greeting.Stop()
	l.greeting = nil
	timeout := time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(head[12:]))
	if id == 0 || !inTime {
		return // the session has expired, which the driver tells; or the connection is closed
	}
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready && s.timeout != timeout { // this server has another bound than the one before
		s.Open(time.Time{}, timeout, terms(timeout))
	}
	s.id, s.timeout, s.link = id, timeout, l
	s.servers.taken(time.Now())
	s.proof.begin(l, guardTime(timeout, s.backend.opts.SessionTimeout))
	close(s.relinked)
	s.relinked = make(chan struct{})
	s.change()
	s.Hurry() // the first write proves the greeting
}

// follow looks for the service's word that it has ended the session, and holds back the first answers.
func (l *link) follow(head []byte) {
	l.mu.Lock()
	restore, asked := l.restore, l.asked
	ended := bytes.Equal(head[4:8], l.closing) && binary.BigEndian.Uint32(head[16:]) == 0
	l.mu.Unlock()
	if ended {
		l.session.Ended()
	}
	if restore != nil && asked {
		// The driver reads a number without a lock when it sends its watches
		// again, and writes it when the first answer comes: the answer waits.
		select {
		case <-restore:
		case <-time.After(l.session.backend.patience() / 2): // it had none after all
		}
		l.mu.Lock()
		l.restore = nil
		l.mu.Unlock()
	}
}

// notTakenUp notes why a server that was there did not take up the session, unless it was given up: then that is why.
func (l *link) notTakenUp(err error) error {
	if err == nil || !l.greeting.Stop() {
		return err
	}
	switch {
	case l.in.Buffered() > 0:
		err = fmt.Errorf("%w: its answer was cut off: %w", errNotServing, err)
	case l.session.speaksTLS(l.server):
		err = fmt.Errorf("%w: this port is for TLS: write zookeepers://, or give the port without it (clientPort)",
			errOtherProtocol)
	default:
		err = hungUp(err)
	}
	l.session.failed(l.server, err)
	return err
}

// abort closes the connection without a word, which TLS would wait to say.
func (l *link) abort() {
	conn := l.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}
