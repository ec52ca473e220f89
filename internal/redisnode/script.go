package redisnode

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

//go:embed acquire.lua
var acquireText string

//go:embed renew.lua
var renewText string

//go:embed release.lua
var releaseText string

//go:embed inspect.lua
var inspectText string

// script is a Lua script in the form in which commands need it. The fields are interfaces, so that
// putting one among a command's arguments allocates nothing.
type script struct {
	text any
	sha  any
	// strict: a server that does not know the SHA must not be given the text; NOSCRIPT is the caller's to see.
	strict bool
	// bundle, if not nil, makes one call of those of several callers, if they have so many arguments: see bundle.go.
	bundle func(s *script, calls []*call) command
	plain  int
}

// scripts are the scripts of one Node: a field of it and not of the package, because their text may depend on the server.
type scripts struct {
	acquire, renew, release, inspect *script
}

func newScripts() scripts {
	return scripts{
		acquire: newScript(acquireText),
		renew:   newScript(renewText),
		release: newScript(releaseText),
		inspect: newScript(inspectText),
	}
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

var (
	evalsha any = "evalsha"
	eval    any = "eval"
)

// command is a script call that the driver sends once and never again by itself: with a repetition, a refusal could come from the second
// sending while the first one was granted. Repeating is for the callers, who know what an unknown outcome means to them.
type command struct {
	*redis.Cmd
}

// NoRetry makes go-redis leave a failed command alone, in all of its clients and in pipelines.
func (command) NoRetry() bool { return true }

// firstKey is where the keys begin in the arguments: after the command, the script and the number of keys.
const firstKey = 3

// command builds the call by SHA: args are the keys, of which there are so many, and then the script's arguments.
func (s *script) command(keys any, args ...any) command {
	all := make([]any, firstKey, firstKey+len(args))
	all[0], all[1], all[2] = evalsha, s.sha, keys
	return newCommand(append(all, args...))
}

// inFull builds the same call with the script's text, for a server that does not know the SHA: EVAL also makes the server remember it.
func (s *script) inFull(c command) command {
	c = s.again(c, nil)
	c.Args()[0], c.Args()[1] = eval, s.text
	return c
}

// again builds the same call once more, with another argument at the end if there is one.
func (s *script) again(c command, extra any) command {
	all := append(make([]any, 0, len(c.Args())+1), c.Args()...)
	if extra != nil {
		all = append(all, extra)
	}
	return newCommand(all)
}

func newCommand(args []any) command {
	cmd := redis.NewCmd(context.Background(), args...)
	cmd.SetFirstKeyPos(firstKey) // the Cluster's client need not look for it
	return command{cmd}
}
