package redisguard

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
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

// ask sends a script to the server, only once if it is not repeatable. unknown: one of
// the requests may have been carried out, and its answer was lost.
func (g *Guard) ask(
	ctx context.Context, script *Script, keys []string, args []any, repeatable bool,
) (cmd *redis.Cmd, unknown bool) {
	retry := redisconn.NewRetry(g.client)
	for n := 1; ; n++ {
		cmd = script.send(ctx, g.client, keys, args)
		err := cmd.Err()
		if err == nil || err == redis.Nil { //nolint:errorlint // an answer, which callers compare like this
			g.answered.Store(int64(time.Since(began)))
			return cmd, false
		}
		lost, worthwhile := outcome(err)
		// A script that failed in the middle may have written a part.
		unknown = unknown || lost || !repeatable && inScript(err)
		if (repeatable || !unknown) && ctx.Err() == nil && retry.Worth(err) {
			n-- // at once, since the connection is to blame
			continue
		}
		if !worthwhile || unknown && !repeatable || n == maxSends ||
			clock.Sleep(ctx, clock.UpTo(time.Duration(n)*pause)) != nil {
			return cmd, unknown
		}
	}
}

// restedAfter is after which time without an answer a connection may have been closed
// by the server or by a balancer.
const restedAfter = time.Second

var began = time.Now()

// rouse asks for a mark before a request that must not be sent twice, if there was no
// request for a while. It may be sent twice itself, and takes connections that were
// closed out of the driver's pool. The one that answers is the next to be used.
func (g *Guard) rouse(ctx context.Context, mark string) {
	if time.Since(began)-time.Duration(g.answered.Load()) > restedAfter {
		_, _ = g.ask(ctx, readMark, []string{mark}, nil, true)
	}
}

// outcome says what an error means for the request. lost: it may have been carried
// out. worthwhile: the next request may succeed.
func outcome(err error) (lost, worthwhile bool) {
	var reply redis.Error
	if errors.As(err, &reply) {
		return false, redisconn.Passing(reply.Error()) && !inScript(err)
	}
	if isUnencodable(err) {
		return false, false
	}
	lost, refused := redisconn.Outcome(err)
	return lost, !refused
}

// inScript reports whether err says that the server could not go on in the middle of a
// script.
func inScript(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.Contains(reply.Error(), "user_script") &&
		redisconn.Passing(reply.Error())
}

func isUnencodable(err error) bool { return strings.Contains(err.Error(), "redis: can't marshal") }

// send sends the hash of the script, and then its text if the server does not know it.
func (s *Script) send(ctx context.Context, client Client, keys []string, args []any) *redis.Cmd {
	cmd := newCommand(ctx, "evalsha", s.sha, keys, args)
	cmd.process(ctx, client)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		// Nothing was done. The server was restarted, or its scripts were flushed.
		cmd = newCommand(ctx, "eval", s.text, keys, args)
		cmd.process(ctx, client)
	}
	return cmd.Cmd
}

// command is a command that the driver sends once. By default, go-redis sends a
// command again if its answer was lost (MaxRetries), and returns the last answer: a
// script that counts would count twice, and a write that happened would be reported as
// stale if a later holder came between the two requests.
type command struct {
	*redis.Cmd
	script *once
}

func newCommand(ctx context.Context, name, script string, keys []string, args []any) *command {
	c := &command{script: &once{text: script}}
	all := append(make([]any, 0, 3+len(keys)+len(args)), name, c.script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	c.Cmd = redis.NewCmd(ctx, append(all, args...)...)
	c.SetFirstKeyPos(3)
	return c
}

func (c *command) process(ctx context.Context, client Client) {
	if err := redisconn.Recovered(func() error { return client.Process(ctx, c) }); err != nil {
		c.SetErr(err)
	}
}

// NoRetry tells releases of go-redis that ask for it not to send c again.
func (c *command) NoRetry() bool { return true }

// SetErr gets each server's answer. The client of a Cluster may send c to another
// server if the first one has not carried it out.
func (c *command) SetErr(err error) {
	if err != nil {
		if lost, worthwhile := outcome(err); worthwhile && !lost {
			c.script.sent = false
		}
	}
	c.Cmd.SetErr(err)
}

// once is an argument that can be written to a connection once: when the driver writes
// it again, encoding fails before anything is sent.
type once struct {
	text string
	sent bool
}

var errSentBefore = errors.New("no answer to the request, which is not sent again")

// MarshalBinary is called by the driver each time that it writes the command.
func (o *once) MarshalBinary() ([]byte, error) {
	if o.sent {
		return nil, errSentBefore
	}
	o.sent = true
	return []byte(o.text), nil
}

// String is for the driver's hooks that print commands.
func (o *once) String() string { return o.text }

// encoded returns args as the driver takes them. It calls MarshalBinary here, so that
// its errors are not taken for errors of the network.
func encoded(args []any) ([]any, error) {
	out := make([]any, 0, len(args)+2)
	for _, arg := range args {
		switch v := arg.(type) {
		case fencing.Token:
			arg = uint64(v)
		case time.Time, *time.Time, net.IP: // the driver has its own form for these
		case encoding.BinaryMarshaler:
			text, err := v.MarshalBinary()
			if err != nil {
				return nil, fmt.Errorf("redisguard: a %T cannot be encoded: %w: %w", arg, err, locker.ErrInvalid)
			}
			arg = text
		}
		out = append(out, arg)
	}
	return out, nil
}
