package redisconn

import "fmt"

// What several callers ask of one server at the same time goes to it as one
// script call. To start a script costs the server about 2 µs, and a command in
// it 0.5 to 1: of 64 locks together each costs half of what it does alone. Each
// has its own answer or error all the same.

// maxShare bounds how many locks one script is for, since the server does
// nothing else meanwhile: some 4 µs for each.
const maxShare = 64

// parcel is one command on its way, and the calls that it is for.
type parcel struct {
	cmd   command
	calls []*Call
}

// pack puts the calls of a batch into as few parcels as may be. Those with a
// script's text come first: the server does not know it yet.
func pack(batch []*Call) []parcel {
	if len(batch) == 1 {
		return []parcel{{batch[0].cmd, batch}}
	}
	var parcels []parcel
	groups := make(map[kind][]*Call, 2)
	for i, c := range batch {
		if k, ok := c.kind(); ok {
			groups[k] = append(groups[k], c)
		} else {
			parcels = append(parcels, parcel{c.cmd, batch[i : i+1]})
		}
	}
	for k, group := range groups {
		for len(group) > 0 {
			n := min(len(group), maxShare)
			p := parcel{group[0].cmd, group[:n]}
			if n > 1 {
				p.cmd = k.script.together(p.calls)
			}
			parcels, group = append(parcels, p), group[n:]
		}
	}
	return parcels
}

// singly puts each call into a parcel of its own.
func singly(calls []*Call) []parcel {
	parcels := make([]parcel, len(calls))
	for i, c := range calls {
		parcels[i] = parcel{c.cmd, calls[i : i+1]}
	}
	return parcels
}

// kind is what calls that share a script call have in common: the script and its
// first argument.
type kind struct {
	script *Script
	shared any
}

// kind returns false if c has to go by itself.
func (c *Call) kind() (kind, bool) {
	if c.script.args == 0 || c.cmd.Args()[0] != evalsha {
		return kind{}, false
	}
	keys, args := c.cmd.parts()
	if len(keys) > c.script.keys || len(args) != 1+c.script.args {
		return kind{}, false
	}
	return kind{c.script, args[0]}, true
}

// parts returns the keys and the arguments of a script call.
func (c command) parts() (keys, args []any) {
	all := c.Args()[firstKey:]
	n, _ := c.Args()[firstKey-1].(int)
	return all[:n], all[n:]
}

// together makes one call of those of several callers: for n locks first n first
// keys, n second ones and so on (a call that has fewer has its first key there),
// then the shared argument, and then the arguments of each.
func (s *Script) together(calls []*Call) command {
	n := len(calls)
	all := make([]any, firstKey+s.keys*n, firstKey+s.keys*n+1+s.args*n)
	all[0], all[1], all[2] = evalsha, s.sha, s.keys*n
	_, args := calls[0].cmd.parts()
	all = append(all, args[0])
	for i, c := range calls {
		keys, args := c.cmd.parts()
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

// deliver gives the calls of a parcel their answers. It returns false if the
// server refused what several share: one of its keys may be the reason (an ACL
// may allow the others), nothing was done, and they are to be sent one by one.
func (p parcel) deliver() bool {
	if len(p.calls) == 1 {
		return true
	}
	err := p.cmd.Err()
	answers, ok := p.cmd.Val().([]any)
	switch {
	case err != nil && classify(err).refused:
		return false
	case err == nil && (!ok || len(answers) != len(p.calls)):
		err = fmt.Errorf("a reply that this script does not give to %d callers: %.100v", len(p.calls), p.cmd.Val())
	}
	for i, c := range p.calls {
		if err != nil {
			c.cmd.SetErr(err)
		} else if text, failed := errorAmong(answers[i]); failed {
			c.cmd.SetErr(scriptError(text))
		} else {
			c.cmd.SetVal(answers[i])
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
