package redisconn

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// What several callers ask of one server at the same time goes to it as one
// script call. To start a script costs the server about 2 µs, and a command in
// it 0.5 to 1: of 64 locks together each costs half of what it does alone. Each
// has its own answer or error all the same.

// maxShare bounds how many locks one script is for, since the server does
// nothing else meanwhile: some 4 µs for each.
const maxShare = 64

// scriptCall is one command on its way, and the calls that it is for.
type scriptCall struct {
	cmd   command
	calls []*Call
}

// pack puts the calls of a batch into as few script calls as may be. Those with a
// script's text come first: the server does not know it yet.
func pack(calls []*Call) []scriptCall {
	if len(calls) == 1 {
		return singly(calls)
	}
	var scriptCalls []scriptCall
	groups := make(map[kind][]*Call, 2)
	for i, c := range calls {
		if k, ok := c.kind(); ok {
			groups[k] = append(groups[k], c)
		} else {
			scriptCalls = append(scriptCalls, scriptCall{c.command(), calls[i : i+1]})
		}
	}
	for k, group := range groups {
		for len(group) > 0 {
			n := min(len(group), maxShare)
			p := scriptCall{calls: group[:n]}
			if n > 1 {
				p.cmd = k.script.together(p.calls)
			} else {
				p.cmd = group[0].command()
			}
			scriptCalls, group = append(scriptCalls, p), group[n:]
		}
	}
	return scriptCalls
}

// singly puts each call into a script call of its own.
func singly(calls []*Call) []scriptCall {
	scriptCalls := make([]scriptCall, len(calls))
	for i, c := range calls {
		scriptCalls[i] = scriptCall{c.command(), calls[i : i+1]}
	}
	return scriptCalls
}

// kind is what calls that share a script call have in common: the script and its
// first argument.
type kind struct {
	script *Script
	shared any
}

// kind returns false if c has to go by itself.
func (c *Call) kind() (kind, bool) {
	if c.script.args == 0 || c.inFull {
		return kind{}, false
	}
	keys, args := c.parts()
	if len(keys) > c.script.keys || len(args) != 1+c.script.args {
		return kind{}, false
	}
	return kind{c.script, args[0]}, true
}

// together makes one call of those of several callers: for n locks first n first
// keys, n second ones and so on (a call that has fewer has its first key there),
// then the shared argument, and then the arguments of each.
func (s *Script) together(calls []*Call) command {
	n := len(calls)
	all := make([]any, firstKey+s.keys*n, firstKey+s.keys*n+1+s.args*n)
	all[0], all[1], all[2] = evalsha, s.sha, s.keys*n
	_, args := calls[0].parts()
	all = append(all, args[0])
	for i, c := range calls {
		keys, args := c.parts()
		for j := range s.keys {
			key := keys[0]
			if j < len(keys) {
				key = keys[j]
			}
			all[firstKey+j*n+i] = key
		}
		all = append(all, args[1:]...)
	}
	return newCommand(all)
}

// deliver gives the calls of a script call their answers. It returns false if the
// server refused what several share: one of its keys may be the reason (an ACL
// may allow the others), nothing was done, and they are to be sent one by one.
func (p scriptCall) deliver() bool {
	err := p.cmd.Err()
	if len(p.calls) == 1 {
		p.calls[0].reply, p.calls[0].cause = p.cmd.Val(), err
		return true
	}
	answers, ok := p.cmd.Val().([]any)
	switch {
	case err != nil && classify(err).refused:
		return false
	case err == nil && (!ok || len(answers) != len(p.calls)):
		err = fmt.Errorf("a reply that this script does not give to %d callers: %.100v", len(p.calls), p.cmd.Val())
	}
	for i, c := range p.calls {
		if c.cause = err; err != nil {
			continue
		}
		if text, failed := errorAmong(answers[i]); failed {
			c.cause = scriptError(text)
		} else {
			c.reply = answers[i]
		}
	}
	return true
}

// codeError is the first number of an answer among others that is an error.
const codeError = -1

func errorAmong(answer any) (text string, failed bool) {
	v, _ := answer.([]any)
	if len(v) != 2 || v[0] != int64(codeError) {
		return "", false
	}
	text, failed = v[1].(string)
	return text, failed
}

// scriptError is an error that the server gave for one lock of several. It is a
// redis.Error.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as the server's.
func (scriptError) RedisError() {}

// send gives a batch to the driver, and returns when every cmd in it has its
// reply or error.
func (l *batcher) send(calls []*Call) {
	// What has to be sent once more did nothing, but is not for callers that have
	// left: they were told that the outcome is unknown, and may be taking back.
	if alone := l.wanted(transmit(l.ctx, l.driver, pack(calls))); len(alone) > 0 {
		transmit(l.ctx, l.driver, singly(alone))
	}
	var unread []*Call
	for _, c := range calls {
		if !c.script.Strict && IsNoScript(c.cause) {
			unread = append(unread, c)
		}
	}
	if unread = l.wanted(unread); len(unread) > 0 {
		introduce(unread)
		transmit(l.ctx, l.driver, pack(unread))
	}
}

// introduce gives calls the texts of their scripts, which the server has
// forgotten (a restart, SCRIPT FLUSH): the first of each script where they all
// go to one server, which knows it by the second.
func introduce(unread []*Call) {
	sent := make(map[*Script]bool, 2)
	for _, c := range unread {
		c.inFull = c.script.args == 0 || !sent[c.script]
		sent[c.script] = true
	}
}

// transmit has the driver send script calls and read the answers, and hands these
// out. The errors are in the commands. It returns the calls of shared scripts
// that were refused.
func transmit(ctx context.Context, d driver, scriptCalls []scriptCall) (alone []*Call) {
	sendScriptCalls(ctx, d, scriptCalls)
	for _, p := range scriptCalls {
		if !p.deliver() {
			alone = append(alone, p.calls...)
		}
	}
	return alone
}

// sendScriptCalls sends script calls whose calls all wait for as many replicas.
func sendScriptCalls(ctx context.Context, d driver, scriptCalls []scriptCall) {
	like := scriptCalls[0].calls[0]
	// Alone, a Cluster's client would first ask for the list of all commands,
	// which a user may not be allowed to; in a pipeline it takes our word for
	// where the keys are.
	_, cluster := d.(*redis.ClusterClient)
	if len(scriptCalls) == 1 && like.Replicas == 0 && !cluster {
		_ = d.Process(ctx, scriptCalls[0].cmd)
		return
	}
	pipe := d.Pipeline()
	for _, p := range scriptCalls {
		_ = pipe.Process(ctx, p.cmd)
	}
	var wait *redis.IntCmd
	if like.Replicas > 0 {
		// WAIT speaks for all that its own connection has written, and a pipeline is one connection.
		wait = redis.NewIntCmd(ctx, "wait", like.Replicas, like.ReplicaTimeout.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		// Where there was no connection to send them on, the driver does not tell the commands.
		for _, p := range scriptCalls {
			if p.cmd.Err() == nil && p.cmd.Val() == nil {
				p.cmd.SetErr(err)
			}
		}
	}
	if wait == nil {
		return
	}
	for _, p := range scriptCalls {
		for _, c := range p.calls {
			c.Acked, c.WaitErr = int(wait.Val()), wait.Err()
		}
	}
}

// Milliseconds rounds up: a lock that the server keeps a little longer than its
// holder believes is safe, the opposite is not.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
