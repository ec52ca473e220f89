package redlock_test

import (
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

func (n tNode) rank() uint64 {
	return rank(n.key, n.n, n.by, n.told[0], n.told[1], digit(n.repair[0]), digit(n.repair[1]))
}

func (m tokenModel) steps(s tState, visit func(tState, step), fail func(string)) {
	next := func(s tState, what step) {
		s.node = sorted(s.node)
		visit(s, what)
	}
	for j, n := range s.node {
		if n.key != 0 {
			t := s
			t.node[j].key = 0
			next(t, step{"the key expires", 0, j + 1})
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
func (m tokenModel) client(s tState, i int, next func(tState, step), fail func(string)) {
	me, other := s.client[i], s.client[1-i]
	had := other.phase >= tHeld
	do := func(what string, change func(*tState)) {
		t := s
		change(&t)
		next(t, step{what, i + 1, 0})
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
func (m tokenModel) deliver(s tState, i, j int, next func(tState, step)) {
	me, n := s.client[i], s.node[j]
	mine := n.key == uint8(i+1)
	admits := n.n < me.t || n.n == me.t && n.by == uint8(i+1)
	// do makes two states: the answer is lost, or it is told.
	do := func(what string, told uint8, change func(*tNode)) {
		t := s
		change(&t.node[j])
		next(t, step{what + ", unheard", i + 1, j + 1})
		if told != 0 {
			t.node[j].told[i] = told
			next(t, step{what, i + 1, j + 1})
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
	m := tokenModel{} // two renewals are what it takes to come to a repair and to count on it
	if wholly {
		m.renewals = 2
	}
	f := search(m, 40e6)
	require.Empty(t, f.broken, f)
	t.Log(f)
	assert.Greater(t, f.states, 10_000, "the model does next to nothing")
}

func TestSearchFindsMistakesWithTokens(t *testing.T) {
	for mistake, c := range map[string]struct {
		model tokenModel
		finds string
	}{
		"the second phase does not compare": {tokenModel{noTest: true}, "two holders with the same token"},
		"a repaired node counts":            {tokenModel{renewals: 1, repairCounts: true}, "two holders: a renewal"},
		// A vote or a repair that was under way for long can give a client the key of a node where another has had
		// the lock meanwhile. The counter tells.
		"a renewal does not ask for the counter": {tokenModel{renewals: 1, plainRenewal: true}, "two holders: a renewal"},
	} {
		f := search(c.model, 40e6)
		assert.Contains(t, f.broken, c.finds, mistake)
		t.Log(mistake, f)
	}
}
