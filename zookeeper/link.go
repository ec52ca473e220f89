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
	"sync/atomic"
	"time"
)

// link is one TCP (or TLS) connection of a session, as the driver sees it. It bounds
// the wait for the answer to the greeting, for which the driver would wait many session
// timeouts. From that answer it takes what the driver keeps to itself: the session's ID
// and password, and the granted timeout. And it knows when the greeting was sent.
//
// It also hides a number from the driver: that of the last transaction that the session
// has seen. The driver would write it with each answer, and reads it without a lock, on
// another goroutine, when it sets its watches again on a new connection: a data race. So
// the link takes the number out of the answers, so that the driver never writes it, and
// puts the session's own into the greeting and the requests that set watches.
type link struct {
	net.Conn
	session *session
	server  string
	began   time.Time     // read before the greeting was sent (R1)
	seen    int64         // the number of the last transaction, as it was then
	in      *bufio.Reader // belongs to the goroutine that reads, as does rest
	rest    int           // how much is left of the packet that is being read

	greeted atomic.Bool             // the greeting has been answered
	closing atomic.Pointer[[4]byte] // the number of the request that closes the session; nil: it was not sent
}

// Operation codes of the protocol.
const (
	opClose      = -11
	opSetWatches = 101
)

// packetHead is the part of a server's packet that is parsed: its length, and 16 bytes. In
// the answer to a greeting, these are the protocol's version, the timeout and the session's
// ID; in others, the numbers of the request and of the transaction, and the error.
const packetHead = 4 + 16

var errOtherServer = errors.New("it does not speak ZooKeeper's protocol")

func packetLength(head []byte) int { return 4 + int(min(binary.BigEndian.Uint32(head), maxAnswer)) }

func newLink(s *session, conn net.Conn, server string, patience time.Duration) *link {
	l := &link{
		Conn: conn, in: bufio.NewReader(conn), session: s, server: server, began: time.Now(), seen: s.seen.Load(),
	}
	// A server may accept and say nothing.
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
	if !l.greeted.Load() {
		return nil
	}
	return set(t)
}

// Write passes on one packet: the driver writes each with one call. A request that closes the session is noted before
// it is sent, since its answer may come before Write returns.
func (l *link) Write(p []byte) (int, error) {
	if !l.greeted.Load() {
		n, err := l.Conn.Write(l.numbered(p, 8)) // behind its length, and the protocol's version
		if err != nil {
			l.notTakenUp(err, false)
		}
		return n, err
	}
	if len(p) >= 12 {
		switch int32(binary.BigEndian.Uint32(p[8:])) {
		case opSetWatches:
			p = l.numbered(p, 12) // behind its length, its number, and the operation
		case opClose:
			request := [4]byte(p[4:])
			l.closing.Store(&request)
		}
	}
	return l.Conn.Write(p)
}

// numbered returns a copy of a packet that has the number of the last transaction at that place.
func (l *link) numbered(p []byte, at int) []byte {
	p = bytes.Clone(p)
	if len(p) >= at+8 {
		binary.BigEndian.PutUint64(p[at:], uint64(l.seen))
	}
	return p
}

// Read parses each packet as soon as its head is there, and the answer to a greeting when it is complete.
func (l *link) Read(p []byte) (int, error) {
	if l.rest == 0 {
		head, err := l.in.Peek(packetHead)
		greeted := l.greeted.Load()
		if err == nil && packetLength(head) < packetHead {
			err = errOtherServer
		}
		if err == nil && !greeted {
			head, err = l.in.Peek(packetLength(head))
		}
		switch {
		case err != nil && !greeted:
			l.notTakenUp(err, l.in.Buffered() > 0)
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

// follow takes the number of the transaction out of an answer, in the buffer, and notices the answer that the session
// has been closed.
func (l *link) follow(head []byte) {
	request, zxid := int32(binary.BigEndian.Uint32(head[4:])), int64(binary.BigEndian.Uint64(head[8:]))
	if request >= 0 && zxid > 0 { // not in events and pings
		l.session.seen.Store(zxid)
	}
	clear(head[8:16])
	closing := l.closing.Load()
	if closing != nil && *closing == [4]byte(head[4:]) && binary.BigEndian.Uint32(head[16:]) == 0 {
		l.session.Ended()
	}
}

// notTakenUp notes why a server that accepted the connection did not take up the session.
func (l *link) notTakenUp(err error, heard bool) {
	var timeout net.Error
	var hung time.Duration
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		hung = time.Since(l.began).Round(time.Millisecond)
		err = fmt.Errorf("%w within %v: %w", errNotServing, hung, err)
	case heard:
		err = fmt.Errorf("%w: %w", errNotServing, err)
	case l.session.speaksTLS(l.server):
		err = fmt.Errorf("%w: this port is for TLS: write zookeepers://, or give the port without it (clientPort)",
			errOtherProtocol)
	default:
		err = fmt.Errorf("%w (%w): %s", errNotServing, err, whyNotServing)
	}
	l.session.failed(l.server, err, hung)
}

// speaksTLS finds out whether a server that hung up speaks TLS. It tries that once,
// before any server has taken up the session.
func (s *session) speaksTLS(server string) bool {
	s.mu.Lock()
	known := s.timeout != 0 || s.servers.streak > 0 || s.backend.opts.TLS != nil
	s.mu.Unlock()
	if known {
		return false
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is sent but TLS's own greeting
	o := Options{Dial: s.backend.opts.Dial, TLS: config}
	conn, err := o.dial(ctx, server)
	if err == nil {
		_ = conn.Close()
	}
	var alert tls.AlertError
	return err == nil || errors.As(err, &alert)
}

// abort closes the connection without TLS's goodbye, which could block.
func (l *link) abort() {
	conn := l.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// greet notes what a server answers to the greeting.
func (l *link) greet(head []byte) {
	_ = l.SetDeadline(time.Time{}) // before the driver can set its own
	l.greeted.Store(true)
	l.session.endDials()
	timeout := time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(head[12:]))
	if id == 0 {
		return // the session has expired, as the driver reports
	}
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready && s.timeout != timeout { // this server has another bound than the previous one
		s.Open(time.Time{}, timeout, terms(timeout))
	}
	s.id, s.timeout, s.link = id, timeout, l
	s.servers.taken(l.server, time.Now())
	s.proof.begin(l, guardTime(timeout, s.backend.opts.SessionTimeout))
	close(s.relinked)
	s.relinked = make(chan struct{})
	s.change()
	s.Hurry() // the first write proves the greeting
}
