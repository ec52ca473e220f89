package redisguard

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisconn"
)

// How often a request is sent that may be carried out twice or was certainly not
// carried out, and the pause before the next time.
const (
	maxSends = 3
	pause    = 20 * time.Millisecond
)

// restedAfter is after which time without an answer a connection may have been closed
// by the server or by a balancer.
const restedAfter = time.Second

var began = time.Now()

// ask has a request sent until it is answered, only once if it is not repeatable. The
// outcome is that of all sendings: one of them may have been carried out.
func (g *Guard) ask(
	ctx context.Context, repeatable bool, send func() *redis.Cmd,
) (cmd *redis.Cmd, outcome fencing.Outcome) {
	if ctx.Err() != nil {
		cmd = redis.NewCmd(ctx)
		cmd.SetErr(ctx.Err())
		return cmd, fencing.Unsent
	}
	retry, unknown := redisconn.NewRetry(g.client), false
	for n := 1; ; n++ {
		cmd = send()
		err := cmd.Err()
		if err == nil || errors.Is(err, redis.Nil) {
			g.answered.Store(int64(time.Since(began)))
			return cmd, fencing.Refused
		}
		outcome = outcomeOf(err, repeatable)
		if unknown = unknown || outcome == fencing.Unknown; unknown && !repeatable {
			return cmd, outcome
		}
		switch {
		case ctx.Err() == nil && retry.Worth(err):
			n-- // at once, since the connection is to blame
		case outcome == fencing.Refused, n == maxSends,
			clock.Sleep(ctx, clock.UpTo(time.Duration(n)*pause)) != nil:
			if unknown {
				outcome = fencing.Unknown
			}
			return cmd, outcome
		}
	}
}

// outcomeOf says what an error means for its request.
func outcomeOf(err error, repeatable bool) fencing.Outcome {
	var reply redis.Error
	unknown, refused := redisconn.Outcome(err)
	if errors.As(err, &reply) {
		passing := redisconn.Passing(reply.Error())
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
	if err := redisconn.Recovered(func() error { return g.client.Process(ctx, cmd) }); err != nil {
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
