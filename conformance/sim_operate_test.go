package conformance_test

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// operator is the driver.Operator of a client.
type operator struct{ c *client }

// Inspect asks the service.
func (o operator) Inspect(ctx context.Context, name string) (locker.State, error) {
	st, err := ask(ctx, o.c, name, func(l *lock) locker.State { return o.c.state(l, o.c.kind) })
	if err == nil {
		st.Name = name
	}
	return st, err
}

// List asks the service.
func (o operator) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		all, err := ask(ctx, o.c, prefix, func(*lock) []locker.State { return o.c.list(prefix, o.c.kind) })
		switch next := all[min(len(all), page):]; o.c.flaw {
		case listsOnePage:
			all = all[:min(len(all), page)]
		case listsBordersTwice:
			all = slices.Insert(all, min(len(all), page), next[:min(len(next), 1)]...)
		}
		for _, st := range all {
			if !yield(st, nil) {
				return
			}
		}
		if err != nil {
			yield(locker.State{}, err)
		}
	}
}

// page is how much of something a service tells at once.
const page = 1000

// Break asks the service.
func (o operator) Break(ctx context.Context, st locker.State) error {
	found, err := ask(ctx, o.c, st.Name, func(l *lock) bool { return o.c.breaks(l, st.Holder) })
	if err == nil && o.c.flaw == breaksAndRefuses && found {
		err = errors.ErrUnsupported
	}
	return err
}

// holder is what operators call those who hold.
func (l *lock) holder() string {
	switch {
	case len(l.holders) == 0:
		return ""
	case l.holders[0].Shared:
		return "sharers since " + l.founder.Owner
	}
	return l.holders[0].Owner
}

// state is what operators see. s.mu is held.
func (s *service) state(l *lock, k kind) locker.State {
	st := locker.State{Name: l.name, Waiters: -1}
	if k.queued {
		st.Waiters = len(l.queue)
	}
	places := 16
	switch s.flaw {
	case countsWaitersInAByte:
		st.Waiters %= 256
	case tellsEveryPlace:
		places = len(l.queue)
	}
	for _, p := range l.queue[:min(len(l.queue), places)] {
		if !slices.Contains(st.Waiting, p.Label) && !(s.flaw == inspectsWritersOnly && p.Shared) {
			st.Waiting = append(st.Waiting, p.Label)
		}
	}
	if s.flaw == inspectsNoWaiters {
		st.Waiters = 0
	}
	sharers := l.of(true)
	switch {
	case len(l.holders) == 0:
		st.Held = s.flaw == inspectsThePast && l.token > 0 || s.flaw == inspectsTurn && time.Now().Before(l.turn)
		return st
	case s.flaw == inspectsNothing, s.flaw == inspectsNoSharers && len(sharers) > 0:
		return st
	}
	first := l.holders[0]
	st.Held, st.Holder, st.Label, st.Remaining = true, l.holder(), first.Label, remaining(l.holders)
	st.Sharers = len(sharers)
	if !first.Shared || k.sharing == locker.SharingWithTokens {
		st.Token = first.token
	}
	for _, rec := range sharers {
		if !slices.Contains(st.Sharing, rec.Label) {
			st.Sharing = append(st.Sharing, rec.Label)
		}
	}
	switch s.flaw {
	case inspectsFirstSharer:
		if len(sharers) >= 64 {
			st.Remaining = remaining(sharers[:1])
		}
	case inspectsOneSharer:
		st.Sharers = min(st.Sharers, 1)
	case inspectsHolderAsWaiter:
		st.Waiters = 1
	case inspectsGibberish:
		st.Label = strings.ToUpper(st.Label)
	case inspectsLastWaiter:
		for _, p := range l.queue {
			st.Remaining = max(st.Remaining, p.TTL)
		}
	case inspectsUnnamed:
		if len(sharers) > 0 {
			st.Label, st.Sharing = "", nil
		}
	case inspectsTimeless:
		st.Remaining = 0
	case inspectsSeconds:
		st.Remaining *= 1000
	case inspectsCounter:
		st.Token += 7
	case inspectEnds:
		s.remove(l, first)
	}
	return st
}

// list is what operators see of all names with a prefix. s.mu is held.
func (s *service) list(prefix string, k kind) (all []locker.State) {
	like := regexp.MustCompile("^" + strings.NewReplacer("_", ".", "%", ".*").Replace(regexp.QuoteMeta(prefix)))
	for name := range s.names {
		match := strings.HasPrefix(name, prefix)
		switch s.flaw {
		case listsContains:
			match = strings.Contains(name, prefix)
		case listsLike:
			match = like.MatchString(name)
		case listsNothing:
			match = false
		}
		if l := s.look(name); match && (len(l.holders) > 0 || s.flaw == listsFree && l.token > 0) {
			st := s.state(l, k)
			st.Held = true
			all = append(all, st)
		}
	}
	return all
}

// breaks removes those who hold, if operators call them so. s.mu is held.
func (s *service) breaks(l *lock, holder string) (found bool) {
	found = holder != "" && l.holder() == holder
	next := s.flaw == breaksNext || s.flaw == breaksUnseen && holder == ""
	left := s.flaw == breaksFounders && found && !slices.Contains(l.holders, l.founder) && l.holders[0].Shared
	if !found && !next || s.flaw == breaksNothing || left {
		return found
	}
	l.quiet = s.flaw == breaksSilently
	for _, other := range s.names {
		if s.flaw == breaksQueue && strings.HasPrefix(other.name, l.name) {
			s.evict(other, -1)
		}
	}
	switch s.flaw {
	case breaksOneSharer:
		s.evict(l, 1)
	case breaksFifty:
		s.evict(l, 50)
	case breaksOnePage:
		s.evict(l, page)
	default:
		s.evict(l, -1)
	}
	return found
}

// evict removes as many who hold, all with -1, and tells them where the service does. s.mu is held.
func (s *service) evict(l *lock, most int) {
	for i, rec := range slices.Clone(l.holders) {
		if i == most {
			break
		}
		untold := s.flaw == deletionUnnoticed || s.flaw == tellsFirstLost && i > 0 || s.flaw == tellsOnePageLost && i >= page || s.flaw == raisedUnwatched && rec.raised
		if rec.client.kind.queued && !untold {
			s.after = append(s.after, func() { rec.client.net.push(nil, rec.Lost) })
		}
		if s.flaw == waitsOnDeleted && len(l.queue) > 0 {
			s.orphans[rec.Owner] = l.queue[0].Owner
			l.queue = l.queue[1:]
		}
		s.remove(l, rec)
	}
}

// left is what there is of a name.
func (s *service) left(name string) (left []string) {
	s.do(func() {
		l := s.names[s.key(name)]
		if l == nil || s.flaw != endsWhenAsked {
			l = s.look(name)
		}
		for _, rec := range l.holders {
			left = append(left, "the lock of "+rec.Owner)
		}
		for note := range l.notes {
			left = append(left, "the note of "+note)
		}
		for _, p := range l.queue {
			left = append(left, "the place of "+p.Owner)
		}
		if s.flaw == leavesNodes && l.token > 0 {
			left = append(left, "an empty node")
		}
	})
	return left
}

// ended removes what a client has, when its session has ended. s.mu is held.
func (s *service) ended(c *client) {
	for _, l := range s.names {
		l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(p *place) bool { return p.client == c })
		for _, rec := range slices.Clone(l.holders) {
			if rec.client == c {
				s.remove(l, rec)
			}
		}
		s.advance(l)
	}
}

// restart is what happens to data when all servers are restarted, or when one takes over from another.
func (s *service) restart() {
	s.do(func() {
		for _, l := range s.names {
			if s.flaw == forgetsTokens {
				l.token = 0
			}
			l.holders = slices.DeleteFunc(l.holders, func(rec *record) bool {
				if s.flaw == forgetsRenewal {
					s.arm(l, rec, rec.granted)
				}
				return s.flaw == forgetsLocks || s.flaw == forgetsSharers && rec.Shared
			})
		}
		for c := range s.clients {
			s.after = append(s.after, c.net.restart)
		}
	})
}

// crash kills servers, or stops them where they stand: one is spare, but with a flaw.
func (s *service) crash(n int, unless flaw) (restore func()) {
	s.do(func() { s.down = n > 1 || s.flaw == unless })
	return func() { s.do(func() { s.down = false }) }
}

// jumpClock steps the wall clock, which has no part in what is held.
func (s *service) jumpClock(d time.Duration) {
	s.do(func() {
		for _, l := range s.names {
			for _, rec := range l.holders {
				switch {
				case s.flaw == wallClock && !rec.Shared, s.flaw == sharersByWallClock && rec.Shared:
					s.arm(l, rec, rec.expires.Add(-d))
				case s.flaw == minHoldJumps && !rec.Shared && d < 0 && time.Now().Before(rec.keep):
					s.arm(l, rec, rec.keep.Add(-d))
				}
			}
		}
	})
}
