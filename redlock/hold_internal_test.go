package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisconn"
)

// What a node's answers leave there: the table of the drawing of leftover.
func TestWhatAnswersLeave(t *testing.T) {
	unknown := &redisconn.Error{Err: redisconn.ErrTimeout, Unknown: true}
	refused := &redisconn.Error{Err: errors.New("no")}
	granted, no := vote{granted: true}, vote{holder: "b"}
	votes := []struct {
		from leftover
		said vote
		got  reply
		to   leftover
	}{
		{none, granted, reply{}, there},
		{none, no, reply{}, none},
		{none, vote{}, reply{err: refused}, none},
		{none, vote{}, reply{err: errRestarted}, none},
		{none, vote{}, reply{err: unknown}, late},
		{none, no, reply{repeated: true}, late},      // the first copy may still arrive
		{none, granted, reply{repeated: true}, late}, // and may be the one that does
		{late, granted, reply{}, late},               // a repair is under way
		{there, no, reply{}, there},                  // it was repaired
	}
	for _, c := range votes {
		s := site{left: c.from, asking: true}
		s.voted(answer{said: c.said, reply: c.got})
		assert.Equal(t, c.to, s.left, "%+v", c)
		assert.False(t, s.asking)
	}
	mine, gone := reply{state: redisconn.Mine}, reply{state: redisconn.Gone}
	releases := []struct {
		from site
		got  reply
		to   leftover
	}{
		{site{left: there}, mine, removed},
		{site{left: there}, gone, none},
		{site{left: there}, reply{state: redisconn.Theirs}, none},
		{site{left: late}, gone, none},
		{site{left: there, again: true}, gone, removed}, // by a release whose answer was lost
		{site{left: there}, reply{state: redisconn.Gone, repeated: true}, removed},
		{site{left: there}, reply{err: unknown}, there},
		{site{left: late}, reply{err: refused}, late},
	}
	for _, c := range releases {
		s := c.from
		s.releasing = true
		s.freed(c.got)
		assert.Equal(t, c.to, s.left, "%+v", c)
		assert.Equal(t, c.got.err, s.err)
		assert.False(t, s.releasing)
		assert.Equal(t, c.from.again || c.got.repeated || errors.Is(c.got.err, unknown), s.again, "%+v", c)
	}
}

// What comes of a release, by what five nodes have said: r removed, g gone, - no answer in time,
// . not yet.
func TestWhatComesOfARelease(t *testing.T) {
	for _, c := range []struct {
		stage stage
		nodes string
		is    error // nil: not known yet
	}{
		{releasing, ".....", nil},
		{releasing, "rr...", nil},
		{releasing, "rrr..", errDone},
		{releasing, "rrr--", errDone},
		{releasing, "rrggg", driver.ErrLost},
		{releasing, "ggg..", driver.ErrLost},
		{releasing, "rrg-.", nil},
		{releasing, "rrg--", errDone}, // others can have it
		{releasing, "rr---", driver.ErrUnavailable},
		{releasing, "gg---", driver.ErrUnavailable},
		{abandoned, "rrr..", nil},
		{abandoned, "rrrr-", driver.ErrUnavailable}, // a request may still arrive
		{abandoned, "rgggg", errDone},
		{abandoned, "ggggg", errDone},
	} {
		b := &Backend{quorum: 3}
		h := &hold{b: b, stage: c.stage, end: &ending{try: newTry()}}
		for _, n := range c.nodes {
			b.nodes = append(b.nodes, &node{addr: fmt.Sprint("node", len(b.nodes))})
			s := site{left: map[rune]leftover{'r': removed, '-': there, '.': there}[n], releasing: n == '.'}
			if n == '-' {
				s.err = errNoAnswer
			}
			h.sites = append(h.sites, s)
		}
		try := h.end.try
		h.decide()
		select {
		case <-try.over:
			require.NotNil(t, c.is, "%s: %v", c.nodes, try.err)
			if errors.Is(c.is, errDone) {
				assert.NoError(t, try.err, c.nodes)
			} else {
				assert.ErrorIs(t, try.err, c.is, c.nodes)
			}
			assert.Equal(t, c.stage == releasing && try.err == nil, h.stage == released, c.nodes)
		default:
			assert.Nil(t, c.is, c.nodes)
		}
	}
}

var errDone = errors.New("released")

// Two repairs of one node that overlap would each take the end of the other for its own: a release would
// leave no note, and the later of the two would bring the lock back.
func TestANodeIsRepairedOnceAtATime(t *testing.T) {
	server := lab.StartRedis(t)
	p := lab.StartProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New([]*redis.Client{client}, &Options{NoRestartGuard: true, NodeTimeout: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	grant := locktest.Acquire(t, b, driver.Request{Name: "x", Owner: "o", TTL: time.Minute, Lost: func() {}})
	h := grant.Hold.(*hold)
	left := func() leftover {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.sites[0].left
	}
	require.Equal(t, there, left())

	p.Requests(lab.Hold)
	first, second := make(chan struct{}), make(chan struct{})
	repair := func(done chan struct{}) {
		h.repairOne(0)
		close(done)
	}
	go repair(first)
	require.Eventually(t, func() bool { return left() == late }, 30*time.Second, time.Millisecond)
	go repair(second)
	select {
	case <-second: // it sends nothing
	case <-time.After(10 * time.Second):
		t.Error("a second repair is under way")
	}
	assert.Equal(t, late, left(), "the first one may still arrive")
	p.Requests(lab.Pass)
	<-first
	<-second
	assert.Equal(t, there, left())
	h.repairOne(0)
	assert.Equal(t, there, left(), "the next one is sent")
}

// A server was looked at for a round, which had its quorum before it read that.
func TestALookThatARoundDidNotReadIsTheHolds(t *testing.T) {
	server := lab.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New([]*redis.Client{client}, &Options{NoRestartGuard: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	r := b.newRound(of("v", 7).claim, false)
	r.since, r.token = time.Now(), 7
	r.answers.from(0, toLook)(reply{})
	r.hold.win(r, 0)
	require.Eventually(t, func() bool {
		v, err := client.Get(t.Context(), redisconn.LockKey("x")).Result()
		return err == nil && v == "v"
	}, 30*time.Second, time.Millisecond, "the node has no lock")
}

// A round that leaves nothing itself does not end what an earlier one may have left (R7).
func TestARoundPassesOnWhatAnEarlierOneHasLeft(t *testing.T) {
	h := &hold{sites: make([]site, 3)}
	assert.Nil(t, h.giveUp().Hold)
	h.before = &hold{}
	assert.Same(t, h, h.giveUp().Hold)
}

// What an earlier round has under way is under way for the whole attempt.
func TestUndoWaitsForEarlierRounds(t *testing.T) {
	m := newMember(t)
	before, h := newHold(m.node.b, of("0", 0).claim), newHold(m.node.b, of("1", 0).claim)
	h.before = before
	before.undo.Sends(time.Hour)
	require.Error(t, h.Undo(t.Context()))
	before.undo.Sent(false)
	assert.NoError(t, h.Undo(t.Context()))
}
