package conformance_test

import (
	"context"
	"time"
)

// stubborn returns a context that does not end with ctx, but with the test.
func (s *service) stubborn(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-s.end
		cancel()
	}()
	return ctx
}

// delete removes a lock as an operator would.
func (s *service) delete(name string) {
	name = s.key(name)
	s.do(func() {
		rec := s.live(name)
		if rec == nil {
			s.after = append(s.after, s.endedSharers(name, -1)...)
			return
		}
		if (rec.client.kind.queued || rec.client.kind.shared) && s.flaw != deletionUnnoticed {
			s.after = append(s.after, func() { rec.client.net.push(nil, rec.lost) })
		}
		if queue := s.queues[name]; s.flaw == waitsOnDeleted && len(queue) > 0 {
			s.orphans[rec.owner] = queue[0].owner
			s.queues[name] = queue[1:]
		}
		s.remove(name)
	})
}

// left is what there is of a name.
func (s *service) left(name string) (left []string) {
	name = s.key(name)
	s.do(func() {
		if rec := s.live(name); rec != nil {
			left = append(left, "the lock of "+rec.owner)
		}
		for _, rec := range s.sharers(name).holders {
			left = append(left, "the sharer "+rec.owner)
		}
		for note := range s.sharers(name).notes {
			left = append(left, "the note of "+note)
		}
		for _, p := range s.queues[name] {
			left = append(left, "the place of "+p.owner)
		}
		if s.flaw == leavesNodes && s.tokens[name] > 0 {
			left = append(left, "an empty node")
		}
	})
	return left
}

// restart is what happens to data when all servers are restarted, or when one
// takes over from another.
func (s *service) restart() {
	s.do(func() {
		switch s.flaw {
		case forgetsLocks:
			for name, rec := range s.locks {
				rec.timer.Stop()
				delete(s.locks, name)
			}
			clear(s.shares)
		case forgetsSharers:
			clear(s.shares)
		case forgetsRenewal:
			for name, rec := range s.locks {
				rec.expires = rec.granted
				s.arm(name, rec)
			}
		case forgetsTokens:
			s.tokens = make(map[string]uint64)
		}
		for c := range s.clients {
			s.after = append(s.after, c.net.restart)
		}
	})
}

// crash kills servers: one is spare.
func (s *service) crash(n int) (restore func()) {
	s.do(func() { s.down = n > 1 || s.flaw == crashTakesAll })
	return func() { s.do(func() { s.down = false }) }
}

// jumpClock steps the wall clock, which has no part in what is held.
func (s *service) jumpClock(d time.Duration) {
	if s.flaw != wallClock && s.flaw != minHoldJumps && s.flaw != sharersByWallClock {
		return
	}
	s.do(func() {
		for name, sh := range s.shares {
			for _, rec := range sh.holders {
				if s.flaw == sharersByWallClock {
					rec.expires = rec.expires.Add(-d)
					s.arm(name, rec)
				}
			}
		}
		if s.flaw == sharersByWallClock {
			return
		}
		for name, rec := range s.locks {
			if s.flaw == wallClock {
				rec.expires = rec.expires.Add(-d)
			} else if d < 0 && time.Now().Before(rec.keep) {
				rec.expires = rec.keep.Add(-d)
			}
			s.arm(name, rec)
		}
	})
}

// died is told when a client's process has ended.
func (s *service) died(c *client) {
	if s.flaw == deathUnnoticed {
		return
	}
	s.do(func() {
		for name := range s.shares {
			s.diedSharing(name, c, true)
		}
		for name, rec := range s.locks {
			if rec.client == c {
				s.remove(name)
			}
		}
	})
}
