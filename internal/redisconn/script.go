package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script in the form in which commands need it. The fields are
// interfaces, so that putting one among a command's arguments allocates nothing.
type Script struct {
	text any
	sha  any
	// Strict: a server that does not know the script must not be given its text;
	// NOSCRIPT is the caller's to see.
	Strict bool
	// How many keys and arguments each lock has if one call can be for several:
	// see together. 0: each call is for one lock.
	keys, args int
}

// NewScript returns a script whose calls are for one lock each.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// NewSharedScript returns a script that can be called for several locks, with up
// to so many keys and exactly so many arguments for each, and one argument before
// those that is the same for all. It answers for several with an array, in which
// {-1, text} is an error. A call with other numbers goes by itself.
func NewSharedScript(text string, keys, args int) *Script {
	s := NewScript(text)
	s.keys, s.args = keys, args
	return s
}

// Text returns the script's text.
func (s *Script) Text() string { return s.text.(string) }

var (
	evalsha any = "evalsha"
	eval    any = "eval"
)

// command is a script call that the driver sends once and never again by itself:
// with a repetition, a refusal could come from the second sending while the first
// one was granted. Repeating is for the callers, who know what an unknown outcome
// means to them.
type command struct {
	*redis.Cmd
}

// NoRetry makes go-redis leave a failed command alone, in all of its clients and
// in pipelines.
func (command) NoRetry() bool { return true }

// firstKey is where the keys begin in the arguments: after the command, the
// script and the number of keys.
const firstKey = 3

// Call makes a call of s: args are the keys, of which there are so many, and then
// the script's arguments.
func (s *Script) Call(op, name string, keys int, args ...any) *Call {
	all := make([]any, firstKey, firstKey+len(args))
	all[0], all[1], all[2] = evalsha, s.sha, keys
	c := calls.Get().(*Call)
	c.Op, c.Name, c.script, c.asked = op, name, s, append(all, args...)
	c.cmd = newCommand(c.asked)
	return c
}

// inFull builds the same command with the script's text, for a server that does
// not know the SHA: EVAL also makes the server remember it.
func (s *Script) inFull(c command) command {
	all := append([]any(nil), c.Args()...)
	all[0], all[1] = eval, s.text
	return newCommand(all)
}

// again builds the same command once more, without the reply.
func (s *Script) again(c command) command {
	all := append([]any(nil), c.Args()...)
	all[0], all[1] = evalsha, s.sha
	return newCommand(all)
}

func newCommand(args []any) command {
	cmd := redis.NewCmd(context.Background(), args...)
	cmd.SetFirstKeyPos(firstKey) // the Cluster's client need not look for it
	return command{cmd}
}
