package redisguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/redisnode"
)

// restedAfter is after which time without an answer a connection may have been closed
// by the server or by a balancer.
const restedAfter = time.Second

var began = time.Now()

// ask has a request sent until it is answered or the connection is not to blame, only once
// if it is not repeatable. The outcome is that of all sendings: one of them may have been
// carried out.
func (g *Guard) ask(
	ctx context.Context, repeatable bool, send func() *redis.Cmd,
) (cmd *redis.Cmd, outcome fencing.Outcome) {
	if ctx.Err() != nil {
		return told(ctx, ctx.Err()), fencing.Unsent
	}
	tries, asked := g.tries(), false
	for unknown := false; ; tries-- {
		cmd = send()
		err := cmd.Err()
		if err == nil || errors.Is(err, redis.Nil) {
			g.answered.Store(int64(time.Since(began)))
			return cmd, fencing.Refused
		}
		outcome = outcomeOf(err, repeatable)
		if unknown = unknown || outcome == fencing.Unknown; unknown {
			outcome = fencing.Unknown
		}
		class := redisnode.Classify(err)
		bad := class == redisnode.Outdated && redisnode.BadCredentials(err.Error())
		if unknown && !repeatable || ctx.Err() != nil || tries <= 1 || bad && asked ||
			class != redisnode.HungUp && class != redisnode.Outdated {
			return cmd, outcome
		}
		asked = asked || bad // a function for credentials may give others now
	}
}

// tries is how often a request is sent: all idle connections of the driver's pool may have ended, which over TLS it
// notices only by a request (R26), and after those come new ones.
func (g *Guard) tries() int {
	const fresh = 3
	if pool, ok := g.client.(interface{ PoolStats() *redis.PoolStats }); ok {
		return int(pool.PoolStats().IdleConns) + fresh
	}
	return fresh
}

// told is a command that has failed with err.
func told(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// outcomeOf says what an error means for its request.
func outcomeOf(err error, repeatable bool) fencing.Outcome {
	var reply redis.Error
	class := redisnode.Classify(err)
	unknown, refused := class.Unknown(), class == redisnode.Refusing
	if errors.As(err, &reply) {
		passing := redisnode.PassingReply(reply.Error())
		inScript := passing && strings.Contains(reply.Error(), "user_script")
		// A script that the server stopped in the middle may have written a part.
		unknown, refused = inScript && !repeatable, !passing
	}
	switch {
	case unencodable(err), refused && !unknown:
		return fencing.Refused
	case unknown:
		return fencing.Unknown
	}
	return fencing.Unsent
}

func unencodable(err error) bool { return strings.Contains(err.Error(), "redis: can't marshal") }

// process sends a command once.
func (g *Guard) process(ctx context.Context, args ...any) *redis.Cmd {
	cmd := command{redis.NewCmd(ctx, args...)}
	if len(args) > 2 { // a script
		cmd.SetFirstKeyPos(3)
	}
	if err := redisnode.Recovered(func() error { return g.client.Process(ctx, cmd) }); err != nil {
		cmd.SetErr(err)
	}
	return cmd.Cmd
}

// command is a command that the driver sends once. By default, go-redis sends a
// command again if its answer was lost (MaxRetries), and returns the last answer: a
// script that counts would count twice, and a write that happened would be reported as
// stale if a later holder came between the two requests.
type command struct{ *redis.Cmd }

// NoRetry makes every client of the driver leave a failed command alone.
func (command) NoRetry() bool { return true }

// Refusal converts an error of [Prelude] to the error that the methods of a Guard
// return: a [*fencing.StaleError], or an error that matches [fencing.ErrMissing]. It
// returns every other error, and nil, unchanged.
func Refusal(resource string, token fencing.Token, err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	code, rest, _ := strings.Cut(reply.Error(), " ")
	text, _, _ := strings.Cut(rest, " ")
	if mark, parseErr := fencing.Parse(text); code == "FENCESTALE" && parseErr == nil {
		return &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
	} else if code == "FENCEMISSING" {
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
