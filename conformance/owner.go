package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func ownerChecks() []check {
	return []check{
		{
			Name: "owner-exact",
			Promise: "A hold that is gone never removes or renews another's, however alike their " +
				"owners are (R9, R12).",
			run: checkOwnerExact,
		},
	}
}

// alike returns pairs of owners that a comparison of a part takes for equal: they differ
// in one digit.
func alike() (pairs [][2]string) {
	for _, at := range []int{0, 15, 31, 39} {
		a := owner()
		b := []byte(a)
		if b[at]++; a[at] == '9' || a[at] == 'f' {
			b[at] = '0'
		}
		pairs = append(pairs, [2]string{a, string(b)})
	}
	return pairs
}

func checkOwnerExact(s *trial) {
	b, other := s.backend(), s.backend()
	// A hold ends by its release, or by a deadline that passes, which it
	// cannot know of without asking the service.
	ends := map[string]func(name string, g locker.Grant) bool{
		"released": func(_ string, g locker.Grant) bool {
			s.release(g.Hold)
			return true
		},
	}
	if s.h.Delete != nil {
		ends["deleted"] = func(name string, _ locker.Grant) bool {
			s.remove(name)
			return true
		}
	}
	for how, end := range ends {
		for i, owners := range alike() {
			// A Release that had to be sent twice, since its answer was late, may not know
			// any more what the first one found: that does not happen three times.
			for try, told := 1, false; !told; try++ {
				name := s.name(fmt.Sprintf("%s-%d-%d", how, i, try))
				first, second := s.request(name, s.long), s.request(name, s.long)
				first.Owner, second.Owner = owners[0], owners[1]
				gone := s.acquire(b, first)
				end(name, gone)
				told = s.harmless(gone, s.acquire(other, second), name, how, try == 3)
			}
		}
	}
	s.expiredOwner(b, other)
}

// expiredOwner is the same for holds that end by their deadline. Where a
// session keeps them, or they have none, there is nothing to see.
func (s *trial) expiredOwner(b, other locker.Backend) {
	s.Helper()
	pairs := alike()
	gone := make([]locker.Grant, len(pairs))
	nameOf := func(i int) string { return s.name(fmt.Sprintf("expired-%d", i)) }
	for i, owners := range pairs {
		req := s.request(nameOf(i), s.ttl)
		req.Owner = owners[0]
		gone[i] = s.acquire(b, req)
	}
	if gone[0].Session || gone[0].Validity.TTL == 0 {
		return
	}
	time.Sleep(gone[0].Validity.TTL)
	told := 0
	for i, owners := range pairs {
		req := s.request(nameOf(i), s.long)
		req.Owner = owners[1]
		var next locker.Grant
		if !s.eventually(s.soon, func() (ok bool) {
			var err error
			next, err = other.Acquire(s.within(s.patience()), req)
			return err == nil
		}) {
			s.Logf("a hold of %v is still there %v after its TTL: a session keeps it", gone[i].Validity.TTL, s.soon)
			return
		}
		if s.harmless(gone[i], next, nameOf(i), "expired", i == len(pairs)-1 && told == 0) {
			told++
		}
	}
}

// harmless fails if the hold that is gone does something to the next one. It reports
// whether its Release told that it was gone, and fails if that is the last try.
func (s *trial) harmless(gone, next locker.Grant, name, how string, last bool) (told bool) {
	s.Helper()
	const cause = "the owner is not compared, or only a part of it"
	ctx := s.within(s.patience())
	if _, err := gone.Hold.Renew(ctx); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Renew of a hold that was %s, with another in its place, returned %v", how, err),
			cause)
	}
	err := gone.Hold.Release(ctx)
	_, third := s.backend().Acquire(ctx, s.request(name, s.long))
	if told = errors.Is(err, locker.ErrLost); !told &&
		(last || err != nil || !errors.Is(third, locker.ErrHeld)) {
		s.broken(fmt.Sprintf("Release of a hold that was %s, with another in its place, returned %v",
			how, err), cause)
	}
	if !errors.Is(third, locker.ErrHeld) {
		s.broken(fmt.Sprintf("after the late Release of a hold that was %s, a third client's Acquire "+
			"returned %v", how, third), cause)
	}
	if _, err := next.Hold.Renew(ctx); err != nil {
		s.broken(fmt.Sprintf("after the late Release of a hold that was %s, Renew of the next failed: %v",
			how, err), cause)
	}
	if err := next.Hold.Release(ctx); err != nil {
		s.broken(fmt.Sprintf("after the late Release of a hold that was %s, Release of the next failed: %v",
			how, err), cause)
	}
	return told
}
