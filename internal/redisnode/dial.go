package redisnode

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer connects as the driver does by itself, with errors that say more, and less.
//
// They name an address only if it is not one of known, the addresses of a URL, nor a socket: an [Error] says those, and
// the driver prints errors of dialing to standard error, where perhaps nobody expects what a URL has in the host's place, such
// as half of a password that was not escaped. Others are those that Sentinels and Clusters name.
//
// And they have the words of a server that hangs up as soon as it is connected to, since it has too many clients.
func Dialer(
	config *tls.Config, timeout time.Duration, known ...string,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: config})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		switch {
		case err == nil:
			if _, plain := conn.(syscall.Conn); !plain {
				return conn, nil // over TLS there is no farewell: the server hangs up before the handshake
			}
			again := context.WithoutCancel(ctx)
			return &listener{Conn: conn, again: func() (net.Conn, error) { return dial(again, network, addr) }}, nil
		case network == "unix", slices.Contains(known, addr):
			return nil, &dialError{"cannot connect: ", err}
		}
		return nil, &dialError{"cannot connect to " + addr + ": ", err}
	}
}

type dialError struct {
	what string
	err  error
}

func (e *dialError) Error() string {
	var dial *net.OpError
	var name *net.DNSError
	var addr *net.AddrError
	switch {
	case errors.As(e.err, &name):
		return e.what + name.Err
	case errors.As(e.err, &addr):
		return e.what + addr.Err
	case errors.As(e.err, &dial) && dial.Op == "dial":
		return e.what + dial.Err.Error()
	}
	return e.what + e.err.Error()
}

func (e *dialError) Unwrap() error { return e.err }

// farewellError is what a server says before it hangs up on a client that it has not read from.
type farewellError string

func (e farewellError) Error() string { return string(e) }

// farewells are how such replies begin: of one that has as many clients as it may, and of one that expects only
// clients of its own host (protected-mode).
var farewells = [][]byte{[]byte("-ERR max number of clients"), []byte("-DENIED ")}

// farewellIn returns what is said in b, if it is a farewell.
func farewellIn(b []byte) error {
	if !slices.ContainsFunc(farewells, func(f []byte) bool { return bytes.HasPrefix(b, f) }) {
		return nil
	}
	line, _, _ := bytes.Cut(b[1:], []byte("\r\n"))
	first, _, _ := bytes.Cut(line, []byte(". ")) // that of protected-mode goes on for a page
	return farewellError(first)
}

// listener is a connection whose first words may be a farewell, which is then the error of all that comes after.
// The driver would take them for the answer to HELLO, go on without it, and report that it cannot write. They may also
// be lost, since the server has not read what the driver wrote; then another connection is asked, and nothing is
// written to it.
type listener struct {
	net.Conn
	again    func() (net.Conn, error)
	heard    atomic.Bool // the server has said something, or never will
	farewell atomic.Value
}

// SyscallConn implements [syscall.Conn], by which the driver looks whether an idle connection still stands.
func (l *listener) SyscallConn() (syscall.RawConn, error) { return l.Conn.(syscall.Conn).SyscallConn() }

func (l *listener) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err == nil && !l.heard.Swap(true) {
		if err = farewellIn(b[:n]); err != nil {
			l.farewell.Store(err)
			return 0, err
		}
	}
	return n, l.why(err)
}

func (l *listener) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	return n, l.why(err)
}

// farewellTime is how long a farewell is waited for.
const farewellTime = 250 * time.Millisecond

// why returns the farewell of a server that has hung up, if there was one, or else err.
func (l *listener) why(err error) error {
	if !isHangUp(err) {
		return err
	}
	if !l.heard.Swap(true) {
		if conn, failed := l.again(); failed == nil {
			defer func() { _ = conn.Close() }()
			var b [256]byte
			_ = conn.SetReadDeadline(time.Now().Add(farewellTime))
			n, _ := conn.Read(b[:])
			if said := farewellIn(b[:n]); said != nil {
				l.farewell.Store(said)
			}
		}
	}
	said, _ := l.farewell.Load().(error)
	return cmp.Or(said, err)
}

// Hint says what an error of the first contact often means. plain and secure are the schemes of a URL without TLS and
// with it.
func Hint(err error, overTLS bool, plain, secure string) string {
	var timeout net.Error
	late := errors.Is(err, ErrTimeout) || errors.As(err, &timeout) && timeout.Timeout()
	switch hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); {
	case !overTLS && hungUp:
		return " (if the server wants TLS, write " + secure + ")"
	case overTLS && hungUp:
		return " (if the server does not speak TLS, write " + plain + "; one that has as many clients as its maxclients " +
			"allows hangs up, too)"
	case overTLS && late:
		return " (if the server does not speak TLS, write " + plain + ")"
	}
	return ""
}
