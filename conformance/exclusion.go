package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// checkExclusion lets clients raise a counter in a way that loses updates unless they do so one at a
// time.
func checkExclusion(s *trial) {
	const clients, rounds = 16, 5
	const cause = "the service grants a name that is taken: check and grant are not one step, or clients " +
		"use different keys"
	name := s.name("counter")
	held := s.try(s.client(), name, locker.TTL(s.long))
	var counter, inside atomic.Int64
	ctx := s.within(s.long + 3*s.patience())
	var all sync.WaitGroup
	waiters := make([]*locker.Client, clients)
	for i := range waiters {
		waiters[i] = s.client()
		all.Go(s.caught(func() {
			for range rounds {
				l, err := waiters[i].Lock(ctx, name, locker.TTL(s.long))
				if err != nil {
					why := "a forgotten waiter: the queue lost its place, or a wake-up was lost without a poll behind it (R14)"
					if !errors.Is(err, context.DeadlineExceeded) {
						why = ofError(err)
					}
					s.report(fmt.Sprintf("client %d of %d did not get its turn: Lock failed under contention: %v", i,
						clients, err), why)
					return
				}
				if n := inside.Add(1); n != 1 {
					s.report(fmt.Sprintf("%d clients held the name at once", n), cause)
				}
				// Read, pause, write: a second holder would lose this update.
				n := counter.Load()
				time.Sleep(200 * time.Microsecond)
				counter.Store(n + 1)
				inside.Add(-1)
				if err := l.Unlock(s.Context()); err != nil {
					s.report(fmt.Sprintf("client %d: Unlock failed: %v", i, err),
						"a lock that ends early or was taken from its holder")
					return
				}
			}
		}))
	}
	for _, c := range waiters {
		s.isWaiting(c, 1)
	}
	s.unlock(held)
	all.Wait()
	if n := counter.Load(); n != clients*rounds && s.told.Load() == 0 {
		s.broken(fmt.Sprintf("%d updates of %d were lost", clients*rounds-n, clients*rounds), cause)
	}
}
