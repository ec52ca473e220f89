package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// What a node's answers leave there: the table of the drawing of leftover.
func TestWhatAnswersLeave(t *testing.T) {
	said := func(code redisnode.Code, copies int) redisnode.Outcome {
		return redisnode.Outcome{Answer: redisnode.Answer{Code: code, N: 1}, Copies: copies}
	}
	unknown := redisnode.Outcome{Err: &redisnode.Error{Err: redisnode.ErrTimeout, Unknown: true}, Copies: 1}
	refused := redisnode.Outcome{Err: &redisnode.Error{Err: errors.New("no")}}
	granted, held := said(redisnode.Done, 1), said(redisnode.Held, 1)
	for _, c := range []struct {
		from leftover
		got  redisnode.Outcome
		to   leftover
	}{
		{nothing, granted, there},
		{nothing, said(redisnode.Again, 1), there},
		{nothing, held, nothing},
		{nothing, refused, nothing},
		{nothing, unknown, late},
		{nothing, said(redisnode.Held, 2), late}, // the first copy may still arrive
		{nothing, said(redisnode.Done, 2), late}, // and may be the one that does
		{late, granted, late},                    // a repair is under way
		{there, held, there},                     // it was repaired
	} {
		h := &hold{places: []place{{left: c.from, vote: &redisnode.Attempt{}}}}
		h.voted(0, c.got)
		assert.Equal(t, c.to, h.places[0].left, "%+v", c)
		assert.Nil(t, h.places[0].vote)
		h.places[0] = place{left: removed, vote: &redisnode.Attempt{}, void: true}
		h.voted(0, c.got)
		assert.Equal(t, removed, h.places[0].left, "it finds itself void, whatever it says")
	}
	mine, gone := said(redisnode.Done, 1), said(redisnode.Gone, 1)
	for _, c := range []struct {
		again bool
		got   redisnode.Outcome
		to    leftover
	}{
		{false, mine, removed},
		{false, gone, nothing},
		{false, said(redisnode.Theirs, 1), nothing},
		{true, gone, removed}, // by a release whose answer was lost
		{false, said(redisnode.Gone, 2), removed},
		{false, unknown, late},
		{false, refused, late},
	} {
		do := func(keeps bool, keep time.Time) place {
			b := &Backend{closed: true}
			h := &hold{b: b, stage: releasing, keep: keep, places: []place{{left: late, removing: 1, again: c.again}}}
			h.removed(0, c.got, keeps, false)
			assert.Equal(t, c.got.Err != nil, h.places[0].err != nil)
			assert.Zero(t, h.places[0].removing)
			return h.places[0]
		}
		p := do(false, time.Time{})
		assert.Equal(t, c.to, p.left, "%+v", c)
		assert.Equal(t, c.again || c.got.Copies > 1 || c.got.Err == unknown.Err, p.again, "%+v", c)
		switch {
		case c.got.Err == nil && c.got.Answer.Code == redisnode.Done:
			c.to = remains
		case c.to == removed:
			c.to = nothing // what was kept would still be there
		}
		assert.Equal(t, c.to, do(true, time.Now().Add(time.Hour)).left, "%+v", c)
	}
}

// What comes of a round, by what five nodes have said to it: y a vote, A and B held by another, o by a round before of
// this same Acquire, whose vote was late (R17), - no answer, . not yet. Where a node has answered before others were
// asked, these are open, and nothing is decided.
func TestWhatComesOfARound(t *testing.T) {
	for _, c := range []struct {
		nodes string
		over  bool // nobody waits for the others
		is    result
		left  time.Duration // until a quorum may be free
	}{
		{".....", false, outOfReach, 0},
		{"y....", false, outOfReach, 0},
		{"AA...", false, outOfReach, 3 * time.Second},
		{"yyy..", true, split, 0}, // won
		{"AAA..", true, heldByOne, 3 * time.Second},
		{"yyAAA", true, heldByOne, 3 * time.Second},
		{"aAA..", true, heldByOne, 146 * time.Millisecond}, // kept that long by this node, and perhaps by the last two
		{"yyAA.", false, perhaps, 3 * time.Second},
		{"yyAA-", true, perhaps, 3 * time.Second},
		{"yyABB", true, split, 3 * time.Second},
		{"yAABB", true, split, 3 * time.Second},
		{"yyooo", true, split, 0},
		{"ooooo", true, split, 0},
		{"oo---", true, outOfReach, 0},
		{"ooAA-", true, perhaps, 3 * time.Second},
		{"ooAB-", true, split, 3 * time.Second},
		{"y----", true, outOfReach, 0},
		{"yy---", true, outOfReach, 0},
	} {
		b := &Backend{quorum: 3, nodes: make([]*node, 5)}
		owner := "0123456789012345678901234567890123456789"
		r := b.newRound(&hold{b: b, keys: redisnode.KeysOf("n", owner, roundMark+"1:", ""), ttl: time.Second}, false)
		held := func(by string, left int64) said {
			return said{verdict: no, answer: redisnode.Answer{Code: redisnode.Held, N: left, Text: by[:holderLength]}}
		}
		for i, n := range c.nodes {
			if n != '.' {
				r.votes.put(i, map[rune]said{
					'y': {verdict: yes}, '-': {verdict: failed, err: errNoAnswer}, 'o': held(owner, 5000),
					'a': held("A456789012345678", 146), 'A': held("A456789012345678", 3000), 'B': held("B456789012345678", 4000),
				}[n])
			}
		}
		assert.Equal(t, c.over, r.votes.over, c.nodes)
		assert.Equal(t, c.is, r.refused(), c.nodes)
		assert.Equal(t, c.left, r.refusal(nil).Remaining, c.nodes)
	}
}

// What comes of a release, by what five nodes have said: r removed or kept, g gone, - no answer in time, . not yet,
// which is open, also before it is asked. A Break that missed r and r, and a release that missed - and -, look like a
// lock that is still held, of which one node has lost its copy: see the package documentation.
func TestWhatComesOfARelease(t *testing.T) {
	for _, c := range []struct {
		nodes string
		is    error // nil: not known yet
	}{
		{".....", nil},
		{"rr...", nil},
		{"rrr..", errDone},
		{"rrr--", errDone},
		{"rrggg", driver.ErrLost},
		{"ggg..", driver.ErrLost},
		{"rrg-.", nil},
		{"rgg..", nil},
		{"rrg--", errDone}, // others can have it
		{"rr---", driver.ErrUnavailable},
		{"gg---", driver.ErrUnavailable},
	} {
		for _, keep := range []time.Time{{}, time.Now()} {
			b := &Backend{quorum: 3, nodes: make([]*node, 5)}
			p, h := b.newPoll(freed), &hold{b: b, stage: releasing, keep: keep, places: make([]place, 5)}
			b.nodes = make([]*node, 5)
			p.said = make([]said, 5)
			for i, n := range c.nodes {
				if v := map[rune]verdict{'r': yes, 'g': gone, '-': failed}[n]; v != open {
					p.put(i, said{verdict: v, err: errNoAnswer})
				}
			}
			n := p.count()
			require.Equal(t, c.is != nil, p.over, c.nodes)
			keeps := !keep.IsZero()
			if c.nodes == "rrg--" && keeps { // or with one node more: then it would be kept
				assert.False(t, settled(p, n, keeps))
				continue
			}
			assert.Equal(t, errors.Is(c.is, errDone) || errors.Is(c.is, driver.ErrLost), settled(p, n, keeps), c.nodes)
			switch {
			case errors.Is(c.is, errDone):
				require.NoError(t, h.confirmed(n), c.nodes)
				assert.Equal(t, map[bool]stage{true: released, false: kept}[keep.IsZero()], h.stage)
			case errors.Is(c.is, driver.ErrLost):
				require.ErrorIs(t, h.confirmed(n), driver.ErrLost, c.nodes)
				assert.Equal(t, releasing, h.stage)
			case c.is != nil:
				assert.Less(t, n[yes]+n[gone], b.quorum, c.nodes)
			}
		}
	}
}

var errDone = errors.New("released")

// Two repairs of one node that overlap would each take the end of the other for its own: a release would
// leave no note, and the later of the two would bring the lock back.
func TestANodeIsRepairedOnceAtATime(t *testing.T) {
	server := lab.StartRedis(t)
	p := lab.StartProxy(t, server.Addr())
	n := memberAt(t, server, p.Addr()).node
	tries := 0
	lab.Again(t, func() bool { // on a busy machine a copy is sent, and may be late
		tries++
		req := driver.Request{Name: fmt.Sprint("x", tries), Owner: "o", TTL: time.Minute}
		h := locktest.Acquire(t, n.b, req).Hold.(*hold)
		left := func() leftover { // when nothing is asked any more
			locktest.Eventually(t, 30*time.Second, "it has answered", func() bool { return n.inFlight.Load() == 0 })
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.places[0].left
		}
		if left() != there {
			return false
		}
		p.Requests(lab.Hold)
		for range 2 { // the second time a repair is under way
			require.True(t, h.give(0))
			assert.EqualValues(t, 1, n.inFlight.Load())
			h.mu.Lock()
			assert.Equal(t, late, h.places[0].left, "from before it is sent, and the first one may still arrive")
			h.mu.Unlock()
		}
		p.Requests(lab.Pass)
		if left() != there {
			return false
		}
		require.True(t, h.give(0), "the first one has ended")
		return left() == there
	})
}

// From before a release is sent, what is under way, or is sent once more, finds the value void, and nothing is repaired.
func TestAReleaseIsSentFromAPlaceThatIsLate(t *testing.T) {
	server := lab.StartRedis(t)
	p := lab.StartProxy(t, server.Addr())
	m := memberAt(t, server, p.Addr())
	h := locktest.Acquire(t, m.node.b, driver.Request{Name: "x", Owner: "o", TTL: time.Minute}).Hold.(*hold)
	key := redisnode.LockKey("x")
	p.Requests(lab.Drop)
	require.Error(t, h.Release(locktest.Within(t, 50*time.Millisecond), 0))
	h.mu.Lock()
	assert.Equal(t, late, h.places[0].left)
	h.mu.Unlock()
	assert.False(t, h.give(0), "it is released")
	p.Set(lab.Reset)
	p.Set(lab.Pass)
	locktest.Eventually(t, 30*time.Second, "it is released", func() bool { return h.Release(t.Context(), 0) == nil })
	m.prepared()
	assert.Equal(t, redisnode.Void, m.repairs(&hold{b: m.node.b, keys: h.keys, ttl: time.Minute, since: h.since}))
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key))
}

// The end of a repair says nothing of a vote that was sent twice, and was answered meanwhile: its other copy may still
// arrive.
func TestARepairEndsAfterAVoteWhoseCopyIsLate(t *testing.T) {
	server := lab.StartRedis(t)
	p := lab.StartProxy(t, server.Addr())
	m := memberAt(t, server, p.Addr())
	m.prepared()
	h := m.of("v", 0)
	h.stage, h.until = held, time.Now().Add(time.Minute)
	h.places[0].vote = &redisnode.Attempt{}
	_, err := m.ready(time.Second)
	require.NoError(t, err)
	p.Requests(lab.Hold)
	require.True(t, h.give(0))
	h.voted(0, redisnode.Outcome{Copies: 2, Answer: redisnode.Answer{Code: redisnode.Done, N: 1}})
	p.Requests(lab.Pass)
	require.Eventually(t, func() bool { return m.inFlight.Load() == 0 }, 30*time.Second, time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.Equal(t, late, h.places[0].left)
}

// A release that waits for a vote learns of the release of another that has made that void, and who owes a place nothing
// any more asks no more.
func TestAReleaseLearnsWhatAnotherHasDone(t *testing.T) {
	server := lab.StartRedis(t)
	m := memberAt(t, server, server.Addr())
	h, waits := m.of("v", 0), m.node.b.newPoll(everybody)
	h.mu.Lock()
	h.stage = releasing
	h.places[0] = place{vote: &redisnode.Attempt{}, release: waits, removing: 1}
	h.mu.Unlock()
	h.removed(0, redisnode.Outcome{Copies: 1, Answer: redisnode.Answer{Code: redisnode.Done, N: 1}}, false, true)
	assert.Equal(t, 1, waits.wait(t.Context(), 5*time.Second)[yes])
	for left, says := range map[leftover]verdict{removed: yes, nothing: gone} {
		p := m.node.b.newPoll(everybody)
		h.mu.Lock()
		h.places[0] = place{left: left, err: errTakenBack}
		h.remove(0, p)
		assert.NoError(t, h.places[0].err)
		h.mu.Unlock()
		assert.Equal(t, 1, p.wait(t.Context(), time.Minute)[says])
	}
}

// A node that was asked to keep the lock answers when that time is over. It keeps the lock from when it was asked, and
// so for too long: it is to remove it.
func TestANodeThatAnswersTooLateToKeepTheLockRemovesIt(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	m := memberAt(t, server, server.Addr())
	h := locktest.Acquire(t, m.node.b, driver.Request{Name: "x", Owner: "o", TTL: time.Minute}).Hold.(*hold)
	const keep = 50 * time.Millisecond
	server.Pause()
	require.Error(t, h.Release(locktest.Within(t, 2*keep), keep))
	server.Resume()
	locktest.Eventually(t, 10*time.Second, "it is removed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.places[0].left == removed && h.places[0].removing == 0
	})
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("x")))
}

// A round that leaves nothing itself does not end what an earlier one may have left (R7), and one that has been taken
// back is not asked for again.
func TestARoundPassesOnWhatAnEarlierOneHasLeft(t *testing.T) {
	doubted := func(p place) *hold { return &hold{doubted: true, places: []place{p}} }
	none, left := &hold{places: []place{{left: late}}}, doubted(place{left: late})
	assert.Nil(t, remaining([]*hold{none}).Hold)
	assert.Same(t, left, remaining([]*hold{left, none}).Hold)
	asked := doubted(place{vote: &redisnode.Attempt{}})
	assert.Same(t, asked, remaining([]*hold{left, asked, none}).Hold)
	assert.Equal(t, []*hold{left}, asked.before)
	over := []*hold{doubted(place{left: removed}), doubted(place{vote: &redisnode.Attempt{}, void: true})}
	assert.Nil(t, remaining(over).Hold)
}

// What an earlier round has under way is under way for the whole attempt. Each round is asked once: not again for those
// that one knows from before it.
func TestUndoWaitsForEarlierRounds(t *testing.T) {
	m := newMember(t)
	before, h := m.of("0", 0), m.of("1", 0)
	h.before, before.before = []*hold{before}, []*hold{h}
	before.undo.Sends(time.Hour)
	require.Error(t, h.Undo(t.Context()))
	before.undo.Sent(false)
	assert.NoError(t, h.Undo(t.Context()))
}

// A node that stays down is asked to remove a lock for as long as it could last there, and not for good (R25).
func TestANodeThatStaysDownIsGivenUp(t *testing.T) {
	b := &Backend{ctx: t.Context()}
	h := &hold{b: b, lasts: time.Minute, places: make([]place, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owe()
	assert.True(t, h.owing)
	assert.WithinDuration(t, time.Now().Add(time.Minute), h.owedUntil, 10*time.Second)
	h.owing, h.owedUntil = false, time.Now()
	h.owe()
	assert.False(t, h.owing)
}
