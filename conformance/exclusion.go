package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

func exclusionChecks() []check {
	return []check{
		{
			Name:    "exclusion",
			Promise: "Of clients that contend for a name, one holds it at a time.",
			run:     checkExclusion,
		},
	}
}

// checkExclusion lets clients raise a counter in the way that loses updates
// unless one of them does it at a time.
func checkExclusion(s *trial) {
	const clients, rounds = 8, 10
	const cause = "the service grants a name that is taken: the look and the taking are not one step, or " +
		"the key of one client is not that of another"
	name := s.name("counter")
	var counter, inside atomic.Int64
	ctx := s.within(3 * s.patience())
	all := s.group()
	for i := range clients {
		c := s.client()
		all.Go(func() {
			for range rounds {
				l, err := c.Lock(ctx, name, locker.TTL(s.long))
				if errors.Is(err, context.DeadlineExceeded) {
					s.report(fmt.Sprintf("client %d did not get its turn: %v", i, err),
						"a waiter that is forgotten: see the checks wake-up and drain")
					return
				}
				if err != nil {
					s.report(fmt.Sprintf("client %d: Lock failed under contention: %v", i, err), ofError(err))
					return
				}
				if n := inside.Add(1); n != 1 {
					s.report(fmt.Sprintf("%d clients held the name at once", n), cause)
				}
				// Read, pause, write: whoever else is inside meanwhile loses this update.
				n := counter.Load()
				time.Sleep(200 * time.Microsecond)
				counter.Store(n + 1)
				inside.Add(-1)
				if err := l.Unlock(s.Context()); err != nil {
					s.report(fmt.Sprintf("client %d: Unlock failed: %v", i, err),
						"a lock that ends early, or one that was taken from its holder")
					return
				}
			}
		})
	}
	all.Wait()
	if n := counter.Load(); n != clients*rounds && !s.failed.Load() {
		s.broken(fmt.Sprintf("%d updates of %d were lost", clients*rounds-n, clients*rounds), cause)
	}
}
