package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/golockers/locker/driver"
)

// promptWithin is what [driver.Prompt] promises.
const promptWithin = 100 * time.Millisecond

func checkPrompt(s *trial) {
	b, fault := s.cut()
	hold := s.acquire(b, s.request(s.name("prompt-held"), s.long)).Hold
	for i, mode := range []Mode{Drop, Hold, Drop} {
		both(fault, mode)
		after := s.ttl / 5
		if i == 2 {
			after = promptWithin / 5 // ends before a slow call has begun
		}
		calls := map[string]func(context.Context){
			"Acquire": func(ctx context.Context) {
				_, _ = acquire(ctx, b, s.request(s.name("prompt"), s.ttl))
			},
			"Renew":   func(ctx context.Context) { _, _ = hold.Renew(ctx) },
			"Release": func(ctx context.Context) { _ = hold.Release(ctx, 0) },
		}
		if p, ok := hold.(driver.Passer); ok {
			calls["Pass"] = func(ctx context.Context) { _, _ = p.Pass(ctx, s.request(s.name("prompt-held"), s.ttl), false) }
		}
		for what, call := range calls {
			// Late in each of three tries: a busy machine is late in one.
			late := promptWithin
			for try := 0; try < 3 && late >= promptWithin; try++ {
				ctx := s.within(after)
				returned := make(chan time.Time, 1)
				go s.caught(func() { call(ctx); returned <- time.Now() })()
				<-ctx.Done()
				began := time.Now()
				select {
				case at := <-returned:
					late = at.Sub(began)
				case <-time.After(s.patience()):
					late = s.patience()
				}
			}
			if late >= promptWithin {
				s.broken(fmt.Sprintf("%s returned %v after its context ended, with requests in mode %v",
					what, late, mode), "it waits for the network or for another request and ignores its "+
					"context: do not claim Prompt, and the engine takes care of it")
			}
		}
		both(fault, Pass)
	}
	_ = hold.Release(s.within(s.patience()), 0)
}
