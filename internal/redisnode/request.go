package redisnode

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Request asks for a lock.
type Request struct {
	Name  string        // any bytes
	Value string        // the owner: unique per attempt (R10), compared whole (R9), readable by Inspect
	TTL   time.Duration // at least 1 ms; rounded up to whole milliseconds

	// Token asks for a fencing token: max(stored counter + 1, server time in µs).
	Token bool

	// Waiting says that the caller has subscribed and will wait if the lock is held: the release will then publish. Whoever waits
	// must ask again no later than Answer.Left + 1 s (a minute where Left is negative), for the note of its waiting ends too.
	Waiting bool

	// Replicas > 0: after a grant, wait until so many replicas have the lock, at most ReplicaTimeout (whole milliseconds, at least 1,
	// well below the driver's ReadTimeout), and report in Answer.Replicas how many do. Too few is not an error here: it is for the
	// caller to release the lock.
	Replicas       int
	ReplicaTimeout time.Duration

	_ struct{}
}

// Answer is what the server said to a Request.
type Answer struct {
	Granted bool
	Again   bool   // granted before to this very value: the same token, the TTL started anew
	Token   uint64 // if asked for and granted

	// Left is the rest of the holder's TTL where the lock was not granted, at least 1 ms; negative: the key never expires (nobody's lock, but set by hand).
	Left time.Duration

	// Foreign: the key is there but is no lock (not a string). It stays in the way until somebody deletes it.
	Foreign bool

	// Void: not granted since TakeBack had already made this value void; Left is zero.
	Void bool

	Replicas int // acknowledged, where Request.Replicas > 0 and it was granted
}

// minVoid is how long the first copy of a request that was sent twice is refused at least, should it still arrive.
const minVoid = time.Minute

// Acquire asks once for the lock and never waits for a holder. Asking again with the same value is answered with the same grant (R11).
//
// After an error whose Unknown is set the lock may be the caller's, now or a little later: take it back with TakeBack.
func (n *Node) Acquire(ctx context.Context, r Request) (Answer, error) {
	const op = "acquire"
	if r.TTL < time.Millisecond {
		return Answer{}, n.misuse(op, fmt.Errorf("a TTL of %v is below 1ms, the resolution of the server", r.TTL))
	}
	if r.Replicas < 0 || r.Replicas > 0 && r.ReplicaTimeout < time.Millisecond {
		return Answer{}, n.misuse(op, fmt.Errorf("cannot wait for %d replicas for %v: ask for at least one, for at least 1ms", r.Replicas, r.ReplicaTimeout))
	}
	key, ttl := LockKey(r.Name), milliseconds(r.TTL)
	var mint any = "none"
	if r.Token {
		mint = n.mint
	}
	var cmd command
	if r.Waiting {
		cmd = n.scripts.acquire.command(4, key, key+voidSuffix+r.Value, key+fenceSuffix, key+waitSuffix, mint, r.Value, ttl)
	} else {
		cmd = n.scripts.acquire.command(3, key, key+voidSuffix+r.Value, key+fenceSuffix, mint, r.Value, ttl)
	}
	c := newCall(n.scripts.acquire, cmd)
	c.final = max(r.TTL, minVoid).Milliseconds()
	if r.Replicas > 0 {
		c.replicas, c.waitFor = r.Replicas, r.ReplicaTimeout
	}
	if err := n.do(ctx, op, r.Name, c); err != nil {
		return Answer{}, err
	}
	defer c.recycle()
	return n.answer(r, c)
}

// The first number of an answer of acquire.lua that is not simply a grant.
const (
	codeHeld = iota
	codeAgain
	codeVoid
	codeForeign
)

func (n *Node) answer(r Request, c *call) (Answer, error) {
	var a Answer
	switch v := c.cmd.Val().(type) {
	case int64:
		a.Granted, a.Token = true, uint64(v)
	case []any:
		code, number, ok := pair(v)
		if !ok {
			return Answer{}, n.strange("acquire", v)
		}
		left := leftOf(number)
		switch code {
		case codeHeld:
			a.Left = left
		case codeAgain:
			a.Granted, a.Again, a.Token = true, true, uint64(number)
		case codeVoid:
			a.Void = true
		case codeForeign:
			a.Foreign, a.Left = true, left
		default:
			return Answer{}, n.strange("acquire", v)
		}
	default:
		return Answer{}, n.strange("acquire", v)
	}
	if a.Granted && r.Replicas > 0 {
		if c.waitErr != nil {
			// The lock is there, but not for certain where it is to be: for the caller to take back.
			err := failed("wait for replicas", n.addr, c.waitErr)
			err.Unknown = true
			return Answer{}, err
		}
		a.Replicas = c.acked
	}
	return a, nil
}

// leftOf is the rest of a TTL that a script answered. In its last millisecond that is 0, and must not look like a time that is not known: who waits
// for the end of the TTL would wait for a message that nobody sends.
func leftOf(ms int64) time.Duration {
	if ms == 0 {
		ms = 1
	}
	return time.Duration(ms) * time.Millisecond
}

func pair(v []any) (code, number int64, ok bool) {
	if len(v) != 2 {
		return 0, 0, false
	}
	code, ok1 := v[0].(int64)
	number, ok2 := v[1].(int64)
	return code, number, ok1 && ok2
}

// State is whose a lock's key was when a request found it.
type State int

// The states.
const (
	Gone   State = iota // there was no key
	Mine                // it had the caller's value, and was renewed or removed
	Theirs              // it had another value, or is no lock, and was left alone
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Gone:
		return "gone"
	case Mine:
		return "mine"
	case Theirs:
		return "theirs"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Renew sets the TTL anew, counted from now, if the lock has the value: Mine. Otherwise it changes nothing.
func (n *Node) Renew(ctx context.Context, name, value string, ttl time.Duration) (State, error) {
	const op = "renew"
	if ttl < time.Millisecond {
		return Gone, n.misuse(op, fmt.Errorf("a TTL of %v is below 1ms, the resolution of the server", ttl))
	}
	key := LockKey(name)
	c := newCall(n.scripts.renew, n.scripts.renew.command(2, key, key+fenceSuffix, value, milliseconds(ttl)))
	return n.state(ctx, op, name, c)
}

// Release removes the lock if it has the value (Mine), and wakes those who wait for it. Otherwise it changes nothing.
//
// A release whose outcome was unknown may be sent again; Gone or Theirs then may mean that the first one removed it. Where Release itself had to
// send it twice, since the first copy was not answered in a short time, it says Mine whatever the second found: the lock is not the caller's any more,
// and if it was lost before, that is not told. Who must know that goes by the lock's validity.
func (n *Node) Release(ctx context.Context, name, value string) (State, error) {
	key := LockKey(name)
	c := newCall(n.scripts.release, n.scripts.release.command(2, key, key+waitSuffix, n.publish, value))
	return n.state(ctx, "release", name, c)
}

// TakeBack is Release after an Acquire whose outcome is unknown (R7). It also leaves a note for as long as void says (in whole milliseconds, at
// least 1), so that an Acquire with this value that is still under way is refused when it arrives.
// So once TakeBack has returned nil, the value holds nothing and (within void) never will.
func (n *Node) TakeBack(ctx context.Context, name, value string, void time.Duration) (State, error) {
	key := LockKey(name)
	c := newCall(n.scripts.release, n.scripts.release.command(3, key, key+waitSuffix, key+voidSuffix+value,
		n.publish, value, milliseconds(max(void, time.Millisecond))))
	return n.state(ctx, "take back", name, c)
}

// state sends c, whose script answers with a State.
func (n *Node) state(ctx context.Context, op, name string, c *call) (State, error) {
	if err := n.do(ctx, op, name, c); err != nil {
		return Gone, err
	}
	defer c.recycle()
	v, ok := c.cmd.Val().(int64)
	if !ok || v < int64(Gone) || v > int64(Theirs) {
		return Gone, n.strange(op, c.cmd.Val())
	}
	s := State(v)
	if s != Mine && c.resent && c.script == n.scripts.release {
		// The first copy may have removed it, and whoever waited for that have it already: Theirs is no more a sign of a loss than Gone is.
		s = Mine
	}
	return s, nil
}

// do sends c on its way and returns once it has a reply.
func (n *Node) do(ctx context.Context, op, name string, c *call) error {
	const attempts = 10 // a lane to a shard cannot follow a slot that has moved by itself
	for attempt := 1; ; attempt++ {
		r, err := n.routes.route(ctx, name)
		if err != nil {
			return n.complete(err, op, "")
		}
		l := r.plain
		if c.replicas > 0 {
			l = r.acked
		}
		if err := l.do(ctx, c); err != nil {
			return n.complete(err, op, r.addr)
		}
		cause := c.cmd.Err()
		if cause == nil {
			return nil
		}
		n.remap(r, cause)
		if c.replicas == 0 || attempt == attempts || !moved(cause) || !sleep(ctx, remapTime) {
			e := failed(op, r.addr, cause)
			e.Unknown = e.Unknown || c.resent // it is of the second copy, and says nothing about the first (R7)
			return e
		}
		c.cmd = c.script.again(c.cmd, nil)
	}
}

// remapTime is a pause for a Cluster's client to read the Cluster's map again. It does so at most every 200 ms.
const remapTime = 50 * time.Millisecond

// remap has the Cluster's client read the map again if an error says that it may be out of date: the client notices by itself only
// what it sends itself.
func (n *Node) remap(r *route, err error) {
	if cluster, ok := n.client.(*redis.ClusterClient); ok && r.shard != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		cluster.ReloadState(n.ctx)
	}
}

func moved(err error) bool {
	_, m := redis.IsMovedError(err)
	_, a := redis.IsAskError(err)
	return m || a
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// complete fills in what a lane or router does not know.
func (n *Node) complete(err *Error, op, addr string) *Error {
	if err.Op == "" {
		err.Op = op
	}
	if err.Addr == "" {
		err.Addr = addr
	}
	if err.Addr == "" {
		err.Addr = n.addr
	}
	return err
}

// misuse is the error for an argument that no server could serve.
func (n *Node) misuse(op string, err error) *Error {
	return &Error{Op: op, Addr: n.addr, Err: err, Refused: true}
}

// strange is the error for an answer that our scripts do not give.
func (n *Node) strange(op string, v any) *Error {
	return &Error{Op: op, Addr: n.addr, Err: fmt.Errorf("a reply that this script does not give: %v", v), Unknown: true}
}
