package zookeeper

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// link is one TCP (or TLS) connection of a session, as the driver sees it. It
// bounds the greeting, which the driver leaves open for many session timeouts;
// it reads from it what the driver keeps to itself: the session's ID and the
// timeout that was granted; and it knows when the greeting was sent.
//
// It also hides a number from the driver: that of the last transaction that the session has
// seen. The driver would write it with each answer, and reads it without a lock, on another
// goroutine, when it sets its watches again on a new connection: nothing orders the two. So the
// link takes the number out of the answers, the driver never writes it, and the link puts the
// session's own into the greeting and into the requests that set watches.
type link struct {
	net.Conn
	session *session
	server  string
	began   time.Time     // read before the greeting was sent (R1)
	seen    int64         // the number, as it was then
	in      *bufio.Reader // of the goroutine that reads, as is
	rest    int           // what is left of the packet that it reads

	mu      sync.Mutex
	greeted bool
	closing []byte // the number of the request that ends the session; nil: it was not sent
}

// Operation codes of the protocol.
const (
	opClose      = -11
	opSetWatches = 101
)

// packetHead is how much of a packet from a server is looked at: its length, and 16 bytes.
// These are the protocol's version, the timeout and the session's ID in the answer to a
// greeting; the number of the request, that of the transaction, and the error in others.
const packetHead = 4 + 16

func packetLength(head []byte) int { return 4 + int(min(binary.BigEndian.Uint32(head), maxAnswer)) }

func newLink(s *session, conn net.Conn, server string, patience time.Duration) *link {
	l := &link{
		Conn: conn, in: bufio.NewReader(conn), session: s, server: server, began: time.Now(), seen: s.seen.Load(),
	}
	// A server that accepts and says nothing must not be waited for.
	_ = conn.SetDeadline(l.began.Add(patience))
	s.mu.Lock()
	s.latest = l
	s.mu.Unlock()
	if s.isOver() {
		l.abort()
	}
	return l
}

// SetReadDeadline does nothing during the greeting, which has its own.
func (l *link) SetReadDeadline(t time.Time) error { return l.afterwards(l.Conn.SetReadDeadline, t) }

// SetWriteDeadline does nothing during the greeting, which has its own.
func (l *link) SetWriteDeadline(t time.Time) error { return l.afterwards(l.Conn.SetWriteDeadline, t) }

func (l *link) afterwards(set func(time.Time) error, t time.Time) error {
	if !l.isGreeted() {
		return nil
	}
	return set(t)
}

func (l *link) isGreeted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.greeted
}

// Write passes on one packet: the driver writes each by itself. That the session is closed is noted first: the
// answer may be there before the driver is told that it was sent.
func (l *link) Write(p []byte) (int, error) {
	if !l.isGreeted() {
		n, err := l.Conn.Write(l.numbered(p, 8)) // behind its length, and the protocol's version
		if err != nil {
			l.session.failed(l.server, l.notTakenUp(err, false))
		}
		return n, err
	}
	if len(p) >= 12 {
		switch int32(binary.BigEndian.Uint32(p[8:])) {
		case opSetWatches:
			p = l.numbered(p, 12) // behind its length, its number, and the operation
		case opClose:
			l.mu.Lock()
			l.closing = bytes.Clone(p[4:8])
			l.mu.Unlock()
		}
	}
	return l.Conn.Write(p)
}

// numbered returns a packet with the number of the last transaction in its place.
func (l *link) numbered(p []byte, at int) []byte {
	p = bytes.Clone(p)
	if len(p) >= at+8 {
		binary.BigEndian.PutUint64(p[at:], uint64(l.seen))
	}
	return p
}

// Read looks at each packet as soon as its head is there, and at the answer to a greeting when it is complete.
func (l *link) Read(p []byte) (int, error) {
	if l.rest == 0 {
		head, err := l.in.Peek(packetHead)
		greeted := l.isGreeted()
		if err == nil && packetLength(head) < packetHead {
			err = errors.New("it does not speak ZooKeeper's protocol")
		}
		if err == nil && !greeted {
			head, err = l.in.Peek(packetLength(head))
		}
		switch {
		case err != nil && !greeted:
			l.session.failed(l.server, l.notTakenUp(err, l.in.Buffered() > 0))
			return 0, err
		case err != nil:
			return 0, err
		case greeted:
			l.follow(head)
		default:
			l.greet(head)
		}
		l.rest = packetLength(head)
	}
	n, err := l.in.Read(p[:min(len(p), l.rest)])
	l.rest -= n
	return n, err
}

// follow takes the number of the transaction out of an answer, where it lies in the buffer, and looks for the service's
// word that it has ended the session.
func (l *link) follow(head []byte) {
	request, zxid := int32(binary.BigEndian.Uint32(head[4:])), int64(binary.BigEndian.Uint64(head[8:]))
	if request >= 0 && zxid > 0 { // those of events and pings say less
		l.session.seen.Store(zxid)
	}
	clear(head[8:16])
	l.mu.Lock()
	ended := bytes.Equal(head[4:8], l.closing) && binary.BigEndian.Uint32(head[16:]) == 0
	l.mu.Unlock()
	if ended {
		l.session.Ended()
	}
}

// notTakenUp says why a server that was there did not take up the session.
func (l *link) notTakenUp(err error, heard bool) error {
	var timeout net.Error
	switch {
	case heard, errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w within %v: %w", errNotServing, time.Since(l.began).Round(time.Millisecond), err)
	case l.session.speaksTLS(l.server):
		return fmt.Errorf("%w: this port is for TLS: write zookeepers://, or give the port without it (clientPort)",
			errOtherProtocol)
	}
	return fmt.Errorf("%w (%w): %s", errNotServing, err, whyNotServing)
}

// speaksTLS tries whether a server that hung up speaks TLS. It is asked once, before
// any server has taken up the session.
func (s *session) speaksTLS(server string) bool {
	s.mu.Lock()
	known := s.timeout != 0 || s.servers.streak > 0 || s.backend.opts.TLS != nil
	s.mu.Unlock()
	if known {
		return false
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is sent but the greeting of TLS
	o := Options{Dial: s.backend.opts.Dial, TLS: config}
	conn, err := o.dial(ctx, server)
	if err == nil {
		_ = conn.Close()
	}
	var alert tls.AlertError
	return err == nil || errors.As(err, &alert)
}

// abort closes the connection without a word, which TLS would wait to say.
func (l *link) abort() {
	conn := l.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// greet notes what a server says that was greeted.
func (l *link) greet(head []byte) {
	l.mu.Lock()
	l.greeted = true
	_ = l.SetDeadline(time.Time{})
	l.mu.Unlock()
	timeout := time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(head[12:]))
	if id == 0 {
		return // the session has expired; the driver tells
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
