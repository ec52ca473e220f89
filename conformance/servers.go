package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

func serverChecks() []check {
	return []check{
		{
			Name:    "restart",
			Promise: "A held lock is still held when all servers were killed and started again (SurvivesRestart).",
			unasked: func(s subject) string {
				if !s.SurvivesRestart {
					return "SurvivesRestart is false"
				}
				return ""
			},
			missing: needsRestart,
			Once:    true, run: func(s *trial) { s.survives("a restart", func() { s.h.Restart(s) }) },
		},
		{
			Name:    "failover",
			Promise: "A held lock is still held when another server has taken over (SurvivesFailover).",
			unasked: func(s subject) string {
				if !s.SurvivesFailover {
					return "SurvivesFailover is false"
				}
				return ""
			},
			missing: needsFailover,
			Once:    true, run: func(s *trial) { s.survives("a fail-over", func() { s.h.Failover(s) }) },
		},
		{
			Name:    "server-crashes",
			Promise: "With as many servers down as ServerCrashes says, held locks stay held and free ones can be had.",
			unasked: func(s subject) string {
				if s.ServerCrashes == 0 {
					return "ServerCrashes is 0"
				}
				return ""
			},
			missing: func(s subject) string {
				if s.Crash == nil {
					return "Crash"
				}
				return ""
			},
			Once: true, run: checkServerCrashes,
		},
		{
			Name:    "clock-jump",
			Promise: "A step of the servers' wall clocks gives a held lock to nobody else (SurvivesClockJump).",
			unasked: func(s subject) string {
				switch {
				case !s.SurvivesClockJump:
					return "SurvivesClockJump is false"
				case s.Exclusion >= locker.ExclusionKernel && s.JumpClock == nil:
					return fmt.Sprintf("exclusion rests on %v, where no clock is involved", s.Exclusion)
				}
				return ""
			},
			missing: func(s subject) string {
				if s.JumpClock == nil {
					return "JumpClock"
				}
				return ""
			},
			Once: true, run: checkClockJump,
		},
	}
}

func needsRestart(s subject) string {
	if s.Restart == nil {
		return "Restart"
	}
	return ""
}

func needsFailover(s subject) string {
	if s.Failover == nil {
		return "Failover"
	}
	return ""
}

// survives fails if a lock is not held any more after something has happened
// to the servers.
func (s *trial) survives(what string, happen func()) {
	s.Helper()
	holder, other := s.client(), s.client()
	name := s.name("survives")
	l := s.try(holder, name, locker.TTL(s.long), locker.NoRenew())
	leases := []*locker.Lease{l}
	if s.g.Shared != locker.SharingNone {
		leases = append(leases, s.join(s.client(), name+"-shared", locker.NoRenew()))
	}
	granted := l.Until()
	if time.Until(granted) < 2*s.long { // it has a deadline
		time.Sleep(2 * s.ttl)
		for _, l := range leases {
			if err := l.Renew(s.within(s.patience())); err != nil {
				s.broken(fmt.Sprintf("Renew of a hold failed: %v", err), "Renew does not find its own key")
			}
		}
	}
	renewed := l.Until().Sub(granted)
	happen()
	if st, err := other.Inspect(s.within(s.patience()), name); err == nil && st.Held && renewed > s.ttl &&
		st.Remaining > 0 {
		if short := time.Until(l.Until()) - st.Remaining; short > renewed/2 {
			s.broken(fmt.Sprintf("after %s the service keeps the lock for %v less than its holder was told "+
				"by its renewal", what, short), "a renewal is confirmed before it is as durable as the grant")
		}
	}
	for _, l := range leases {
		s.staysHeld(l, other, l.Name(), what)
		s.unlock(l)
		s.unlock(s.comesBack(other, l.Name()))
	}
}

// staysHeld fails if other gets name within a few TTLs, or if the lease ends
// although it could have been renewed.
func (s *trial) staysHeld(l *locker.Lease, other *locker.Client, name, what string) {
	s.Helper()
	refused := false
	for deadline := time.Now().Add(2*s.long + s.patience()); ; time.Sleep(s.ttl / 20) {
		ctx, cancel := context.WithTimeout(s.Context(), s.soon)
		_, err := other.TryLock(ctx, name)
		cancel()
		switch {
		case err == nil && l.Err() == nil:
			s.broken(fmt.Sprintf("after %s another client got a held lock", what),
				"the service has lost the lock, or takes it for expired")
		case l.Err() != nil:
			s.broken(fmt.Sprintf("after %s the holder's lease ended: %v", what, l.Err()),
				"the service has lost the lock, or the client does not find the way to it in time")
		case errors.Is(err, locker.ErrHeld):
			refused = true
		}
		if refused && l.Renew(s.within(s.soon)) == nil {
			return
		}
		if time.Now().After(deadline) {
			s.broken(fmt.Sprintf("after %s the lock was not served: the last TryLock returned %v", what, err),
				"the service, or the client's connection to it, has not come back")
		}
	}
}

func checkServerCrashes(s *trial) {
	holder, other := s.client(), s.client()
	name := s.name("crashes")
	l := s.try(holder, name, locker.TTL(s.long))
	restore := s.undo(s.h.Crash(s, s.g.ServerCrashes))
	what := fmt.Sprintf("the crash of %d servers", s.g.ServerCrashes)
	s.staysHeld(l, other, name, what)
	free := s.name("crashes-free")
	s.unlock(s.comesBack(other, free))
	s.unlock(l)
	s.unlock(s.comesBack(other, name))
	restore()
	s.unlock(s.comesBack(s.client(), name))
}

func checkClockJump(s *trial) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		holder, other := s.client(), s.client()
		name := s.name("clock-" + d.String())
		l := s.try(holder, name, locker.TTL(s.long))
		leases := []*locker.Lease{l}
		if s.g.Shared != locker.SharingNone {
			leases = append(leases, s.join(holder, name+"-shared"))
		}
		what := fmt.Sprintf("a step of the servers' clocks by %v", d)
		taken, jumped, back := make(chan struct{}), make(chan struct{}), func() {}
		s.together(func() {
			s.keptOverJump(what, sync.OnceFunc(func() { close(taken) }), jumped)
		}, func() {
			<-taken
			s.h.JumpClock(s, d)
			back = s.undo(func() { s.h.JumpClock(s, -d) })
			close(jumped)
			for _, l := range leases {
				s.staysHeld(l, other, l.Name(), what)
			}
		})
		for _, l := range leases {
			s.unlock(l)
			s.unlock(s.comesBack(other, l.Name()))
		}
		back()
	}
}

// undo returns f, to be called once: at the end of the check at the latest, also of one that has failed.
// What is tried next must not run on servers that are down, or on clocks that are wrong.
func (s *trial) undo(f func()) func() {
	var once sync.Once
	mend := func() { once.Do(f) }
	s.Cleanup(mend)
	return mend
}

// keptOverJump is keptFor, of a lock whose MinHold begins before the clocks jump.
func (s *trial) keptOverJump(what string, taken func(), jumped <-chan struct{}) {
	defer taken()
	b := s.backend()
	longest := b.Guarantees().MaxMinHold
	if longest == 0 {
		return
	}
	req := s.request(s.name("min-hold "+what), s.ttl)
	req.MinHold = min(3*s.ttl, longest)
	s.keptFor(req.MinHold, req.Name, "was held over "+what, func() {
		grant := s.acquire(b, req)
		if grant.Session {
			_ = b.Close()
		}
		taken()
		<-jumped
	})
}
