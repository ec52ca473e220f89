package redlock_test

import (
	"fmt"
	"strings"
)

// What follows searches through all that can happen to two clients and three
// nodes, and not through what a scheduler happens to do. A model is the
// protocol in a few lines: every state, with all steps that are possible in it.
// The network is a set: what was sent can be delivered at any later time, not
// at all, or more than once (a driver that repeats a request is the same). An
// answer is taken in at once or lost; one that is late is no more than a client
// that takes its time.

// packed is a state in as few bits as it takes. Nodes are alike, so that states
// that differ only in their order are one.
type packed [2]uint64

// model is a protocol.
type model interface {
	// steps calls next for every state that can follow s, and says what the
	// step was. A promise that is broken is told by fail.
	steps(s packed, next func(s packed, what step), fail func(why string))
}

// step is what happened between two states.
type step struct {
	what         string
	client, node int // from 1; 0: none
}

func (s step) String() string {
	text := s.what
	if s.client > 0 {
		text = string(rune('A'+s.client-1)) + ": " + text
	}
	if s.node > 0 {
		text += fmt.Sprintf(" (node %d)", s.node)
	}
	return text
}

// found is the result of a search.
type found struct {
	states int
	broken string // "": nothing is
	how    []step // the shortest way there
}

func (f found) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states; %s\n", f.states, f.broken)
	for _, s := range f.how {
		fmt.Fprintf(&b, "  %v\n", s)
	}
	return b.String()
}

// search visits every state that can be reached, the nearest first.
func search(m model, limit int) found {
	seen := newSet()
	order := []packed{{}}
	from := []int32{-1}
	seen.add(packed{})
	var f found
	for i := 0; i < len(order) && f.broken == ""; i++ {
		m.steps(order[i], func(s packed, _ step) {
			if seen.add(s) {
				order = append(order, s)
				from = append(from, int32(i))
			}
		}, func(why string) {
			if f.broken != "" {
				return
			}
			f.broken = why
			for j := int32(i); j > 0; j = from[j] {
				f.how = append([]step{between(m, order[from[j]], order[j])}, f.how...)
			}
		})
		if len(order) > limit {
			f.broken = "more states than expected: the search was given up"
		}
	}
	f.states = len(order)
	return f
}

// between finds the step from one state to the next again.
func between(m model, a, b packed) (how step) {
	m.steps(a, func(s packed, what step) {
		if s == b {
			how = what
		}
	}, func(string) {})
	return how
}

// set is a hash set of states, several times as fast as a map.
type set struct {
	slots []packed
	n     int
	zero  bool
}

func newSet() *set { return &set{slots: make([]packed, 1<<20)} }

// add reports whether s was not there.
func (s *set) add(p packed) bool {
	if p == (packed{}) {
		first := !s.zero
		s.zero = true
		return first
	}
	if 4*s.n > 3*len(s.slots) {
		old := s.slots
		s.slots = make([]packed, 2*len(old))
		for _, q := range old {
			if q != (packed{}) {
				s.put(q)
			}
		}
	}
	if s.put(p) {
		s.n++
		return true
	}
	return false
}

func (s *set) put(p packed) bool {
	mask := uint64(len(s.slots) - 1)
	h := p[0]*0x9E3779B97F4A7C15 ^ p[1]*0xC2B2AE3D27D4EB4F
	for h = (h ^ h>>29) & mask; s.slots[h] != (packed{}); h = (h + 1) & mask {
		if s.slots[h] == p {
			return false
		}
	}
	s.slots[h] = p
	return true
}

// bits writes and reads fields of a packed state, one after the other.
type bits struct {
	p   packed
	pos uint
}

func (b *bits) put(v uint8, width uint) {
	b.p[b.pos>>6] |= uint64(v) << (b.pos & 63)
	b.pos += width
	if b.pos&63 != 0 && b.pos>>6 != (b.pos-width)>>6 {
		panic("a field crosses the words: make room before it")
	}
}

func (b *bits) get(width uint) uint8 {
	v := uint8(b.p[b.pos>>6]>>(b.pos&63)) & (1<<width - 1)
	b.pos += width
	return v
}

func (b *bits) flag(v bool) {
	if v {
		b.put(1, 1)
	} else {
		b.put(0, 1)
	}
}
