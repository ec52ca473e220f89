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

// Script is a Lua script that a Guard stands in front of. Make it once with
// [NewScript], as the texts of scripts stay on the server. It may be used with
// many Guards, from many goroutines at once.
type Script struct {
	text string // what the server runs: the prelude and the body
	sha  string
}

// NewScript returns a Script of a body, which is written as for EVAL: its KEYS
// and ARGV are those given to [Guard.Run] and begin at 1. A first line that
// begins with #! stays the first. Text that is no Lua is found by the server
// when it is run, and nothing is written then. Line numbers in the errors of the
// server count the lines of [Prelude] first.
func NewScript(body string) *Script {
	first, rest, _ := strings.Cut(body, "\n")
	if !strings.HasPrefix(first, "#!") {
		return newScript(prelude + body)
	}
	return newScript(first + "\n" + prelude + rest)
}

//go:embed prelude.lua
var prelude string

// Prelude returns the guard as Lua, for whoever composes and sends scripts
// without [Guard.Run]: another driver, another language, a pipeline. The whole
// script is Prelude and then the caller's text. Its arguments are
//
//	KEYS  the caller's own; then the key of the mark (Guard.MarkKey)
//	ARGV  the caller's own; then how long to keep the mark, in ms, or 0 for ever;
//	      then the token in decimal digits
//
// Prelude takes the three off, so that the caller's text finds its own KEYS and
// ARGV and no others. All writers of one resource have to keep its mark for
// the same time.
//
// If the caller's text does not get to run, the reply is an error that begins
// with one of these words, and nothing was written. [Refusal] makes of it what
// the methods of a Guard return.
//
//	FENCESTALE n    the mark is n, and the token is lower
//	FENCEMISSING    the token, or another of the three, is missing or malformed
//	FENCEMARK       what is at the key of the mark is none
func Prelude() string { return prelude }

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // it is how Redis names scripts
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Run runs a script of the caller's if token is not lower than the mark of
// resource, which it raises. Nothing comes between the check, the mark and the
// script. Result and error are in what it returns: Run(…).Int64(), for one; a
// script that returns nothing has the error redis.Nil.
//
// The script has to name all keys that it writes in keys, which are checked as
// [Guard.Set] says. What Redis does not do is roll back: see "Scripts that
// fail" in the package comment. The error is as that of Set, or what the script
// made: an error of its own ([redis.Error]) is found by [errors.As]. Unlike Set,
// Run does not ask again where an answer was lost, since a script that counts or
// appends would do so twice: the error matches [fencing.ErrUnknown], and a script
// that can bear it is run again with the same token.
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
	// A copy: what is appended to must not be the caller's.
	keys = append(append(make([]string, 0, len(keys)+1), keys...), mark)
	cmd, unknown := g.ask(ctx, script, keys, append(args, g.keep, token.String()), repeatable)
	if err := cmd.Err(); err != nil && err != redis.Nil { //nolint:errorlint // an answer as others are, which callers compare
		cmd.SetErr(failed(ctx, op, resource, Refusal(resource, token, err), unknown))
	}
	return cmd
}
