package redisguard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/redisconn"
)

// Refusal converts an error of [Prelude] to the error that the methods of a Guard
// return: a [*fencing.StaleError], or an error that matches [fencing.ErrMissing]. It
// returns every other error, and nil, unchanged.
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

// failed makes the error for the caller. unknown: the write may have been carried
// out, or may yet be.
func failed(ctx context.Context, op, resource string, err error, unknown bool) error {
	where := fmt.Sprintf("redisguard: %s %q", op, resource)
	var stale *fencing.StaleError
	switch {
	case errors.As(err, &stale) && unknown:
		// Not ErrStale, which says that nothing was written.
		return fmt.Errorf("%s: the answer was lost; the repeated request with token %d was refused, since a "+
			"later holder has moved the mark to %d: %w",
			where, stale.Token, stale.Mark, fencing.ErrUnknown)
	case stale != nil, errors.Is(err, fencing.ErrMissing):
		return err
	}
	var reply redis.Error
	isReply := errors.As(err, &reply)
	if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); isReply && found {
		// A server that does not know a command repeats its arguments; those of AUTH are passwords.
		err = errors.New(text)
	} else if isUnencodable(err) {
		err = fmt.Errorf("%w: %w", locker.ErrInvalid, err)
	} else if isReply && redisconn.Passing(reply.Error()) {
		err = fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	} else if _, refused := redisconn.Outcome(err); !isReply && !refused {
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			err = fmt.Errorf("given up before the answer: %w", context.Cause(ctx))
		case ctx.Err() != nil:
			err = fmt.Errorf("no answer in time: %w: %w", context.Cause(ctx), locker.ErrUnavailable)
		default:
			// A deadline in err is the driver's and not the caller's, so err is not wrapped.
			err = fmt.Errorf("%w: %v", locker.ErrUnavailable, err) //nolint:errorlint // on purpose
		}
	}
	if unknown {
		return fmt.Errorf("%s: %w: %w", where, err, fencing.ErrUnknown)
	}
	return fmt.Errorf("%s: %w", where, err)
}
