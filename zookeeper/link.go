package zookeeper

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
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

	mu       sync.Mutex
	greeted  bool
	reads    limit
	writes   limit
	head     []byte        // the answer to the greeting, as far as it came
	restore  chan struct{} // closed when the driver has sent its watches again; nil: it has none
	restored bool
	asked    bool // a request was sent on this link

	// Of the driver's goroutine that reads.
	left  int  // of the packet that is read; 0: its length comes next
	whole bool // nothing of the packet has been read
	blind bool // the packets are not told apart any more
}

// Operation codes of the protocol.
const (
	opSetAuth    = 100
	opSetWatches = 101
)

// greetingEnd is where the parts of the answer that matter end: length,
// protocol version, timeout, session ID.
const greetingEnd = 4 + 4 + 4 + 8

func newLink(s *session, conn net.Conn, server string, patience time.Duration) *link {
	l := &link{Conn: conn, in: bufio.NewReaderSize(conn, readAhead), session: s, server: server, began: time.Now()}
	// A server that accepts and says nothing must not be waited for.
	_ = conn.SetDeadline(l.began.Add(patience))
	if s.watches.any() {
		l.restore = make(chan struct{})
	}
	return l
}

// readAhead is what is read at once at most, of answers that wait.
const readAhead = 8 << 10

// limit is a deadline of one direction. The driver sets it before each packet
// and takes it back after; moved a little now and then it does the same, for
// less. Its zero value is none.
type limit struct {
	at    time.Time
	slack time.Duration // how much earlier it may be than the driver asks for
}

// moves reports whether the deadline has to be set.
func (d *limit) moves(t time.Time) bool {
	if t.IsZero() || t.Sub(d.at) < d.slack {
		return false
	}
	d.at = t
	return true
}

// SetReadDeadline does nothing during the greeting, which has its own.
func (l *link) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	set := l.greeted && l.reads.moves(t)
	l.mu.Unlock()
	if !set {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
}

// SetWriteDeadline does nothing during the greeting, which has its own.
func (l *link) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	set := l.greeted && l.writes.moves(t)
	l.mu.Unlock()
	if !set {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

// Write passes on one packet: the driver writes each by itself.
func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greeted && len(p) >= 12 {
		switch binary.BigEndian.Uint32(p[8:]) {
		case opSetAuth:
		case opSetWatches:
			if l.restore != nil && !l.restored {
				l.restored = true
				close(l.restore)
			}
		default:
			l.asked = true
		}
	}
	return n, err
}

// Read looks at the answer to the greeting as it passes.
func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	read := l.in.Read
	if l.greeted {
		// The driver asks for a whole length or a whole packet, and waits for it.
		read = func(p []byte) (int, error) { return io.ReadFull(l.in, p) }
	}
	l.mu.Unlock()
	n, err := read(p)
	l.mu.Lock()
	if !l.greeted {
		l.head = append(l.head, p[:n]...)
		if err != nil {
			l.mu.Unlock()
			l.session.linkFailed(l.server, fmt.Errorf("the server did not take up the session: %w", err))
			return n, err
		}
		l.greet()
		l.mu.Unlock()
		return n, err
	}
	l.follow(p[:n])
	restore := l.restore
	if !l.asked || l.restored {
		restore = nil
	}
	l.mu.Unlock()
	if restore != nil {
		// The driver reads a number without a lock when it sends its watches
		// again, and writes it when the first answer comes: the answer waits.
		timer := time.NewTimer(restorePatience)
		defer timer.Stop()
		select {
		case <-restore:
		case <-timer.C:
		}
	}
	return n, err
}

// follow looks at the answers that pass, for what the driver does not tell: the
// number of the transaction that created a node, which is the node's czxid. A
// packet that does not come in one piece is let go; the czxid is then asked for.
func (l *link) follow(p []byte) {
	switch {
	case l.blind || len(p) == 0:
	case l.left > 0:
		if l.whole && len(p) == l.left {
			l.lookAt(p)
		}
		l.left, l.whole = l.left-len(p), false
		l.blind = l.left < 0
	case len(p) == 4:
		l.left, l.whole = int(binary.BigEndian.Uint32(p)), true
	default:
		l.blind = true
	}
}

// lookAt notes the answer to the creation of a lock's node: a header of xid,
// zxid and error, and the path.
func (l *link) lookAt(p []byte) {
	const header, length = 16, 4
	if len(p) <= header+length || binary.BigEndian.Uint32(p[12:]) != 0 || int(binary.BigEndian.Uint32(p[header:])) != len(p)-header-length {
		return
	}
	if path := p[header+length:]; bytes.Contains(path, []byte(lockMark)) {
		l.session.created(string(path), int64(binary.BigEndian.Uint64(p[4:])))
	}
}

const restorePatience = 100 * time.Millisecond

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
	l.reads.slack, l.writes.slack = timeout/20, timeout/20
	id := int64(binary.BigEndian.Uint64(l.head[12:]))
	l.head = nil
	l.session.greeted(l, id, timeout)
}
