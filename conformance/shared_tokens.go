package conformance

import (
	"fmt"
	"time"

	"github.com/golockers/locker"
)

const tokenOfGeneration = "sharers that hold together are a generation: the first of them draws its " +
	"token, in the step that grants, above that of each writer before, and the others get the same"

// generations are the tokens of a name, as a resource sees them.
type generations struct {
	s         *trial
	exclusive uint64 // the highest of a writer
	sharers   uint64 // of the last generation
}

// writer takes the token of one that holds alone.
func (g *generations) writer(token uint64, when string) {
	g.s.Helper()
	switch {
	case g.s.g.Fencing == locker.FencingNone:
		if token != 0 {
			g.s.broken(fmt.Sprintf("Fencing is none, and %s a writer has the token %d", when, token),
				"claim it, or return none")
		}
	case token <= g.exclusive || token <= g.sharers:
		g.s.broken(fmt.Sprintf("%s a writer got token %d, after a writer with %d and sharers with %d", when,
			token, g.exclusive, g.sharers), tokenOfGeneration)
	}
	g.exclusive = token
}

// generation takes the token of the first sharer after a name was free, and of those
// that hold beside it.
func (g *generations) generation(tokens []uint64, when string) {
	g.s.Helper()
	for _, token := range tokens {
		switch {
		case g.s.g.Shared == locker.SharingTokenless:
			if token != 0 {
				g.s.broken(fmt.Sprintf("Shared is %q, and %s a sharer has the token %d", g.s.g.Shared, when,
					token), "claim it, or return none")
			}
		case token == 0:
			g.s.broken(fmt.Sprintf("Shared is %q, and %s a sharer has no token", g.s.g.Shared, when),
				"Grant.Token is 0")
		case token != tokens[0]:
			g.s.broken(fmt.Sprintf("%s sharers that hold together have tokens %d", when, tokens),
				tokenOfGeneration)
		case token <= g.exclusive:
			g.s.broken(fmt.Sprintf("%s a sharer got token %d, after a writer with %d", when, token,
				g.exclusive), tokenOfGeneration)
		case token < g.sharers, token == g.sharers && g.sharers < g.exclusive:
			g.s.broken(fmt.Sprintf("%s a sharer got token %d, after sharers with %d", when, token, g.sharers),
				tokenOfGeneration)
		}
	}
	g.sharers = tokens[0]
}

func checkSharedTokens(s *trial) {
	if s.g.Shared == locker.SharingWithTokens && s.g.Fencing == locker.FencingNone {
		s.broken("Shared is with tokens, and Fencing is none",
			"tokens of sharers that rise, and of writers that do not, protect nothing")
	}
	s.together(s.tokensOfLeases, func() { s.tokensOfHolds(true) }, func() { s.tokensOfHolds(false) })
}

// tokensOfLeases lets readers and writers of several clients take turns.
func (s *trial) tokensOfLeases() {
	name, g := s.name("tokens"), &generations{s: s}
	a, b := s.client(), s.client()
	token := func(l *locker.Lease) uint64 {
		token, has := l.Token()
		if has != (token != 0) {
			s.broken(fmt.Sprintf("Token of a lease returned %d and %t", token, has),
				"an engine that makes up an answer")
		}
		return token
	}
	write := func(c *locker.Client, when string) {
		s.Helper()
		l := s.freeWithin(s.soon, c, name, ghost)
		g.writer(token(l), when)
		s.unlock(l)
	}
	for range 3 {
		write(a, "after sharers had left")
		write(b, "after a writer")
		first, second := s.join(a, name), s.join(b, name)
		g.generation([]uint64{token(first), token(second)}, "in turns")
		s.unlock(first) // who has drawn the token leaves, and the generation goes on
		third := s.join(a, name)
		g.generation([]uint64{token(second), token(third)}, "when the first of them had left")
		s.unlock(second)
		fourth := s.join(b, name)
		g.generation([]uint64{token(third), token(fourth)}, "when all had changed")
		s.unlockAll(third, fourth)
		fifth := s.join(b, name)
		g.generation([]uint64{token(fifth)}, "when all had left, and no writer had come")
		s.unlock(fifth)
	}
	if s.h.Delete != nil {
		for range 2 {
			l := s.join(a, name)
			g.generation([]uint64{token(l)}, "before a deletion")
			s.remove(name)
			a = s.client() // the line of the one before stands until it knows of its loss
			write(b, "after a deletion of sharers")
			l = s.freeWithin(s.soon, b, name, ghost)
			g.writer(token(l), "before a deletion")
			s.remove(name)
			b = s.client()
			l = s.join(a, name)
			g.generation([]uint64{token(l)}, "after a deletion of a writer")
			s.unlock(l)
		}
	}
	l := s.freeWithin(s.soon, a, name, ghost)
	far := token(l) + 1<<36
	if err := l.RaiseToken(s.within(s.patience()), far); err == nil {
		g.exclusive = far
	}
	s.unlock(l)
	l = s.join(b, name)
	g.generation([]uint64{token(l)}, "after tokens were raised")
	s.unlock(l)
	write(a, "after sharers with tokens that were raised")
}

// tokensOfHolds lets the first sharer end by its deadline, with another beside it or not.
func (s *trial) tokensOfHolds(alone bool) {
	name, g := s.name(fmt.Sprintf("tokens-expired-%t", alone)), &generations{s: s}
	b, other := s.backend(), s.client()
	before, err := s.ask(b, name, s.long)
	if err != nil {
		s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ofError(err))
	}
	g.writer(before.Token, "first of all")
	s.release(before.Hold)
	first := s.dies(name)
	if first.Hold == nil {
		return
	}
	g.generation([]uint64{first.Token}, "after a writer")
	if !alone {
		second := s.share(b, name, s.long)
		time.Sleep(time.Until(first.Validity.Since.Add(first.Validity.TTL + s.g.DeadHolderSlack + s.ttl/4)))
		third := s.share(b, name, s.long)
		g.generation([]uint64{first.Token, second.Token, third.Token}, "when the one that drew the token had died")
		s.release(second.Hold)
		s.release(third.Hold)
	}
	l := s.freeWithin(s.freedWithin(first.Validity.TTL), other, name, "a sharer that nobody renews has no end")
	token, _ := l.Token()
	g.writer(token, "after sharers had died")
	s.unlock(l)
}
