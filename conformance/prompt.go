package conformance

import (
	"context"
	"fmt"
	"time"
)

func promptChecks() []check {
	return []check{
		{
			Name: "prompt",
			Promise: "A backend that says it is Prompt returns within 100 ms after its context ended, " +
				"whatever the network does (R8).",
			unasked: func(s subject) string {
				if !s.prompt {
					return "the backend is not Prompt"
				}
				return noNetwork(s)
			},
			missing: needsCut, run: checkPrompt,
		},
	}
}

// promptWithin is what [locker.Prompt] promises.
const promptWithin = 100 * time.Millisecond

func checkPrompt(s *trial) {
	b, fault := s.cut()
	hold := s.acquire(b, s.request(s.name("prompt-held"), s.long)).Hold
	for _, mode := range []Mode{Drop, Hold} {
		both(fault, mode)
		for what, call := range map[string]func(context.Context){
			"Acquire": func(ctx context.Context) {
				_, _ = b.Acquire(ctx, s.request(s.name("prompt"), s.ttl))
			},
			"Renew":   func(ctx context.Context) { _, _ = hold.Renew(ctx) },
			"Release": func(ctx context.Context) { _ = hold.Release(ctx) },
		} {
			// Late in each of three tries: a busy machine is late in one.
			late := promptWithin
			for try := 0; try < 3 && late >= promptWithin; try++ {
				ctx := s.within(s.ttl / 5)
				returned := make(chan time.Time, 1)
				s.spawn(func() { call(ctx); returned <- time.Now() })
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
				s.broken(fmt.Sprintf("%s returned %v after its context had ended, with requests in mode %v",
					what, late, mode), "it waits for the network or for another request, whatever its "+
					"context says: do not claim Prompt, and the engine sees to it")
			}
		}
		both(fault, Pass)
	}
	_ = hold.Release(s.within(s.patience()))
}
