package redlock_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tokenModel is the lock with fencing=on, where clocks do as they like: a key
// can expire at any moment. Counters are kept. It promises that
//
//   - no two holders have the same token, and a holder who began after another
//     one had the lock has a higher one;
//   - no renewal succeeds that began when another client with a higher token had
//     got the lock: whoever was overtaken learns of it at the next renewal, and no
//     lease reaches over a later one's whole life.
//
// Both clients acquire once, and renew as often as it says.
type tokenModel struct {
	renewals uint8

	noTest       bool // the second phase does not ask whether counter < t
	repairCounts bool // a node that has lost the key takes it again when it renews, and counts
	plainRenewal bool // a renewal asks for the key alone, not for the counter
}

// The phases of a client.
const (
	tIdle uint8 = iota
	tVoting
	tRaising
	tHeld
	tRenewing
)

type tNode struct {
	key uint8 // 0: none; 1, 2: the client whose it is
	n   uint8 // the counter
	by  uint8 // who raised it
	// Of each client: what this node has told it in this phase, and whether a repair is under way.
	told   [2]uint8
	repair [2]bool
}

// What a node has told: in the vote 1 + its counter; in the second phase 1 for
// ok; in a renewal:
const (
	toldMine uint8 = 1
	toldGone uint8 = 2
)

type tClient struct {
	phase, round, t uint8
	after           bool // the other had the lock before this one began
	passed          bool // another with a higher token had the lock when this renewal began
}

type tState struct {
	node   [3]tNode
	client [2]tClient
}

func (s *tState) pack() packed {
	var blocks [3]uint64
	for j, n := range s.node {
		var b bits
		b.put(n.key, 2)
		b.put(n.n, 2)
		b.put(n.by, 2)
		for i := range 2 {
			b.put(n.told[i], 2)
			b.flag(n.repair[i])
		}
		blocks[j] = b.p[0]
	}
	slices.Sort(blocks[:])
	var b bits
	for _, c := range s.client {
		b.put(c.phase, 3)
		b.put(c.round, 2)
		b.put(c.t, 2)
		b.flag(c.after)
		b.flag(c.passed)
	}
	return packed{blocks[0] | blocks[1]<<12 | blocks[2]<<24, b.p[0]}
}

func unpackT(p packed) (s tState) {
	for j := range s.node {
		b := bits{p: packed{p[0] >> (12 * j)}}
		n := &s.node[j]
		n.key, n.n, n.by = b.get(2), b.get(2), b.get(2)
		for i := range 2 {
			n.told[i], n.repair[i] = b.get(2), b.get(1) == 1
		}
	}
	b := bits{p: packed{p[1]}}
	for i := range s.client {
		c := &s.client[i]
		c.phase, c.round, c.t = b.get(3), b.get(2), b.get(2)
		c.after, c.passed = b.get(1) == 1, b.get(1) == 1
	}
	return s
}

func (m tokenModel) steps(p packed, next func(packed, step), fail func(string)) {
	s := unpackT(p)
	for j, n := range s.node {
		if n.key != 0 {
			t := s
			t.node[j].key = 0
			next(t.pack(), step{"the key expires", 0, j + 1})
		}
	}
	for i := range s.client {
		m.client(s, i, next, fail)
		for j := range s.node {
			m.deliver(s, i, j, next)
		}
	}
}

// client is what a client does by itself.
func (m tokenModel) client(s tState, i int, next func(packed, step), fail func(string)) {
	me, other := s.client[i], s.client[1-i]
	had := other.phase >= tHeld
	do := func(what string, change func(*tState)) {
		t := s
		change(&t)
		next(t.pack(), step{what, i + 1, 0})
	}
	switch me.phase {
	case tIdle:
		do("asks for votes", func(t *tState) { t.client[i].phase, t.client[i].after = tVoting, had })
	case tVoting:
		// Any quorum of the votes that it has got: those beyond may have come too late to count.
		for subset := range 8 {
			votes, top := 0, uint8(0)
			for j := range s.node {
				if subset>>j&1 == 1 {
					if s.node[j].told[i] == 0 {
						votes = -9
						break
					}
					votes++
					top = max(top, s.node[j].told[i]-1)
				}
			}
			if votes >= 2 {
				do("has a quorum, raises the token", func(t *tState) {
					t.client[i].phase, t.client[i].t = tRaising, top+1
					t.clear(i)
				})
			}
		}
	case tRaising:
		if s.count(i, toldMine) < 2 {
			break
		}
		switch {
		case had && other.t == me.t:
			fail("two holders with the same token")
		case me.after && me.t <= other.t:
			fail("a later holder has a lower token")
		}
		do("has the lock", func(t *tState) {
			t.client[i].phase = tHeld
			for j := range t.node {
				if t.node[j].told[i] == 0 { // its server was looked at too late to vote
					t.node[j].repair[i] = true
				}
			}
			t.clear(i)
		})
	case tHeld, tRenewing:
		if me.round < m.renewals {
			do("begins to renew", func(t *tState) {
				c := &t.client[i]
				c.phase, c.round, c.passed = tRenewing, me.round+1, had && other.t > me.t
				t.clear(i)
			})
		}
		if me.phase != tRenewing || s.count(i, toldMine) < 2 {
			break
		}
		if me.passed {
			fail("two holders: a renewal that began after another got the lock succeeded")
		}
		do("has renewed, repairs the others", func(t *tState) {
			t.client[i].phase = tHeld
			for j := range t.node {
				if t.node[j].told[i] == toldGone {
					t.node[j].repair[i] = true
				}
			}
			t.clear(i)
		})
	}
}

// deliver is what a node does with what client i has sent to it.
func (m tokenModel) deliver(s tState, i, j int, next func(packed, step)) {
	me, n := s.client[i], s.node[j]
	mine := n.key == uint8(i+1)
	admits := n.n < me.t || n.n == me.t && n.by == uint8(i+1)
	// do makes two states: the answer is lost, or it is told.
	do := func(what string, told uint8, change func(*tNode)) {
		t := s
		change(&t.node[j])
		next(t.pack(), step{what + ", unheard", i + 1, j + 1})
		if told != 0 {
			t.node[j].told[i] = told
			next(t.pack(), step{what, i + 1, j + 1})
		}
	}
	raise := func(n *tNode) { n.n, n.by = me.t, uint8(i+1) }

	if me.phase >= tVoting && (mine || n.key == 0) {
		told := uint8(0)
		if me.phase == tVoting && n.told[i] == 0 {
			told = 1 + n.n
		}
		do("gets a vote", told, func(n *tNode) { n.key = uint8(i + 1) })
	}
	if me.phase >= tRaising && mine && (admits || m.noTest) {
		told := uint8(0)
		if me.phase != tHeld {
			told = toldMine
		}
		do("raises the counter", told, raise)
	}
	if me.phase == tRenewing && n.key == 0 {
		if m.repairCounts {
			do("renews where the key was lost", toldMine, func(n *tNode) {
				n.key = uint8(i + 1)
				if admits {
					raise(n)
				}
			})
		} else {
			do("hears that the key is gone", toldGone, func(*tNode) {})
		}
	}
	if me.phase == tRenewing && mine && !admits && m.plainRenewal {
		do("renews", toldMine, func(*tNode) {})
	}
	if n.repair[i] && (n.key == 0 || mine) && admits {
		do("repairs", 0, func(n *tNode) {
			n.key = uint8(i + 1)
			raise(n)
		})
	}
}

func (s *tState) clear(i int) {
	for j := range s.node {
		s.node[j].told[i] = 0
	}
}

func (s *tState) count(i int, told uint8) (n int) {
	for j := range s.node {
		if s.node[j].told[i] == told {
			n++
		}
	}
	return n
}

func TestSearchTokens(t *testing.T) {
	f := search(tokenModel{renewals: searchRenewals}, 40e6)
	require.Empty(t, f.broken, f)
	t.Log(f)
	assert.Greater(t, f.states, searchStates, "the model does next to nothing")
}

func TestSearchFindsEqualTokensWithoutTheTest(t *testing.T) {
	f := search(tokenModel{noTest: true}, 40e6)
	assert.Equal(t, "two holders with the same token", f.broken)
	t.Log(f)
}

func TestSearchFindsTwoHoldersWhereARepairedNodeCounts(t *testing.T) {
	f := search(tokenModel{renewals: 1, repairCounts: true}, 40e6)
	assert.Contains(t, f.broken, "two holders: a renewal")
	t.Log(f)
}

// A vote or a repair that was under way for long can give a client the key of a
// node where another has had the lock meanwhile. The counter tells.
func TestSearchFindsTwoHoldersWhereARenewalDoesNotAskForTheCounter(t *testing.T) {
	f := search(tokenModel{renewals: 1, plainRenewal: true}, 40e6)
	assert.Contains(t, f.broken, "two holders: a renewal")
	t.Log(f)
}
