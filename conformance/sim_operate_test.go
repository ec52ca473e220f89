package conformance_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// operator has the abilities that operators use, and MinHold.
type operator struct{ c *client }

func (operator) MaxMinHold() time.Duration { return time.Hour }

// List asks the service.
func (o operator) List(ctx context.Context, prefix string, found func(string, locker.State) error) error {
	s := o.c.service()
	like := regexp.MustCompile("^" + strings.ReplaceAll(strings.ReplaceAll(regexp.QuoteMeta(prefix),
		"_", "."), "%", ".*"))
	a, err := o.c.net.call(ctx, func() any {
		all := map[string]locker.State{}
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
				st := s.stateOfSharers(name, locker.State{Waiters: -1})
				if rec := s.live(name); match && (st.Held || rec != nil || s.flaw == listsFree) {
					st.Held = true
					all[name] = st
				}
			}
		})
		return all
	})
	if err != nil {
		return err
	}
	for name, st := range a.(map[string]locker.State) {
		if err := found(name, st); err != nil && s.flaw != listsOn {
			return err
		}
	}
	return nil
}

// Break asks the service.
func (o operator) Break(ctx context.Context, name string) (locker.State, error) {
	s := o.c.service()
	a, err := o.c.net.call(ctx, func() any {
		st := locker.State{Waiters: -1}
		s.do(func() {
			rec := s.live(s.key(name))
			if rec == nil {
				st = s.stateOfSharers(s.key(name), st)
				most := -1
				if s.flaw == breaksOneSharer {
					most = 1
				}
				s.after = append(s.after, s.endedSharers(s.key(name), most)...)
				return
			}
			st.Held, st.Label, st.Token = true, rec.label, rec.token
			for other := range s.locks {
				if other == s.key(name) && s.flaw != breaksNothing ||
					s.flaw == breaksQueue && strings.HasPrefix(other, s.key(name)) {
					s.remove(other)
				}
			}
		})
		return st
	})
	if err == nil && s.flaw == breaksAndRefuses && a.(locker.State).Held {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return locker.State{}, err
	}
	return a.(locker.State), nil
}
