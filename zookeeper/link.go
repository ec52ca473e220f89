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
type link struct {
	net.Conn
	session *session
	server  string
	began   time.Time     // read before the greeting was sent (R1)
	in      *bufio.Reader // the driver reads each packet in two parts

	mu      sync.Mutex
	greeted bool
	head    []byte        // what matters of the answer to the greeting, and then of each other, as far as it came
	rest    int           // of an answer, which does not matter
	closing []byte        // the number of the request that ends the session; nil: it was not sent
	restore chan struct{} // closed when the driver has sent its watches again; nil: it has none, or has
	asked   bool          // a request was sent on this link
}

// Operation codes of the protocol.
const (
	opClose      = -11
	opSetAuth    = 100
	opSetWatches = 101
)

const (
	// greetingEnd is where the parts of the answer that matter end: length,
	// protocol version, timeout, session ID.
	greetingEnd = 4 + 4 + 4 + 8
	// answerHead is what each other answer begins with: length, number of the request, transaction, error.
	answerHead  = 4 + afterLength
	afterLength = 4 + 8 + 4
)

func newLink(s *session, conn net.Conn, server string, patience time.Duration) *link {
	l := &link{Conn: conn, in: bufio.NewReader(conn), session: s, server: server, began: time.Now()}
	// A server that accepts and says nothing must not be waited for.
	_ = conn.SetDeadline(l.began.Add(patience))
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

// SetReadDeadline does nothing during the greeting, which has its own.
func (l *link) SetReadDeadline(t time.Time) error { return l.afterwards(l.Conn.SetReadDeadline, t) }

// SetWriteDeadline does nothing during the greeting, which has its own.
func (l *link) SetWriteDeadline(t time.Time) error { return l.afterwards(l.Conn.SetWriteDeadline, t) }

func (l *link) afterwards(set func(time.Time) error, t time.Time) error {
	l.mu.Lock()
	greeted := l.greeted
	l.mu.Unlock()
	if !greeted {
		return nil
	}
	return set(t)
}

// Write passes on one packet: the driver writes each by itself. What it is is noted first: the answer may be
// there before the driver is told that it was sent.
func (l *link) Write(p []byte) (int, error) {
	l.mu.Lock()
	greeting := !l.greeted
	if !greeting && len(p) >= 12 {
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
	n, err := l.Conn.Write(p)
	if err != nil && greeting {
		l.session.failed(l.server, l.notTakenUp(err, false))
	}
	return n, err
}

// Read looks at the answers to the greeting and to the end of the session as they pass.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	l.mu.Lock()
	if !l.greeted {
		l.head = append(l.head, p[:n]...)
		heard := len(l.head) > 0
		if err == nil {
			l.greet()
		}
		l.mu.Unlock()
		if err != nil {
			l.session.failed(l.server, l.notTakenUp(err, heard))
		}
		return n, err
	}
	l.follow(p[:n])
	restore, asked := l.restore, l.asked
	l.mu.Unlock()
	if restore != nil && asked {
		// The driver reads a number without a lock when it sends its watches
		// again, and writes it when the first answer comes: the answer waits.
		select {
		case <-restore:
		case <-time.After(l.session.backend.patience() / 4): // it had none after all
		}
		l.mu.Lock()
		l.restore = nil
		l.mu.Unlock()
	}
	return n, err
}

// follow looks for the service's word that it has ended the session. l.mu is held.
func (l *link) follow(p []byte) {
	for len(p) > 0 {
		n := min(l.rest, len(p))
		l.rest, p = l.rest-n, p[n:]
		n = min(answerHead-len(l.head), len(p))
		l.head, p = append(l.head, p[:n]...), p[n:]
		if len(l.head) < answerHead {
			continue
		}
		if bytes.Equal(l.head[4:8], l.closing) && binary.BigEndian.Uint32(l.head[16:]) == 0 {
			l.session.Ended()
		}
		l.rest, l.head = max(int(binary.BigEndian.Uint32(l.head))-afterLength, 0), l.head[:0]
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

// greet looks whether the answer to the greeting is complete. l.mu is held.
func (l *link) greet() {
	if len(l.head) < greetingEnd || len(l.head) < 4+int(binary.BigEndian.Uint32(l.head)) {
		return
	}
	l.greeted = true
	_ = l.SetDeadline(time.Time{})
	timeout := time.Duration(int32(binary.BigEndian.Uint32(l.head[8:]))) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(l.head[12:]))
	l.head = nil
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
