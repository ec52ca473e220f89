package redisconn

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is the cause of every error after Close.
var ErrClosed = errors.New("the connection is closed")

// ErrTimeout is the cause where the limit of a call passed without an answer.
var ErrTimeout = errors.New("no answer in time")

// ErrSilent is the cause where a request was not answered while later ones on
// other connections were, or not in the time that a caller alone waits: asking
// again is likely to help.
var ErrSilent = errors.New("no answer, and the connection is silent")

// Error is the error of every method of a Conn.
type Error struct {
	Op   string // "acquire", "renew", "release", "subscribe", …
	Addr string // the server, without a password
	Err  error  // the cause: of the network, the server's reply, the context's error, ErrClosed, ErrTimeout or ErrSilent

	// Unknown: the request may have been executed, or may yet be. Otherwise it
	// certainly was not and will not be.
	Unknown bool

	// Refused: the server or its configuration refuses (password, ACL, TLS, a
	// command it does not have), and will until somebody changes it, so that
	// trying again is no use. Otherwise the server could not be reached, or
	// cannot serve just now: trying again may help.
	Refused bool
}

// Error says where, what and why, in a line.
func (e *Error) Error() string { return "redis " + e.Addr + ": " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Failed makes an Error of a driver's.
func Failed(op, addr string, err error) *Error {
	class := classify(err)
	// A server that does not know a command repeats its arguments, and those of AUTH and HELLO are passwords.
	if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); found {
		err = errors.New(text)
	}
	if noMaster(err) {
		err = errors.New("the Sentinels are there, and watch no master of this name: give the name in their sentinel.conf as master_name")
	}
	return &Error{Op: op, Addr: addr, Err: err, Unknown: class.unknown, Refused: class.refused}
}

// failed is Failed for a request by way of n.
func (n *Conn) failed(op, addr string, err error) *Error {
	e := Failed(op, addr, err)
	if !n.IsCluster() && Moved(err) {
		e.Err, e.Refused = fmt.Errorf("the server is a node of a Redis Cluster, and the lock's key lives on another: use the scheme redis+cluster, or a ClusterClient: %w", err), true
	}
	return e
}
