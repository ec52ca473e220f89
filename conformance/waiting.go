package conformance

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// wakeUpRounds allows one slow round, for a busy machine or a lost message. A broken wake-up is slow in
// all of them.
const wakeUpRounds = 4

func checkWakeUp(s *trial) {
	holder, other := s.client(), s.client()
	slow := 0
	for round := range wakeUpRounds {
		name := s.name(fmt.Sprintf("wake-%d", round))
		held := s.try(holder, name, locker.TTL(s.long))
		var in time.Time
		var all sync.WaitGroup
		all.Go(s.caught(func() {
			l, err := other.Lock(s.within(s.long+s.patience()), name, locker.TTL(s.long))
			if err != nil {
				s.report(fmt.Sprintf("the waiter did not get the released name: %v", err), "a forgotten waiter")
				return
			}
			in = time.Now()
			_ = l.Unlock(s.Context())
		}))
		s.isWaiting(other, 1)
		s.unlock(held)
		freed := time.Now()
		all.Wait()
		if in.Sub(freed) > s.prompt() {
			s.Logf("round %d: the waiter got the name %v after its release", round, in.Sub(freed))
			slow++
		}
	}
	if slow > 1 {
		s.broken(fmt.Sprintf("in %d of %d rounds the waiter got the name later than %v after the release, with a "+
			"TTL of %v", slow, wakeUpRounds, s.prompt(), s.long),
			"the wake-up does not arrive: it goes to another channel or name, is sent before the key is "+
				"gone, or nobody listens; only the poll helped")
	}
}

// prompt is how long a wake-up may take: less than the engine's poll behind a Notifier, so that the
// poll cannot replace it.
func (s *trial) prompt() time.Duration { return min(2*time.Second, s.soon) }

// checkNothingPilesUp looks for leaks of each wait in a client that lives on: a watch, a listener, a
// subscription that is never ended.
func checkNothingPilesUp(s *trial) {
	const rounds, spare = 60, 20
	holder, waiter := s.client(), s.client()
	held := s.try(holder, s.name("piles"), locker.TTL(s.long))
	wait := func(rounds int) {
		for range rounds {
			ctx, cancel := context.WithTimeout(s.Context(), settle/5)
			if l, err := waiter.Lock(ctx, held.Name(), locker.TTL(s.long)); err == nil {
				_ = l.Unlock(s.Context())
				s.broken("Lock of a held name was granted", "no exclusion at all, or a lock that ends early")
			}
			cancel()
		}
	}
	wait(3) // what the first wait needs may stay
	before := runtime.NumGoroutine()
	wait(rounds)
	after := 0
	if !s.eventually(s.soon, func() bool { after = runtime.NumGoroutine(); return after < before+spare }) {
		s.broken(fmt.Sprintf("%d abandoned waits have left %d goroutines", rounds, after-before),
			"a watch, a listener or a request that lives as long as the client instead of the wait")
	}
	s.unlock(held)
}
