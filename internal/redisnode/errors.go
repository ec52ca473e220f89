package redisnode

import "errors"

// ErrClosed is the cause of every error after Close.
var ErrClosed = errors.New("the node is closed")

// ErrTimeout is the cause where Options.Timeout passed without an answer.
var ErrTimeout = errors.New("no answer in time")

// Error is the error of every method of a Node.
type Error struct {
	Op   string // "acquire", "renew", "release", "inspect", "subscribe", "info"
	Addr string // the server, without a password
	Err  error  // the cause: of the network, the server's reply, the context's error, ErrClosed or ErrTimeout

	// Unknown: the request may have been executed, or may yet be. Otherwise it certainly was not and will not be.
	Unknown bool

	// Refused: the server or its configuration refuses (password, ACL, TLS, a command it does not have), and will until somebody changes it,
	// so that trying again is no use. Otherwise the server could not be reached, or cannot serve just now: trying again may help.
	Refused bool
}

func (e *Error) Error() string { return "redis " + e.Addr + ": " + e.Op + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
