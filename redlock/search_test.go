package redlock_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What follows searches through all that can happen to two clients and three
// nodes, and not through what a scheduler happens to do. A model is the
// protocol in a few lines: every state, with all steps that are possible in it.
// The network is a set: what was sent can be delivered at any later time, not
// at all, or more than once (a driver that repeats a request is the same). An
// answer is taken in at once or lost; one that is late is no more than a client
// that takes its time.

// model is a protocol with states of type S. Nodes are alike: states that differ only in their order are one.
type model[S comparable] interface {
	// steps calls next for every state that can follow s, and says what the step was. A promise that is broken is
	// told by fail.
	steps(s S, next func(s S, what step), fail func(why string))
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
func search[S comparable](m model[S], limit int) (f found) {
	var first S
	seen, order, from := map[S]struct{}{first: {}}, []S{first}, []int32{-1}
	for i := 0; i < len(order) && f.broken == ""; i++ {
		m.steps(order[i], func(s S, _ step) {
			if _, known := seen[s]; !known {
				seen[s] = struct{}{}
				order, from = append(order, s), append(from, int32(i))
			}
		}, func(why string) {
			if f.broken != "" {
				return
			}
			f.broken = why
			for j := int32(i); j > 0; j = from[j] {
				var how step // is found again
				m.steps(order[from[j]], func(s S, what step) {
					if s == order[j] {
						how = what
					}
				}, func(string) {})
				f.how = append([]step{how}, f.how...)
			}
		})
		if len(order) > limit {
			f.broken = "more states than expected: the search was given up"
		}
	}
	f.states = len(order)
	return f
}

// sorted puts nodes in the order of their ranks.
func sorted[N interface{ rank() uint64 }](nodes [3]N) [3]N {
	slices.SortFunc(nodes[:], func(a, b N) int { return cmp.Compare(a.rank(), b.rank()) })
	return nodes
}

// rank makes a number of digits below 4.
func rank(digits ...uint8) (n uint64) {
	for _, d := range digits {
		n = n<<2 | uint64(d)
	}
	return n
}

func digit(yes bool) uint8 {
	if yes {
		return 1
	}
	return 0
}

// wholly is false with the race detector: see search_race_test.go.
var wholly = true
