package redisguard

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

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Refusal makes of an error that [Prelude] has answered what the methods of a
// Guard return: a [*fencing.StaleError], or an error that matches
// [fencing.ErrMissing]. It returns every other error, and nil, as it is.
func Refusal(resource string, token fencing.Token, err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	code, rest, _ := strings.Cut(reply.Error(), " ")
	switch code {
	case "FENCESTALE":
		text, _, _ := strings.Cut(rest, " ")
		if mark, parseErr := fencing.Parse(text); parseErr == nil {
			return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
		}
	case "FENCEMISSING":
		return fmt.Errorf("redisguard: %q: %w: %w", resource, fencing.ErrMissing, err)
	}
	return err
}

// failed says what an error means for the caller. sent: it may have been a
// write that was sent.
func failed(ctx context.Context, op, resource string, err error, sent bool) error {
	var stale *fencing.StaleError
	if errors.As(err, &stale) || errors.Is(err, fencing.ErrMissing) {
		return err
	}
	where := fmt.Sprintf("redisguard: %s %q", op, resource)
	if strings.Contains(err.Error(), "redis: can't marshal") {
		return fmt.Errorf("%s: %w: %w", where, locker.ErrInvalid, err)
	}
	var reply redis.Error
	isReply := errors.As(err, &reply)
	if isReply {
		// Where a server does not know a command, it repeats the arguments, and those of AUTH are passwords.
		if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); found {
			return fmt.Errorf("%s: %s", where, text)
		}
	}
	switch {
	case isReply && !isPassing(reply.Error()), isRefusal(err):
		return fmt.Errorf("%s: %w", where, err)
	case isReply:
		err = fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	case errors.Is(ctx.Err(), context.Canceled):
		err = fmt.Errorf("given up before the answer: %w", context.Cause(ctx))
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer in time: %w: %w", context.Cause(ctx), locker.ErrUnavailable)
	default:
		// A deadline in it is the driver's own and not the caller's: it is not wrapped.
		err = fmt.Errorf("%w: %v", locker.ErrUnavailable, err) //nolint:errorlint // on purpose
	}
	if !sent {
		return fmt.Errorf("%s: %w", where, err)
	}
	// This is what the driver's last attempt came to. One before it may have been carried out.
	return fmt.Errorf("%s: %w: %w", where, err, fencing.ErrUnknown)
}

// passing are the replies of a server that cannot serve just now, and may later.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY ", "OOM", "MISCONF",
	"NOREPLICAS", "NOSCRIPT", "EXECABORT", "ERR max number of clients",
}

func isPassing(text string) bool {
	// Redis 6 puts the reason of a script's own command last: "ERR Error running script … @user_script: 43: -OOM command not allowed".
	if _, inner, ok := strings.Cut(text, "@user_script"); ok && strings.HasPrefix(text, "ERR Error running script") {
		if _, reason, ok := strings.Cut(inner, " -"); ok {
			text = reason
		}
	}
	return slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// isRefusal reports that trying again is no use: the client is closed, or the
// two sides do not agree on TLS.
func isRefusal(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
	)
	return errors.Is(err, redis.ErrClosed) ||
		errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid) ||
		errors.As(err, &remote) && remote.Op == "remote error"
}
