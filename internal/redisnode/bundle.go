package redisnode

import "fmt"

// What several callers ask of one server at the same time goes to it as one script call. To start a script costs the server
// about 2 µs, and a command in it 0.5 to 1: of 64 locks together each costs half of what it does alone. Each has its own answer or error all the same.

// maxBundle bounds how many locks one script is for, since the server does nothing else meanwhile: some 4 µs for each.
const maxBundle = 64

// parcel is one command on its way, and the calls that it is for: several only if it is a bundle.
type parcel struct {
	cmd   command
	calls []*call
}

// pack puts the calls of a batch into as few parcels as may be. Those with a script's text come first: the server does not know it yet.
func pack(batch []*call) []parcel {
	if len(batch) == 1 {
		return []parcel{{batch[0].cmd, batch}}
	}
	var parcels []parcel
	groups := make(map[kind][]*call, 2)
	for i, c := range batch {
		if k, ok := c.kind(); ok {
			groups[k] = append(groups[k], c)
		} else {
			parcels = append(parcels, parcel{c.cmd, batch[i : i+1]})
		}
	}
	for k, group := range groups {
		for len(group) > 0 {
			n := min(len(group), maxBundle)
			p := parcel{group[0].cmd, group[:n]}
			if n > 1 {
				p.cmd = k.script.bundle(k.script, p.calls)
			}
			parcels, group = append(parcels, p), group[n:]
		}
	}
	return parcels
}

// singly puts each call into a parcel of its own.
func singly(calls []*call) []parcel {
	parcels := make([]parcel, len(calls))
	for i, c := range calls {
		parcels[i] = parcel{c.cmd, calls[i : i+1]}
	}
	return parcels
}

// kind is what the calls of a bundle have in common: the script and its first argument, the way in which it mints or publishes.
type kind struct {
	script *script
	way    any
}

// kind returns false if c has to go by itself: all but plain acquires and releases, and those that are sent a second time.
func (c *call) kind() (kind, bool) {
	if c.script.bundle == nil || c.resent || c.cmd.Args()[0] != evalsha {
		return kind{}, false
	}
	_, args := c.cmd.parts()
	return kind{c.script, args[0]}, len(args) == c.script.plain
}

// parts returns the keys and the arguments of a script call.
func (c command) parts() (keys, args []any) {
	all := c.Args()[firstKey:]
	n, _ := c.Args()[firstKey-1].(int)
	return all[:n], all[n:]
}

// bundleAcquires makes one call of acquire.lua, or of a ballot's script, of several of one kind.
func bundleAcquires(s *script, calls []*call) command {
	n := len(calls)
	all := make([]any, firstKey+4*n, firstKey+4*n+1+2*n)
	all[0], all[1], all[2] = evalsha, s.sha, 4*n
	locks, voids, counters, notes := all[3:3+n], all[3+n:3+2*n], all[3+2*n:3+3*n], all[3+3*n:]
	_, args := calls[0].cmd.parts()
	all = append(all, args[0])
	for i, c := range calls {
		keys, args := c.cmd.parts()
		locks[i], voids[i], counters[i], notes[i] = keys[0], keys[1], keys[2], keys[0]
		if len(keys) == 4 {
			notes[i] = keys[3]
		}
		all = append(all, args[1], args[2])
	}
	return newCommand(all)
}

// bundleReleases does so with release.lua.
func bundleReleases(s *script, calls []*call) command {
	n := len(calls)
	all := make([]any, firstKey+2*n, firstKey+3*n+1)
	all[0], all[1], all[2] = evalsha, s.sha, 2*n
	locks, notes := all[3:3+n], all[3+n:]
	_, args := calls[0].cmd.parts()
	all = append(all, args[0])
	for i, c := range calls {
		keys, args := c.cmd.parts()
		locks[i], notes[i] = keys[0], keys[1]
		all = append(all, args[1])
	}
	return newCommand(all)
}

// deliver gives the calls of a bundle their answers. It returns false if the server refused the bundle: one of its keys may be the reason (an
// ACL may allow the others), nothing was done, and they are to be sent one by one.
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

// scriptError is an error that the server gave for one lock of several. It is a redis.Error.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as the server's.
func (scriptError) RedisError() {}
