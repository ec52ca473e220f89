package redisguard

import (
	"context"
	"crypto/sha1"
	_ "embed" // for prelude.lua
	"encoding/hex"
	"strings"

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
	if !strings.HasPrefix(first, "#!") {
		return newScript(prelude + body)
	}
	return newScript(first + "\n" + prelude + rest)
}

//go:embed prelude.lua
var prelude string

// Prelude returns the guard as Lua, for scripts that are sent without [Guard.Run]: by
// another driver, in another language, in a pipeline. The whole script is Prelude
// followed by the caller's text. Its arguments are
//
//	KEYS  the caller's own; then the key of the mark (Guard.MarkKey)
//	ARGV  the caller's own; then how long to keep the mark, in ms, or 0 for ever;
//	      then the token in decimal digits
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

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // it is how Redis names scripts
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Run runs the caller's script if token is not lower than the mark of resource, and
// raises the mark to token. Nothing comes between the check, the mark and the script.
// The command that it returns has result and error: use Run(…).Int64(), for example. A
// script that returns nothing has the error redis.Nil.
//
// keys has to name all keys that the script writes; they are checked as in
// [Guard.Set]. Redis does not roll back: see "Scripts that fail" in the package
// comment. Errors are those of Set, or the script's own, a [redis.Error] that
// [errors.As] finds. Unlike Set, Run does not repeat a request whose answer was lost,
// since a script that counts or appends would do so twice. The error then matches
// [fencing.ErrUnknown]; a caller whose script may run twice calls Run again with the
// same token. So that a connection which was closed while nobody used it is not such a
// case, Run reads the mark first if the Guard was idle for a second. Programs with
// bursts of callers over TLS set the client's ConnMaxIdleTime below the idle limits of
// servers and load balancers as well.
func (g *Guard) Run(
	ctx context.Context, resource string, token fencing.Token, script *Script, keys []string, args ...any,
) *redis.Cmd {
	return g.run(ctx, "run a script for", resource, token, script, false, keys, args...)
}

func (g *Guard) run(
	ctx context.Context, op, resource string, token fencing.Token,
	script *Script, repeatable bool, keys []string, args ...any,
) *redis.Cmd {
	refuse := func(err error) *redis.Cmd {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	mark, err := g.MarkKey(resource)
	if err == nil {
		err = g.checkKeys(resource, mark, keys)
	}
	if err == nil && script == nil {
		err = invalid("the script is nil")
	}
	if err == nil {
		err = fencing.Admit(resource, token, 0)
	}
	if err == nil {
		args, err = encoded(args)
	}
	if err == nil && ctx.Err() != nil {
		err = failed(ctx, op, resource, ctx.Err(), false)
	}
	if err != nil {
		return refuse(err)
	}
	// A copy: append must not write into the caller's slice.
	keys = append(append(make([]string, 0, len(keys)+1), keys...), mark)
	if !repeatable {
		g.rouse(ctx, mark)
	}
	cmd, unknown := g.ask(ctx, script, keys, append(args, g.keep, token.String()), repeatable)
	if err := cmd.Err(); err != nil && err != redis.Nil { //nolint:errorlint // an answer
		cmd.SetErr(failed(ctx, op, resource, Refusal(resource, token, err), unknown))
	}
	return cmd
}
