package redisconn

import (
	"context"
	"slices"
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

// parcel is one script call, and the calls that it is for.
type parcel struct {
	cmd   command
	calls []*result
}

// pack puts the calls of a batch into as few parcels as may be. Scripts with their
// text come first: the server does not know them yet.
func pack(calls []*result) (parcels []parcel) {
	var groups map[kind][]*result
	for i, r := range calls {
		k, ok := r.kind()
		if !ok || len(calls) == 1 {
			parcels = append(parcels, parcel{together(r), calls[i : i+1]})
			continue
		}
		if groups == nil {
			groups = make(map[kind][]*result, 2)
		}
		groups[k] = append(groups[k], r)
	}
	for _, group := range groups {
		for part := range slices.Chunk(group, maxShare) {
			parcels = append(parcels, parcel{together(part...), part})
		}
	}
	return parcels
}

// kind is what calls that share a script call have in common: the script and its
// first argument.
type kind struct {
	script *Script
	shared any
}

// kind returns false if the call has to go by itself.
func (r *result) kind() (kind, bool) {
	c := r.call
	if c.script.args == 0 || r.inFull || r.apart {
		return kind{}, false
	}
	keys, args := c.parts()
	if len(keys) > c.script.oneKey+c.script.keys || len(args) != 1+c.script.args {
		return kind{}, false
	}
	return kind{c.script, args[0]}, true
}

// together makes one command of the calls of several callers, all of one kind: the key
// that is the same for all, if there is one; for n locks n first keys, n second ones and
// so on (a call that has fewer has its first key there); then the shared argument, and
// the arguments of each. The command of a single call is as the call is.
func together(calls ...*result) command {
	s, n := calls[0].call.script, len(calls)
	var line []any
	if n == 1 {
		line = slices.Clone(calls[0].call.line) // the call is used again, and somebody's hook may keep the command
		if calls[0].inFull {
			line[0], line[1] = eval, s.text // which makes the server remember it
		}
	} else {
		first := firstKey + s.oneKey
		line = make([]any, first+s.keys*n, first+s.keys*n+1+s.args*n)
		line[0], line[1], line[2] = evalsha, s.sha, s.oneKey+s.keys*n
		for i, r := range calls {
			keys, args := r.call.parts()
			copy(line[firstKey:first], keys)
			keys = keys[s.oneKey:]
			for j := range s.keys {
				key := keys[0]
				if j < len(keys) {
					key = keys[j]
				}
				line[first+j*n+i] = key
			}
			if i == 0 {
				line = append(line, args[0])
			}
			line = append(line, args[1:]...)
		}
	}
	cmd := redis.NewCmd(context.Background(), line...)
	cmd.SetFirstKeyPos(firstKey) // the Cluster's client need not look for it
	return command{cmd}
}

// deliver gives the calls of a parcel their answers. Among again it returns those
// that did nothing and are to be sent once more, and among broken those that failed for
// a reason which may be the connection's. Where the server refused what several
// share, one of its keys may be the reason (an ACL may allow the others): then they
// go one by one. And where it does not know the script (a restart, SCRIPT FLUSH) it
// is to be given the text.
func (p parcel) deliver() (again, broken []*result) {
	err := p.cmd.Err()
	answers, ok := p.cmd.Val().([]any)
	several := len(p.calls) > 1
	apart := several && err != nil && classify(err).refused && !badCredentials(err)
	if several && err == nil && (!ok || len(answers) != len(p.calls)) {
		err = unexpected(p.cmd.Val())
	}
	for i, r := range p.calls {
		r.apart, r.cause = r.apart || apart, err
		switch {
		case err != nil:
		case !several:
			r.value = p.cmd.Val()
		default:
			r.value = answers[i]
			if text, failed := errorAmong(answers[i]); failed {
				r.value, r.cause = nil, scriptError(text)
			}
		}
		switch {
		case apart || !r.call.script.Strict && IsNoScript(r.cause):
			again = append(again, r)
		case ofConnection(r.cause):
			broken = append(broken, r)
		}
	}
	return again, broken
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

// transmit has the driver send parcels, and returns when each has its reply or error. It hands these out,
// and returns what deliver does.
func transmit(ctx context.Context, d sender, parcels []parcel) (again, broken []*result) {
	// Alone, a Cluster's client would first ask for the list of all commands,
	// which a user may not be allowed to; in a pipeline it takes our word for
	// where the keys are.
	if _, cluster := d.(*redis.ClusterClient); len(parcels) == 1 && !cluster {
		cmd := parcels[0].cmd
		if err := Recovered(func() error { return d.Process(ctx, cmd) }); err != nil {
			cmd.SetErr(err)
		}
	} else {
		pipeline(ctx, d, parcels)
	}
	var introduced map[*Script]bool
	for _, p := range parcels {
		unseen, ended := p.deliver()
		broken = append(broken, ended...)
		for _, r := range unseen {
			// The first of each script has the text, where they all go to one server: that knows it by the second.
			s := r.call.script
			if r.inFull = IsNoScript(r.cause) && (s.args == 0 || !introduced[s]); r.inFull {
				if introduced == nil {
					introduced = make(map[*Script]bool)
				}
				introduced[s] = true
			}
			again = append(again, r)
		}
	}
	return again, broken
}

// pipeline sends parcels in one pipeline.
func pipeline(ctx context.Context, d sender, parcels []parcel) {
	pipe := d.Pipeline()
	for _, p := range parcels {
		_ = pipe.Process(ctx, p.cmd)
	}
	if err := Recovered(func() error { _, err := pipe.Exec(ctx); return err }); err != nil {
		// Where there was no connection to send them on, the driver does not tell the commands.
		for _, p := range parcels {
			if p.cmd.Err() == nil && p.cmd.Val() == nil {
				p.cmd.SetErr(err)
			}
		}
	}
}

// Milliseconds rounds up: a lock that the server keeps a little longer than its
// holder believes is safe, the opposite is not.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
