package redisguard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
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

// failed makes the error for the caller.
func failed(ctx context.Context, op, resource string, err error, o fencing.Outcome) error {
	if err == nil || errors.Is(err, fencing.ErrStale) || errors.Is(err, fencing.ErrMissing) {
		return err
	}
	if text, _, found := strings.Cut(err.Error(), ", with args beginning with"); found {
		// A server that does not know a command repeats its arguments; those of AUTH are passwords.
		err = errors.New(text)
	} else if unencodable(err) {
		err = fmt.Errorf("%w: %w", locker.ErrInvalid, err)
	}
	return fencing.Failed(ctx, fmt.Sprintf("redisguard: %s %q", op, resource), err, o)
}
