package redisguard

import (
	"context"
	"crypto/sha1"
	_ "embed" // for prelude.lua
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
)

// Script is a Lua script with the guard before it. Make it once with [NewScript],
// since the texts of scripts stay on the server. It may be used with many Guards, from
// many goroutines at once.
type Script struct {
	text string // what the server runs: the prelude and the body
	sha  string
}

// NewScript returns a Script with this body, which is written as for EVAL: its KEYS
// and ARGV are the arguments of [Guard.Run] and begin at 1. A first line that begins
// with #! stays the first line. If the body is not Lua, the server returns an error
// when the script runs, and nothing is written. Line numbers in errors of the server
// include the lines of [Prelude].
func NewScript(body string) *Script {
	first, rest, _ := strings.Cut(body, "\n")
	text := prelude + body
	if strings.HasPrefix(first, "#!") {
		text = first + "\n" + prelude + rest
	}
	sum := sha1.Sum([]byte(text)) // it is how Redis names scripts
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

//go:embed prelude.lua
var prelude string

// Prelude returns the guard as Lua, for scripts that are sent without [Guard.Run]: by
// another driver, in another language, in a pipeline. The whole script is Prelude
// followed by the caller's text. Its arguments are
//
//	KEYS  the caller's own; then the key of the mark (Guard.MarkKey)
//	ARGV  the caller's own; then how long to keep the mark, in ms; then the token in
//	      decimal digits
//
// Prelude removes the last three, so that the caller's text finds only its own KEYS
// and ARGV. All writers of one resource have to keep its mark for the same time.
//
// If the guard refuses, the caller's text does not run and nothing is written. The
// reply is an error that begins with one of these words. [Refusal] converts it to the
// error that the methods of a Guard return.
//
//	FENCESTALE n    the mark is n, and the token is lower
//	FENCEMISSING    the key of the mark, its time or the token is missing or malformed
//	FENCEMARK       the value at the key of the mark is not a mark
func Prelude() string { return prelude }

// Run runs the caller's script if token is not lower than the mark of resource, and
// raises the mark to token. Nothing comes between the check, the mark and the script.
// The command that it returns has result and error: use Run(…).Int64(), for example. A
// script that returns nothing has the error redis.Nil. args are what go-redis encodes.
//
// keys has to name all keys that the script writes. On a Cluster they have to share the hash slot
// of the mark: see "Keys" in the package comment. Otherwise the error matches
// [locker.ErrInvalid] and says how to name the key.
//
// If the token is too low, the error is a [*fencing.StaleError]; without a token it
// matches [fencing.ErrMissing]. Nothing is written then. An error of the script itself
// is a [redis.Error] that [errors.As] finds; Redis does not roll back: see "Scripts that
// fail" in the package comment. If the Redis cannot be reached, or cannot serve for the
// moment, the error matches [locker.ErrUnavailable]. Wrong credentials and missing
// rights match none of these.
//
// A request whose answer was lost is not repeated, since a script that counts or
// appends would do so twice. The error then matches [fencing.ErrUnknown]; a caller
// whose script may run twice calls Run again with the same token. Run reads the mark first
// if the Guard was idle for a second, so that a connection which was closed meanwhile is
// no such case. Over TLS, set the client's ConnMaxIdleTime below the limits of servers, too.
//
// Run blocks as long as the client does. go-redis obeys the deadline of ctx during a
// request only if its ContextTimeoutEnabled is set, and otherwise its ReadTimeout.
func (g *Guard) Run(
	ctx context.Context, resource string, token fencing.Token, script *Script, keys []string, args ...any,
) *redis.Cmd {
	return g.run(ctx, "run a script for", resource, token, script, false, keys, args)
}

func (g *Guard) run(
	ctx context.Context, op, resource string, token fencing.Token,
	script *Script, repeatable bool, keys []string, args []any,
) *redis.Cmd {
	mark, err := g.MarkKey(resource)
	if err == nil {
		err = g.checkKeys(resource, mark, keys)
	}
	if err == nil && script == nil {
		err = invalid("the script is nil")
	}
	if err == nil {
		err = fencing.Check(resource, token)
	}
	if err != nil {
		return told(ctx, err)
	}
	if !repeatable && time.Since(began)-time.Duration(g.answered.Load()) > restedAfter {
		// Reading may be repeated, and takes connections that were closed out of the
		// driver's pool. The one that answers is the next to be used.
		_, _ = g.ask(ctx, true, func() *redis.Cmd { return g.process(ctx, "get", mark) })
	}
	rest := []any{len(keys) + 1}
	for _, key := range keys {
		rest = append(rest, key)
	}
	rest = append(append(append(rest, mark), args...), g.keep, token.String())
	cmd, outcome := g.ask(ctx, repeatable, func() *redis.Cmd {
		cmd := g.process(ctx, append([]any{"evalsha", script.sha}, rest...)...)
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			// Nothing was done. The server was restarted, or its scripts were flushed.
			cmd = g.process(ctx, append([]any{"eval", script.text}, rest...)...)
		}
		return cmd
	})
	if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		cmd.SetErr(failed(ctx, op, resource, Refusal(resource, token, err), outcome))
	}
	return cmd
}
