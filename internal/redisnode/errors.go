package redisnode

import (
	"errors"
	"strings"
)

// ErrClosed is the cause of every error after Close.
var ErrClosed = errors.New("the node is closed")

// ErrTimeout is the cause where Options.Timeout passed without an answer.
var ErrTimeout = errors.New("no answer in time")

// Error is the error of every method of a Node.
type Error struct {
	Op   string // "acquire", "wait for replicas", "renew", "release", "inspect", "subscribe", "info"
	Addr string // the server, without a password
	Err  error  // the cause: of the network, the server's reply, the context's error, ErrClosed or ErrTimeout

	// Unknown: the request may have been executed, or may yet be. Otherwise it certainly was not and will not be.
	Unknown bool

	// Refused: the server or its configuration refuses (password, ACL, TLS, a command it does not have), and will until somebody changes it,
	// so that trying again is no use. Otherwise the server could not be reached, or cannot serve just now: trying again may help.
	Refused bool
}

// Error says where, what and why, in a line.
func (e *Error) Error() string { return "redis " + e.Addr + ": " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// failed makes an Error of a driver's.
func failed(op, addr string, err error) *Error {
	class := classify(err)
	// A server that does not know a command repeats its arguments, and those of AUTH and HELLO are passwords.
	if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); found {
		err = errors.New(text)
	}
	return &Error{Op: op, Addr: addr, Err: err, Unknown: class.unknown, Refused: class.refused}
}
