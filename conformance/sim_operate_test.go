package conformance_test

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// operator is the locker.Operator of a client.
type operator struct{ c *client }

// Inspect asks the service.
func (o operator) Inspect(ctx context.Context, name string) (locker.State, error) {
	c, s := o.c, o.c.service()
	a, err := c.net.call(ctx, func() any {
		st := locker.State{Name: name, Waiters: -1}
		s.do(func() {
			if c.kind.queued {
				st.Waiters = len(s.queues[s.key(name)])
			}
			rec := s.live(s.key(name))
			if s.flaw == inspectsNoWaiters {
				st.Waiters = 0
			}
			st = s.stateOfSharers(s.key(name), st)
			if rec == nil && s.flaw == inspectsThePast && s.tokens[s.key(name)] > 0 {
				st.Held = true
			}
			if rec == nil || s.flaw == inspectsNothing {
				return
			}
			st.Held, st.Holder, st.Label, st.Token = true, rec.owner, rec.label, rec.token
			st.Remaining = time.Until(rec.expires)
			switch s.flaw {
			case inspectsHolderAsWaiter:
				st.Waiters = 1
			case inspectsGibberish:
				st.Label = strings.ToUpper(st.Label)
			case inspectsSeconds:
				st.Remaining *= 1000
			case inspectsCounter:
				st.Token += 7
			case inspectEnds:
				s.remove(s.key(name))
			}
		})
		return st
	})
	if err != nil {
		return locker.State{}, err
	}
	return a.(locker.State), nil
}

// List asks the service.
func (o operator) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		all, err := o.list(ctx, prefix)
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

func (o operator) list(ctx context.Context, prefix string) ([]locker.State, error) {
	s := o.c.service()
	like := regexp.MustCompile("^" + strings.ReplaceAll(strings.ReplaceAll(regexp.QuoteMeta(prefix),
		"_", "."), "%", ".*"))
	a, err := o.c.net.call(ctx, func() any {
		var all []locker.State
		s.do(func() {
			for name := range s.tokens {
				match := strings.HasPrefix(name, prefix)
				switch s.flaw {
				case listsContains:
					match = strings.Contains(name, prefix)
				case listsLike:
					match = like.MatchString(name)
				case listsNothing:
					match = false
				}
				st := s.stateOfSharers(name, locker.State{Name: name, Waiters: -1})
				rec := s.live(name)
				if rec != nil {
					st.Holder, st.Label, st.Token = rec.owner, rec.label, rec.token
				}
				if match && (st.Held || rec != nil || s.flaw == listsFree) {
					st.Held = true
					all = append(all, st)
				}
			}
		})
		return all
	})
	all, _ := a.([]locker.State)
	return all, err
}

// Break asks the service.
func (o operator) Break(ctx context.Context, st locker.State) error {
	s, found := o.c.service(), false
	_, err := o.c.net.call(ctx, func() any {
		s.do(func() {
			name := s.key(st.Name)
			rec, sharers := s.live(name), s.stateOfSharers(name, locker.State{})
			found = rec != nil && rec.owner == st.Holder
			switch {
			case found, rec != nil && s.flaw == breaksNext:
				for other := range s.locks {
					if other == name && s.flaw != breaksNothing ||
						s.flaw == breaksQueue && strings.HasPrefix(other, name) {
						s.remove(other)
					}
				}
			case sharers.Held && sharers.Holder == st.Holder:
				found = true
				most := -1
				if s.flaw == breaksOneSharer {
					most = 1
				}
				s.after = append(s.after, s.endedSharers(name, most)...)
			}
		})
		return nil
	})
	if err == nil && s.flaw == breaksAndRefuses && found {
		err = errors.ErrUnsupported
	}
	return err
}
