package redisconn

import (
	_ "embed"
	"strconv"
	"strings"
	"time"
)

//go:embed value.lua
var valueText string

//go:embed wake.lua
var wakeText string

//go:embed release.lua
var releaseText string

//go:embed several.lua
var severalText string

//go:embed inspect.lua
var inspectText string

var inspect = NewScript(inspectText)

// State is whose a lock's key was when a request found it.
type State int

// The states.
const (
	Gone   State = iota // there was no key
	Mine                // it had the caller's value, and was renewed or removed
	Theirs              // it had another value, or is no lock, and was left alone
	// Overtaken is of redlock: a token of another holder has reached or passed
	// this one's on this node. Whatever the key says, the lock is lost here.
	Overtaken
)

// StateOf reads the result of a script that answers with a State, up to last.
func (n *Conn) StateOf(c *Call, last State) (State, error) {
	reply, err := n.Result(c)
	if err != nil {
		return Gone, err
	}
	v, ok := reply.(int64)
	if !ok || v < int64(Gone) || v > int64(last) {
		return Gone, n.Unexpected(c.Op, reply)
	}
	return State(v), nil
}

// ReleaseScript returns the script for ReleaseCall.
func (n *Conn) ReleaseScript() *Script { return n.share(valueText+wakeText+releaseText, 2, 1) }

// Script returns a script that answers with several (several.lua), and can be
// called for several locks, with up to so many keys and exactly so many arguments
// for each, and one argument before those that is the same for all. A call with
// other numbers goes by itself, as do all on a Cluster.
func (n *Conn) Script(text string, keys, args int) *Script {
	return n.share(valueText+severalText+text, keys, args)
}

// WakingScript is Script for one that can wake those who wait (wake.lua). Its first argument is
// Publish.
func (n *Conn) WakingScript(text string, keys, args int) *Script {
	return n.Script(wakeText+text, keys, args)
}

// Publish is the command that publishes on this kind of server.
func (n *Conn) Publish() any { return n.publish }

// OneKey returns s for calls whose first key is the same for all, beside those that
// each lock has.
func (s *Script) OneKey() *Script {
	s.oneKey = 1
	return s
}

func (n *Conn) share(text string, keys, args int) *Script {
	s := NewScript(text)
	if !n.IsCluster() {
		s.keys, s.args = keys, args
	}
	return s
}

// ReleaseCall asks to remove the lock if it has the value, and to wake those who
// wait for it. void > 0 leaves a note for so long, so that an acquire with this
// value that is still under way is refused when it arrives (R7). The reply is a
// State.
func (n *Conn) ReleaseCall(s *Script, k *Keys, void time.Duration) *Call {
	if void > 0 {
		return s.Call("take back", k.Name, 3, k.Lock, k.Wait(), k.Void(), n.publish, k.Value(), Milliseconds(void))
	}
	return s.Call("release", k.Name, 2, k.Lock, k.Wait(), n.publish, k.Value())
}

// Status is what a server knows of a lock.
type Status struct {
	Held    bool
	Value   string        // the holder's whole owner value
	Left    time.Duration // the rest of its TTL; negative: it never expires
	Foreign bool          // the key is there but is no lock (not a string)
	Token   uint64        // the holder's, if a quorum's counter was raised to it; 0: that is not known
	Waited  bool          // somebody waits, and will be woken by the release
}

// InspectCall reads the state of a lock, with the token of a counter, and changes
// nothing.
func InspectCall(k *Keys, counter any) *Call {
	return inspect.Call("inspect", k.Name, 3, k.Lock, counter, k.Wait())
}

// StatusOf reads the reply to InspectCall.
func (n *Conn) StatusOf(c *Call) (Status, error) {
	v, ok := c.Reply().([]any)
	if !ok || len(v) != 4 {
		return Status{}, n.Unexpected(c.Op, c.Reply())
	}
	left, ok1 := v[1].(int64)
	waited, ok2 := v[3].(int64)
	_, isText := v[0].(string)
	if !ok1 || !ok2 || !isText && v[0] != nil || left < NoKey || waited < 0 || waited > 1 {
		return Status{}, n.Unexpected(c.Op, v)
	}
	var s Status
	s.Value, s.Held = v[0].(string)
	s.Foreign = !s.Held && left != NoKey
	if s.Held || s.Foreign {
		s.Left = LeftOf(left)
	}
	counter, _ := v[2].(string)
	token, by, _ := strings.Cut(counter, " ")
	if own, raised := strings.CutPrefix(by, "+"); raised {
		token, by, _ = strings.Cut(own, " ") // its lease's own: see counter.lua of package redlock
	}
	if by == s.Value {
		s.Token, _ = strconv.ParseUint(token, 10, 64)
	}
	s.Waited = waited == 1
	return s, nil
}

// NoKey is what PTTL answers for a key that is not there. -1 is for one that never expires.
const NoKey = -2

// LeftOf is the rest of a TTL that a script answered. In its last millisecond
// that is 0, and must not look like a time that is not known: a waiter would wait
// for a message that nobody sends.
func LeftOf(ms int64) time.Duration {
	if ms == 0 {
		ms = 1
	}
	return time.Duration(ms) * time.Millisecond
}
