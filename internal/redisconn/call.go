package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/batch"
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
	oneKey     int // 1: the first key of each call is the same
}

// NewScript returns a script whose calls are for one lock each.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Text returns the script's text.
func (s *Script) Text() string { return s.text.(string) }

var (
	evalsha any = "evalsha"
	eval    any = "eval"
)

// firstKey is where the keys begin in a command line: after the command, the
// script and the number of keys.
const firstKey = 3

// Call makes a call of s: args are the keys, of which there are so many, and then
// the script's arguments.
func (s *Script) Call(op, name string, keys int, args ...any) *Call {
	c := calls.Get().(*Call)
	c.Op, c.Name, c.script = op, name, s
	c.line = append(append(c.room[:0], evalsha, s.sha, keys), args...)
	return c
}

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

// Call is one request: a script with its keys and arguments, for one lock. Make
// it with [Script.Call].
type Call struct {
	Op   string // for errors: "acquire", "renew", …
	Name string // the lock's name, which decides the shard of a Cluster

	// Limit is how long the answer is waited for once the request was sent. The
	// time before, in the queue of this process, does not count (R21). 0: the
	// timeout of the Conn.
	Limit time.Duration

	// Undo, if it is not nil, is that of the hold which the call asks the server to keep for Lasts. It is
	// told of each copy of the call from when that may be sent until the driver is done with it, which may
	// be long after its caller has left.
	Undo  *driver.Undo
	Lasts time.Duration

	script   *Script
	line     []any   // EVALSHA, the script, the number of keys, keys, arguments; never changed
	room     [10]any // for line
	inFull   bool    // send the script's text: the server does not know it
	again    bool    // it was sent before and not answered: it does not go alone
	repeated bool    // it was sent more than once: a copy may still be under way
	trip     *trip   // guarded by the lane's mutex

	// What became of it.
	reply any    // the server's reply
	cause error  // the server's error, or the driver's
	err   *Error // why there is no answer; nil: see reply and cause
	sent  time.Time
}

// ended notes what became of the call. If it was sent, its lane says when that is through.
func (c *Call) ended(a batch.Answer[result], err error) {
	r := &a.Value
	if !a.Sent {
		c.through()
	}
	c.sent, c.reply, c.cause, c.repeated = a.Since, r.value, r.cause, c.repeated || r.repeated
	if err != nil {
		c.err = &Error{Err: err, Unknown: a.Sent}
	}
}

// sends notes that the call may be sent from now on.
func (c *Call) sends() {
	if c.Undo != nil {
		c.Undo.Sends(c.Lasts)
	}
}

// through notes that the call is not sent any more. What arrives late all the same finds its value void.
func (c *Call) through() {
	if c.Undo != nil {
		c.Undo.Sent(false)
	}
}

// Reply is the server's reply.
func (c *Call) Reply() any { return c.reply }

// Result returns the reply to a call that was started, or why there is none.
func (n *Conn) Result(c *Call) (any, error) {
	switch {
	case c.err != nil:
		return nil, c.complete(c.err, n.addr)
	case c.cause != nil:
		return nil, c.complete(n.failed(c.Op, n.addr, c.cause), n.addr)
	}
	return c.reply, nil
}

// Repeated reports that the call was sent more than once. Whatever the answer is, it
// is the answer to the last copy, and an earlier one may still be under way (R7).
func (c *Call) Repeated() bool { return c.repeated }

// Sent is a time before the request was given to the driver (R1); zero: it was
// not.
func (c *Call) Sent() time.Time { return c.sent }

// Again makes the same call once more, for one that was not answered. The driver
// may still be at work on c, but leaves its line alone.
func (c *Call) Again() *Call {
	d := calls.Get().(*Call)
	d.Op, d.Name, d.Limit = c.Op, c.Name, c.Limit
	d.Undo, d.Lasts = c.Undo, c.Lasts
	d.script, d.line, d.again, d.repeated = c.script, c.line, true, true
	return d
}

// parts returns the keys and the arguments.
func (c *Call) parts() (keys, args []any) {
	n, _ := c.line[firstKey-1].(int)
	return c.line[firstKey : firstKey+n], c.line[firstKey+n:]
}

// calls are used again.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Recycle is for calls whose Do returned nil, and for calls that were started and are
// over; only for who waited for them, and once. One that was given up is left alone,
// since the driver may still write to it.
func (c *Call) Recycle() {
	if c.err == nil {
		*c = Call{}
		calls.Put(c)
	}
}

// complete fills in what a batcher does not know. An error of the last copy of a
// request says nothing about those before it (R7).
func (c *Call) complete(err *Error, addr string) *Error {
	err.Op, err.Addr = c.Op, addr
	err.Unknown = err.Unknown || c.repeated
	return err
}
