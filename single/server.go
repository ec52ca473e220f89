package single

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"time"

	"github.com/golockers/locker/internal/redisconn"
)

//go:embed acquire.lua
var acquireText string

//go:embed renew.lua
var renewText string

//go:embed raise.lua
var raiseText string

// server asks one Redis for locks: each method is one script.
type server struct {
	*redisconn.Conn
	acquireScript, renewScript, releaseScript, raiseScript *redisconn.Script
	life                                                   any // how long a token counter lives, in the scripts' words
}

func newServer(conn *redisconn.Conn, keepTokens bool) *server {
	s := &server{
		Conn:          conn,
		acquireScript: conn.Script(acquireText, 4, 2),
		renewScript:   conn.Script(renewText, 2, 2),
		releaseScript: conn.ReleaseScript(),
		raiseScript:   redisconn.NewScript(raiseText),
		life:          "expire",
	}
	if keepTokens {
		s.life = "keep"
	}
	return s
}

// ask sends the call that build makes. A request whose connection went silent is
// sent once more, and again within the timeout: each is idempotent (R11). repeated
// says that it was sent more than once, so that a copy may still be under way.
func (s *server) ask(ctx context.Context, build func() *redisconn.Call) (c *redisconn.Call, repeated bool, err error) {
	began := time.Now()
	c = build()
	err = s.Do(ctx, c)
	for errors.Is(err, redisconn.ErrSilent) && ctx.Err() == nil && time.Since(began) < s.Timeout() {
		repeated = true
		c = build()
		err = s.DoQueued(ctx, c)
	}
	var e *redisconn.Error
	if repeated && errors.As(err, &e) {
		e.Unknown = true // it is of the last copy, and says nothing about those before (R7)
	}
	return c, repeated, err
}

// request asks for a lock.
type request struct {
	name  string
	value any           // the owner: unique per attempt (R10), compared whole (R9)
	ttl   time.Duration // at least 1 ms; rounded up to whole milliseconds

	// waiting: the caller has subscribed and will wait if the lock is held: the
	// release will then publish. A waiter asks again no later than answer.left + 1 s
	// (a minute where left is negative), since the note of its waiting ends too.
	waiting bool

	// replicas > 0: after a grant, wait until so many replicas have the lock, at
	// most replicaTime (whole milliseconds, at least 1).
	replicas    int
	replicaTime time.Duration
}

// answer is what the server said to a request.
type answer struct {
	granted  bool
	again    bool          // granted before to this very value: the same token, the TTL started anew
	token    uint64        // granted
	left     time.Duration // not granted: the rest of the holder's TTL; negative: it never expires
	foreign  bool          // the key is there but is no lock
	void     bool          // not granted, since takeBack had already made this value void
	replicas int           // that acknowledged
	repeated bool          // sent more than once: whatever the answer, a copy may still be under way
}

// acquire asks once for the lock and never waits for a holder. Asking again with
// the same value is answered with the same grant (R11).
//
// After an error whose Unknown is set, or a refusal that was repeated, the lock
// may be the caller's a little later: take it back with takeBack.
func (s *server) acquire(ctx context.Context, r request) (answer, error) {
	k := redisconn.KeysOf(r.name, r.value.(string))
	c, repeated, err := s.ask(ctx, func() *redisconn.Call {
		var c *redisconn.Call
		if r.waiting {
			c = s.acquireScript.Call("acquire", r.name, 4, k.Lock, k.Void, k.Fence, k.Wait, s.life, r.value, redisconn.Milliseconds(r.ttl))
		} else {
			c = s.acquireScript.Call("acquire", r.name, 3, k.Lock, k.Void, k.Fence, s.life, r.value, redisconn.Milliseconds(r.ttl))
		}
		c.Replicas, c.ReplicaTimeout = r.replicas, r.replicaTime
		return c
	})
	if err != nil {
		return answer{}, err
	}
	defer c.Recycle()
	a, err := s.answer(c)
	if err != nil {
		return a, err
	}
	a.repeated = repeated
	if a.granted && r.replicas > 0 {
		if c.WaitErr != nil {
			// The lock is there, but not for certain where it is to be: for the caller to take back.
			err := redisconn.Failed("wait for replicas", s.Addr(), c.WaitErr)
			err.Unknown = true
			return answer{}, err
		}
		a.replicas = c.Acked
	}
	return a, nil
}

// The first number of an answer of acquire.lua that is not simply a grant.
const (
	codeHeld int64 = iota
	codeAgain
	codeVoid
	codeForeign
)

func (s *server) answer(c *redisconn.Call) (answer, error) {
	switch v := c.Reply().(type) {
	case int64:
		return answer{granted: true, token: uint64(v)}, nil
	case []any:
		if len(v) != 2 {
			break
		}
		code, ok1 := v[0].(int64)
		number, ok2 := v[1].(int64)
		if !ok1 || !ok2 {
			break
		}
		switch code {
		case codeHeld:
			return answer{left: redisconn.LeftOf(number)}, nil
		case codeAgain:
			return answer{granted: true, again: true, token: uint64(number)}, nil
		case codeVoid:
			return answer{void: true}, nil
		case codeForeign:
			return answer{foreign: true, left: redisconn.LeftOf(number)}, nil
		}
	}
	return answer{}, s.Strange(c.Op, c.Reply())
}

// renew sets the TTL anew, counted from now, if the lock has the value: Mine.
// Otherwise it changes nothing.
func (s *server) renew(ctx context.Context, name string, value any, ttl time.Duration) (redisconn.State, error) {
	k := redisconn.KeysOf(name, "")
	state, _, err := s.state(ctx, func() *redisconn.Call {
		return s.renewScript.Call("renew", name, 2, k.Lock, k.Fence, s.life, value, redisconn.Milliseconds(ttl))
	})
	return state, err
}

// release removes the lock if it has the value (Mine), and wakes those who wait
// for it. Otherwise it changes nothing.
//
// Where it had to be sent more than once it says Mine whatever the last copy
// found: the lock is not the caller's any more, but if it was lost before, that is
// not told. A holder that must know relies on the lease's validity.
func (s *server) release(ctx context.Context, name string, value any) (redisconn.State, error) {
	k := redisconn.KeysOf(name, "")
	state, repeated, err := s.state(ctx, func() *redisconn.Call {
		return s.ReleaseCall(s.releaseScript, name, &k, value, 0)
	})
	if repeated && err == nil {
		state = redisconn.Mine
	}
	return state, err
}

// takeBack is release after an acquire whose outcome is unknown (R7). It also
// leaves a note for as long as void says, so that an acquire with this value that
// is still under way is refused when it arrives. So once takeBack has returned
// nil, the value holds nothing and (within void) never will.
func (s *server) takeBack(ctx context.Context, name string, value any, void time.Duration) (redisconn.State, error) {
	k := redisconn.KeysOf(name, value.(string))
	state, _, err := s.state(ctx, func() *redisconn.Call {
		return s.ReleaseCall(s.releaseScript, name, &k, value, max(void, time.Millisecond))
	})
	return state, err
}

// raise makes later tokens of the name greater than token, if the lock has the value.
func (s *server) raise(ctx context.Context, name string, value any, token uint64) (redisconn.State, error) {
	k := redisconn.KeysOf(name, "")
	state, _, err := s.state(ctx, func() *redisconn.Call {
		return s.raiseScript.Call("raise the token", name, 2, k.Lock, k.Fence, value, strconv.FormatUint(token, 10), s.life)
	})
	return state, err
}

// state sends a call whose script answers with a State.
func (s *server) state(ctx context.Context, build func() *redisconn.Call) (redisconn.State, bool, error) {
	c, repeated, err := s.ask(ctx, build)
	if err != nil {
		return redisconn.Gone, repeated, err
	}
	defer c.Recycle()
	state, err := s.StateOf(c)
	return state, repeated, err
}

// inspect reads the state of a lock from the master, and changes nothing.
func (s *server) inspect(ctx context.Context, name string) (redisconn.Status, error) {
	k := redisconn.KeysOf(name, "")
	c, _, err := s.ask(ctx, func() *redisconn.Call { return redisconn.InspectCall(name, &k, k.Fence) })
	if err != nil {
		return redisconn.Status{}, err
	}
	defer c.Recycle()
	return s.StatusOf(c)
}
