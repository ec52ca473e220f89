package redisnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrClosed is the cause of every error after Close.
	ErrClosed = errors.New("the connection is closed")
	// ErrTimeout is the cause where no answer came in time.
	ErrTimeout = errors.New("no answer in time")
)

// Error is the error of every request to a Node.
type Error struct {
	Op   string // "acquire", "renew", "release", "subscribe", …
	Addr string // the server, without a password
	Err  error  // of the network, the server's reply, the context's error, ErrClosed or ErrTimeout

	// Unknown: the request may have been executed, or may yet be. Otherwise it certainly was not and will not be.
	Unknown bool
	// Refused: until somebody changes the configuration (password, ACL, TLS, a command that the server does not
	// have). Otherwise trying again may help.
	Refused bool
}

// Error says where, what and why, in a line.
func (e *Error) Error() string { return "redis " + e.Addr + ": " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Class is what became of one copy of a request. This is the whole table:
//
//	class      the driver or the server says    what follows                    in the end
//	Answered   the script's answer              –                               the answer
//	Forgotten  NOSCRIPT                         with the text, unless strict    not executed
//	Elsewhere  MOVED, ASK, TRYAGAIN             by the Cluster's client         not executed
//	Outdated   READONLY, WRONGPASS, NOAUTH      on a fresh connection           not executed
//	HungUp     the connection ended             on a fresh connection           unknown
//	Refusing   NOPERM, unknown command, TLS, …  apart, if it went with others   not executed, refused
//	Passing    OOM, LOADING, no connection, …   –                               not executed
//	Strange    a reply of no script of ours     –                               unknown
//	Lost       a time-out, anything else        – (a silent flight: lane.go)    unknown
//
// WRONGPASS and NOAUTH are refused in the end, and so is a reply of a script that is none of its answers.
type Class uint8

// The classes.
const (
	Answered Class = iota
	Forgotten
	Elsewhere
	Outdated
	HungUp
	Refusing
	Passing
	Strange
	Lost
)

// Unknown reports whether the request may have been executed, or may yet be.
func (c Class) Unknown() bool { return c == HungUp || c == Strange || c == Lost }

// classes are the replies that come before a script has run or, since our scripts write last what decides, instead
// of its running.
var classes = []struct {
	Class
	prefixes []string
}{
	{Forgotten, []string{"NOSCRIPT"}},
	{Elsewhere, []string{"MOVED", "ASK", "TRYAGAIN"}},
	{Outdated, []string{"READONLY", "WRONGPASS", "NOAUTH"}},
	{Refusing, []string{
		"NOPERM", "NOPROTO", "DENIED", "LOCKER", "CROSSSLOT", "ERR AUTH", "ERR Client sent AUTH",
		"ERR invalid password", "ERR unknown command", "ERR Unknown command", "ERR DB index",
		"ERR SELECT is not allowed", "ERR This instance has cluster support disabled", "ERR unknown subcommand",
		"ERR Unknown subcommand", "ERR The user executing the script can't",
		"ERR ACL failure in script", // since Redis 7.2
	}},
	{Passing, []string{
		"LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY ", "OOM", "MISCONF", "NOREPLICAS", "EXECABORT",
		"ERR max number of clients",
	}},
}

// allSentinels begins the driver's error that has the errors of all Sentinels in it.
const allSentinels = "redis: all sentinels"

// Classify reads the error of one copy.
func Classify(err error) Class {
	if err == nil { // apart, for what follows allocates
		return Answered
	}
	return classOf(err)
}

func classOf(err error) Class {
	text := err.Error()
	// The driver does not know where to send to.
	if begins(text, allSentinels, "redis: no sentinels", "redis: cluster has no nodes") {
		if refusedBySentinels(err) || noMaster(err) || isTLS(err) {
			return Refusing
		}
		return Passing
	}
	var reply redis.Error
	var odd unexpectedError
	var old tooOldError
	var farewell farewellError
	switch {
	case errors.As(err, &farewell):
		return classOfReply(string(farewell))
	case errors.As(err, &reply):
		return classOfReply(reply.Error())
	case errors.As(err, &odd):
		return Strange
	case isTLS(err), errors.As(err, &old), errors.Is(err, errClusterNode),
		errors.Is(err, redis.ErrClosed): // somebody has closed the client
		return Refusing
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isDial(err):
		return Passing
	case isHangUp(err):
		return HungUp
	}
	return Lost
}

// begins reports whether a text has one of the prefixes.
func begins(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// known is the class of a reply that begins with one of the prefixes above.
func known(reply string) (Class, bool) {
	for _, class := range classes {
		if begins(reply, class.prefixes...) {
			return class.Class, true
		}
	}
	return Strange, false
}

func classOfReply(text string) Class {
	if class, ok := known(text); ok {
		return class
	}
	if strings.Contains(text, "user_script") { // a command of the script was refused; older servers name the script first
		if slices.ContainsFunc([]string{"NOPERM", "can't run this command", "Unknown Redis command", "Unknown command"},
			func(why string) bool { return strings.Contains(text, why) }) {
			return Refusing
		}
		return Passing
	}
	// Perhaps of a proxy between, which can say "failed" of what it has passed on.
	return Strange
}

// PassingReply reports whether a reply of a server says that it cannot serve just now, and may later. Text of a
// script's own is taken for what it is.
func PassingReply(text string) bool {
	// Redis 6 puts the reason of a script's own command last: "ERR Error running script … @user_script: 43: -OOM
	// command not allowed".
	if _, inner, ok := strings.Cut(text, "@user_script"); ok && strings.HasPrefix(text, "ERR Error running script") {
		if _, reason, ok := strings.Cut(inner, " -"); ok {
			text = reason
		}
	}
	class, ok := known(text)
	return ok && class != Refusing && !BadCredentials(text)
}

// Failed makes an Error of a driver's.
func Failed(op, addr string, err error) *Error {
	class := Classify(err)
	e := &Error{Op: op, Addr: addr, Err: err, Unknown: class.Unknown() && !isUnsent(err), Refused: class == Refusing || isBadCredentials(err)}
	if odd := unexpectedError(""); errors.As(err, &odd) {
		e.Refused = true
	}
	// A server that does not know a command repeats its arguments, and those of AUTH and HELLO are passwords.
	if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); found {
		e.Err = errors.New(text)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The driver never gets the caller's context here, so this is a time limit of ours or of its own.
		e.Err = timeLimitError(err.Error())
	case noMaster(err):
		e.Err = errors.New("the Sentinels are there, and watch no master of this name: give the name in their " +
			"sentinel.conf as master_name")
	case refusedBySentinels(err):
		e.Err = fmt.Errorf("%w (it is the Sentinels who refuse: in a URL, theirs are the parameters sentinel_username "+
			"and sentinel_password; user:password@ is for the master)", err)
	case isBadCredentials(err):
		e.Err = fmt.Errorf("%w (check user and password: in a URL, they are user:password@ before the host)", err)
	}
	return e
}

// failed is Failed for a request by way of n.
func (n *Node) failed(op, addr string, err error) *Error {
	e := Failed(op, addr, err)
	if n.cluster == nil && (Classify(err) == Elsewhere && !redis.HasErrorPrefix(err, "TRYAGAIN") ||
		redis.HasErrorPrefix(err, "CROSSSLOT")) {
		e.Err, e.Refused = fmt.Errorf("%w: %s: %w", errClusterNode, adviceCluster, err), true
	}
	return e
}

// What is wrong with a Node that is one of a Cluster.
const adviceCluster = "write redis+cluster:// (or rediss+cluster://), or make a ClusterClient; redlock needs servers " +
	"that are not in a Cluster with others"

var errClusterNode = errors.New("the server is a node of a Redis Cluster, which has only some of the keys")

// timeLimitError is an error of a time limit that is not the caller's. It matches ErrTimeout, and no error of a
// context.
type timeLimitError string

func (e timeLimitError) Error() string        { return string(e) }
func (e timeLimitError) Is(target error) bool { return target == ErrTimeout }
func (e timeLimitError) Timeout() bool        { return true }
func (e timeLimitError) Temporary() bool      { return true }

// tooOldError is the error of a server of this version: see [Server.Supported].
type tooOldError string

func (e tooOldError) Error() string {
	return string(e) + " is too old: the oldest that are supported are Redis 7.0 and Valkey 7.2"
}

// BadCredentials reports whether a reply says that the password is wrong, or missing.
func BadCredentials(text string) bool {
	return strings.HasPrefix(text, "WRONGPASS") || strings.HasPrefix(text, "NOAUTH")
}

func isBadCredentials(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// refusedBySentinels reports that the Sentinels do not tell this user.
func refusedBySentinels(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, allSentinels) && slices.ContainsFunc([]string{"NOAUTH", "WRONGPASS", "NOPERM"},
		func(why string) bool { return strings.Contains(text, why) })
}

// noMaster reports that the Sentinels answered, and know no master of the name.
func noMaster(err error) bool {
	return strings.HasPrefix(err.Error(), allSentinels) && errors.Is(err, redis.Nil)
}

// Barred reports that the server does not let this user run a command, or nobody.
func Barred(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return err != nil && begins(err.Error(), "NOPERM", "ERR unknown command", "ERR Unknown command")
}

// isHangUp reports that a connection ended before the answer.
func isHangUp(err error) bool {
	if isDial(err) || isTLS(err) {
		return false
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write")
}

// isTimeout reports that an answer was not waited for any longer.
func isTimeout(err error) bool {
	if err == nil {
		return false
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout() && !isDial(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func isDial(err error) bool {
	var op *net.OpError
	var ours *dialError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &ours)
}

// isTLS reports that the two sides did not agree on a TLS connection, or not on each other's certificates.
func isTLS(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
	)
	if errors.As(err, &remote) && remote.Op == "remote error" {
		// What the server did not like about the handshake. With TLS 1.3 it refuses the client's certificate only
		// after the client has begun to write, but before it reads.
		return slices.ContainsFunc(alerts, func(a string) bool { return strings.HasSuffix(remote.Error(), "tls: "+a) })
	}
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid)
}

// The alerts of a handshake, as crypto/tls writes them; it does not export their type.
var alerts = []string{
	"handshake failure", "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
	"unknown certificate", "unknown certificate authority", "access denied", "protocol version not supported",
	"insufficient security level", "unrecognized name", "certificate required", "no application protocol",
}

// Recovered calls f, and makes an error of a panic: the driver panics at replies that no Redis gives, such as a length
// that is no size of anything. To a caller that is an answer that cannot be read.
func Recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer cannot be read: %v", p)
		}
	}()
	return f()
}
