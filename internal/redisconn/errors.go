package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
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
	// Err is the cause: of the network, the server's reply, the context's error,
	// ErrClosed, ErrTimeout or ErrSilent.
	Err error

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
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// The driver never gets the caller's context here, so this is a time limit of ours or of its own.
		err = timeLimitError(err.Error())
	}
	switch bySentinels := strings.HasPrefix(err.Error(), allSentinels); {
	case bySentinels && class.refused && !noMaster(err) && !isTLS(err):
		err = fmt.Errorf("%w (it is the Sentinels who refuse: in a URL, theirs are the parameters sentinel_username and "+
			"sentinel_password; user:password@ is for the master)", err)
	case badCredentials(err):
		err = fmt.Errorf("%w (check user and password: in a URL, they are user:password@ before the host)", err)
	}
	if noMaster(err) {
		err = errors.New("the Sentinels are there, and watch no master of this name: give the name in their " +
			"sentinel.conf as master_name")
	}
	return &Error{Op: op, Addr: addr, Err: err, Unknown: class.unknown, Refused: class.refused}
}

// timeLimitError is an error of a time limit that is not the caller's. It matches
// ErrTimeout, and no error of a context.
type timeLimitError string

func (e timeLimitError) Error() string        { return string(e) }
func (e timeLimitError) Is(target error) bool { return target == ErrTimeout }
func (e timeLimitError) Timeout() bool        { return true }
func (e timeLimitError) Temporary() bool      { return true }

// unexpectedReplyError is the error of a reply that the script does not give: of another
// program at the server's address, or of a proxy between.
type unexpectedReplyError string

func unexpected(reply any) error { return unexpectedReplyError(fmt.Sprintf("%.200v", reply)) }

func (e unexpectedReplyError) Error() string {
	return "a reply that this script does not give: " + string(e)
}

// tooOldError is the error of a server of this version: see [Server.Supported].
type tooOldError string

func (e tooOldError) Error() string {
	return string(e) + " is too old: the oldest that are supported are Redis 7.0 and Valkey 7.2"
}

// failed is Failed for a request by way of n.
func (n *Conn) failed(op, addr string, err error) *Error {
	e := Failed(op, addr, err)
	if !n.IsCluster() && (moved(err) || redis.HasErrorPrefix(err, "CROSSSLOT")) {
		e.Err, e.Refused = fmt.Errorf("%w: %s: %w", errClusterNode, adviceCluster, err), true
	}
	return e
}

// What is wrong with a Conn to one node of a Cluster.
const adviceCluster = "write redis+cluster:// (or rediss+cluster://), or make a ClusterClient; redlock needs servers " +
	"that are not in a Cluster with others"

var errClusterNode = errors.New("the server is a node of a Redis Cluster, which has only some of the keys")

// Single is an error for a server that has only some of the keys of a Conn that takes it for a server of its own.
func (n *Conn) Single(ctx context.Context, s Server) error {
	if s.Cluster && !n.IsCluster() && !(n.OneSlot && n.whole(ctx)) {
		return Failed("info", s.Addr, fmt.Errorf("%w: %s", errClusterNode, adviceCluster))
	}
	return nil
}

// whole reports whether the server has all slots of its Cluster, or does not tell this user.
func (n *Conn) whole(ctx context.Context) bool {
	info, err := n.Bounded().ClusterInfo(ctx).Result()
	return err != nil || strings.Contains(info, "cluster_size:1\r") && strings.Contains(info, "cluster_slots_assigned:16384\r")
}

// class is what a driver's error says about a request; see Error.
type class struct{ unknown, refused bool }

// Replies that come before a script has run or, since our scripts write last what decides, instead
// of its running.
var (
	// These will be the same until somebody changes the configuration.
	refusals = []string{
		"NOAUTH", "WRONGPASS", "NOPERM", "NOPROTO", "DENIED", "LOCKER", "CROSSSLOT",
		"ERR AUTH", "ERR Client sent AUTH", "ERR invalid password", "ERR unknown command",
		"ERR Unknown command", "ERR DB index", "ERR SELECT is not allowed",
		"ERR This instance has cluster support disabled", "ERR unknown subcommand",
		"ERR Unknown subcommand", "ERR The user executing the script can't",
		"ERR ACL failure in script", // since Redis 7.2
	}
	// These pass: the server cannot just now, or this server cannot.
	troubles = []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY ", "OOM", "MISCONF",
		"NOREPLICAS", "NOSCRIPT", "EXECABORT", "ERR max number of clients",
	}
	// The driver's own errors for not knowing where to send to.
	nowhere = []string{allSentinels, "redis: no sentinels", "redis: cluster has no nodes"}
	// Where a script's own command was refused, older servers put this before the reason.
	inScript = "user_script"
)

// allSentinels begins the driver's error that has the errors of all Sentinels in it.
const allSentinels = "redis: all sentinels"

// Outcome says what a driver's error means for the request that it answers.
// unknown: it may have been executed, or may yet be. refused: trying again is no
// use until somebody changes the configuration.
func Outcome(err error) (unknown, refused bool) {
	c := classify(err)
	return c.unknown, c.refused
}

// Passing reports whether a reply of a server says that it cannot serve just now,
// and may later. Text of a script's own is taken for what it is.
func Passing(reply string) bool {
	// Redis 6 puts the reason of a script's own command last: "ERR Error running script …
	// @user_script: 43: -OOM command not allowed".
	if _, inner, ok := strings.Cut(reply, "@user_script"); ok &&
		strings.HasPrefix(reply, "ERR Error running script") {
		if _, reason, ok := strings.Cut(inner, " -"); ok {
			reply = reason
		}
	}
	return slices.ContainsFunc(troubles, func(prefix string) bool { return strings.HasPrefix(reply, prefix) })
}

func classify(err error) class {
	if text := err.Error(); slices.ContainsFunc(nowhere,
		func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
		rights := slices.ContainsFunc([]string{"NOAUTH", "WRONGPASS", "NOPERM"},
			func(reason string) bool { return strings.Contains(text, reason) })
		return class{refused: rights || noMaster(err) || isTLS(err)}
	}
	var reply redis.Error
	var strange unexpectedReplyError
	var old tooOldError
	var farewell farewellError
	switch {
	case errors.As(err, &farewell):
		return classifyReply(string(farewell))
	case errors.As(err, &reply):
		return classifyReply(reply.Error())
	case errors.As(err, &strange):
		return class{unknown: true, refused: true}
	case isTLS(err), errors.As(err, &old), errors.Is(err, errClusterNode),
		errors.Is(err, redis.ErrClosed): // somebody has closed the client
		return class{refused: true}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isDial(err):
		return class{}
	}
	// Everything else (a time-out, a reset, a reply that cannot be read) can come after the request was sent.
	return class{unknown: true}
}

func classifyReply(text string) class {
	begins := func(prefix string) bool { return strings.HasPrefix(text, prefix) }
	contains := func(word string) bool { return strings.Contains(text, word) }
	switch {
	case slices.ContainsFunc(refusals, begins):
		return class{refused: true}
	case slices.ContainsFunc(troubles, begins):
		return class{}
	case contains(inScript):
		return class{refused: contains("NOPERM") || contains("can't run this command") ||
			contains("Unknown Redis command") || contains("Unknown command")}
	}
	// A reply that no Redis gives here: perhaps of a proxy between, which can say "failed" of what it
	// has passed on.
	return class{unknown: true}
}

// noMaster reports that the Sentinels answered, and know no master of the name.
func noMaster(err error) bool {
	return strings.HasPrefix(err.Error(), allSentinels) && errors.Is(err, redis.Nil)
}

// IsNoScript reports that the server does not know a script.
func IsNoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

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
		// What the server did not like about the handshake. With TLS 1.3 it refuses the client's
		// certificate only after the client has begun to write, but before it reads.
		return slices.ContainsFunc(alerts, func(alert string) bool {
			return strings.HasSuffix(remote.Error(), "tls: "+alert)
		})
	}
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid)
}

// The alerts of a handshake, as crypto/tls writes them; it does not export their type.
var alerts = []string{
	"handshake failure", "bad certificate", "unsupported certificate", "revoked certificate",
	"expired certificate", "unknown certificate",
	"unknown certificate authority", "access denied", "protocol version not supported",
	"insufficient security level",
	"unrecognized name", "certificate required", "no application protocol",
}
