package single

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisconn"
)

//go:embed tokens.lua
var tokensText string

//go:embed ask.lua
var askText string

//go:embed acquire.lua
var acquireText string

//go:embed pass.lua
var passText string

//go:embed unline.lua
var unlineText string

//go:embed renew.lua
var renewText string

//go:embed raise.lua
var raiseText string

// server asks one Redis for locks: each method is one script.
type server struct {
	*redisconn.Conn
	acquireScript, passScript, unlineScript, renewScript, releaseScript, raiseScript *redisconn.Script

	shareScript, stayScript, leaveScript, censusScript, dissolveScript *redisconn.Script

	me   string // the name of this client among the waiters
	mark any    // it as it is noted there
}

func newServer(conn *redisconn.Conn) *server {
	s := &server{
		Conn:          conn,
		acquireScript: conn.Script(tokensText+sharersText+askText+acquireText, 3, 2).OneKey(),
		passScript:    conn.Script(tokensText+passText, 0, 0),
		unlineScript:  conn.WakingScript(unlineText, 0, 0),
		renewScript:   conn.Script(renewText, 1, 2),
		releaseScript: conn.ReleaseScript(),
		raiseScript:   conn.Script(raiseText, 0, 0),

		shareScript:    conn.Script(mostText+tokensText+sharersText+enterText+askText+shareText, 3, 2).OneKey(),
		stayScript:     conn.Script(sharersText+enterText+stayText, 2, 2),
		leaveScript:    conn.WakingScript(sharersText+leaveText, 4, 2),
		censusScript:   conn.Script(censusText, 0, 0),
		dissolveScript: conn.WakingScript(dissolveText, 0, 0),
	}
	var random [4]byte
	_, _ = rand.Read(random[:])
	s.me = hex.EncodeToString(random[:])
	s.mark = fmt.Sprintf("%s=%d;", s.me, turnTime.Milliseconds())
	return s
}

// turnTime is how long a lock that was released is kept for the client that waited longest: the message has to
// reach it and its request has to come back, also from another continent, since a client to which both take
// longer gets no turn beside busy ones that are near; and if it is gone, so much is lost.
const turnTime = 200 * time.Millisecond

// tokens is the counter of the tokens of a name.
func (s *server) tokens(name string) any {
	if s.IsCluster() {
		return redisconn.SlotTokensKey(name)
	}
	return tokensKey
}

var tokensKey any = redisconn.TokensKey

// request asks for a lock. Its owner value is unique per attempt (R10), and
// compared whole (R9).
type request struct {
	ttl time.Duration // at least 1 ms; rounded up to whole milliseconds

	// waiting: the caller has subscribed and will wait if the lock is held: the
	// release will then publish. A waiter asks again no later than answer.left + 1 s
	// (a minute where left is negative), since the note of its waiting ends too.
	waiting bool

	shared bool // for the lock together with others

	undo *driver.Undo // see redisconn.Call; nil: nobody undoes it
}

// answer is what the server said to a request.
type answer struct {
	granted  bool
	again    bool          // granted before to this very value: the same token, the TTL started anew
	token    uint64        // granted
	left     time.Duration // not granted: the rest of the holder's TTL; negative: it never expires
	foreign  bool          // the key is there but is no lock
	void     bool          // not granted, since a release had already made this value void
	repeated bool          // sent more than once: whatever the answer, a copy may still be under way
	sharers  bool          // not granted: sharers have it, and a writer that waits has left its note
	full     int64         // not granted: as many share the lock as can

	// Of pass.
	lost  bool // the old holder does not have the lock, and nothing was changed
	state redisconn.State
	turn  bool // released, and it is another client's turn
}

// acquire asks once for the lock and never waits for a holder. Asking again with
// the same value is answered with the same grant (R11).
//
// After an error whose Unknown is set, or a refusal that was repeated, the lock
// may be the caller's a little later: take it back by a release with void.
func (s *server) acquire(ctx context.Context, k *redisconn.Keys, r request) (answer, error) {
	var c *redisconn.Call
	script := s.acquireScript
	if r.shared {
		script = s.shareScript
	}
	if r.waiting {
		c = script.Call("acquire", k.Name, 4, s.tokens(k.Name), k.Void(), k.Lock, k.Wait(), s.mark,
			k.Value(), redisconn.Milliseconds(r.ttl))
	} else {
		c = script.Call("acquire", k.Name, 3, s.tokens(k.Name), k.Void(), k.Lock, s.mark, k.Value(),
			redisconn.Milliseconds(r.ttl))
	}
	c.Undo, c.Lasts = r.undo, r.ttl
	c, err := s.Do(ctx, c)
	if err != nil {
		return answer{}, err
	}
	defer c.Recycle()
	return s.answer(c)
}

// The first number of an answer of acquire.lua that is not simply a grant.
const (
	codeHeld int64 = iota
	codeAgain
	codeVoid
	codeForeign
	codeNotOld // of pass.lua, as is the next
	codeTurn
	codeSharers
	codeFull
)

const opPass = "pass"

// answer reads the reply strictly: what the scripts do not answer is no grant.
func (s *server) answer(c *redisconn.Call) (answer, error) {
	a := answer{repeated: c.Repeated()}
	if token, ok := c.Reply().(int64); ok && isToken(token) {
		a.granted, a.token = true, uint64(token)
		return a, nil
	}
	v, _ := c.Reply().([]any)
	if len(v) != 2 {
		return a, s.Unexpected(c.Op, c.Reply())
	}
	code, ok1 := v[0].(int64)
	number, ok2 := v[1].(int64)
	passes := c.Op == opPass
	switch {
	case !ok1 || !ok2:
	case code == codeHeld && number >= redisconn.NoKey:
		a.left = redisconn.LeftOf(number)
		return a, nil
	case code == codeAgain && isToken(number):
		a.granted, a.again, a.token = true, true, uint64(number)
		return a, nil
	case code == codeVoid && number == 0:
		a.void = true
		return a, nil
	case code == codeForeign && number >= redisconn.NoKey:
		a.foreign, a.left = true, redisconn.LeftOf(number)
		return a, nil
	case !passes && code == codeSharers && number >= 0:
		a.sharers, a.left = true, redisconn.LeftOf(number)
		return a, nil
	case !passes && code == codeFull && number > 0:
		a.full = number
		return a, nil
	case passes && code == codeNotOld && (number == int64(redisconn.Gone) || number == int64(redisconn.Theirs)):
		a.lost, a.state = true, redisconn.State(number)
		return a, nil
	case passes && code == codeTurn && number == 0:
		a.turn = true
		return a, nil
	}
	return a, s.Unexpected(c.Op, c.Reply())
}

// isToken reports whether a script can have drawn the token.
func isToken(n int64) bool { return n > 0 && n <= maxToken+1 }

// pass releases the lock of old and acquires it for k, in one step. If yield is set
// and another client waits, it is that one's turn, and k is not granted it.
func (s *server) pass(
	ctx context.Context, old, k *redisconn.Keys, ttl time.Duration, yield bool, undo *driver.Undo,
) (answer, error) {
	turn := "0"
	if yield {
		turn = "1"
	}
	c := s.passScript.Call(opPass, k.Name, 4, s.tokens(k.Name), k.Void(), k.Lock, k.Wait(), old.Value(),
		k.Value(), redisconn.Milliseconds(ttl), turn)
	c.Undo, c.Lasts = undo, ttl
	c, err := s.Do(ctx, c)
	if err != nil {
		return answer{}, err
	}
	defer c.Recycle()
	return s.answer(c)
}

// unline takes this client out of those who wait for the lock.
func (s *server) unline(ctx context.Context, k *redisconn.Keys) (redisconn.State, error) {
	state, _, err := s.state(ctx, s.unlineScript.Call("leave the line", k.Name, 2, k.Lock, k.Wait(), s.Publish(), s.me))
	return state, err
}

// renew sets the TTL anew, counted from now, if the lock has the value, or the value is among those who share it:
// Mine. Otherwise it changes nothing.
func (s *server) renew(
	ctx context.Context, k *redisconn.Keys, shared bool, ttl time.Duration, undo *driver.Undo,
) (redisconn.State, error) {
	var c *redisconn.Call
	if ms := redisconn.Milliseconds(ttl); shared {
		c = s.stayScript.Call("renew", k.Name, 2, k.Lock, k.Lock.(string)+":shared", "", k.Value(), ms)
	} else {
		c = s.renewScript.Call("renew", k.Name, 1, k.Lock, "", k.Value(), ms)
	}
	c.Undo, c.Lasts = undo, ttl
	state, _, err := s.state(ctx, c)
	return state, err
}

// release removes the lock if it has the value (Mine), and wakes those who wait for it; of a shared lock it removes
// the value, and the note of a writer with that value. void > 0 leaves a note for so long, so that an acquire with this value that is
// still under way is refused when it arrives (R7): once release has returned nil, the value
// holds nothing and (within void) never will.
//
// Where it had to be sent more than once it says Mine whatever the last copy
// found: the lock is not the caller's any more, but if it was lost before, that is
// not told. A holder that must know relies on the lease's validity.
func (s *server) release(
	ctx context.Context, k *redisconn.Keys, shared bool, void time.Duration,
) (redisconn.State, error) {
	c := s.ReleaseCall(s.releaseScript, k, void)
	if shared {
		c = s.leaveScript.Call(c.Op, k.Name, 4, k.Lock, k.Wait(), k.Void(), k.Lock.(string)+":shared", s.Publish(),
			k.Value(), redisconn.Milliseconds(void))
	}
	state, repeated, err := s.state(ctx, c)
	if repeated && err == nil {
		state = redisconn.Mine
	}
	return state, err
}

// raise makes later tokens of the name greater than token, if the lock has the value.
func (s *server) raise(ctx context.Context, k *redisconn.Keys, token uint64) (redisconn.State, error) {
	state, _, err := s.state(ctx, s.raiseScript.Call("raise the token", k.Name, 2, s.tokens(k.Name), k.Lock,
		k.Value(), strconv.FormatUint(token, 10)))
	return state, err
}

// state sends a call whose script answers with a State.
func (s *server) state(ctx context.Context, c *redisconn.Call) (redisconn.State, bool, error) {
	c, err := s.Do(ctx, c)
	if err != nil {
		return redisconn.Gone, c.Repeated(), err
	}
	defer c.Recycle()
	state, err := s.StateOf(c, redisconn.Theirs)
	return state, c.Repeated(), err
}

// inspect reads the state of a lock from the master, and changes nothing.
func (s *server) inspect(ctx context.Context, name string) (status, error) {
	k := redisconn.KeysOf(name, "", "", "")
	c, err := s.Do(ctx, redisconn.InspectCall(&k, k.Lock))
	if err != nil {
		return status{}, err
	}
	defer c.Recycle()
	st, err := s.StatusOf(c)
	v := readValue(st.Value)
	st.Value, st.Token = v.owner, v.token
	if v.turn != "" {
		st.Held, st.Waited = false, true
	}
	all := status{Status: st, shared: v.shared}
	if v.shared && err == nil {
		if known, err := s.census(ctx, &k, &all); err != nil || !known {
			if err == nil {
				return s.inspect(ctx, name) // it has changed in between
			}
			return status{}, err
		}
	}
	return all, err
}
