package etcd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// Places of the dead that were never the first are not waited out: eight of them, one after the other,
// cost 21 s where 7 s are declared.
func TestDeadWaitersAreNotWaitedOutOneAfterTheOther(t *testing.T) {
	deadWaiters(t, map[string]deadWaiter{
		"StrictExpiry": {strict: true},
		"MinHold":      {minHold: time.Second},
	})
}

func TestProveDeadWaitersAreNotWaitedOutOneAfterTheOther(t *testing.T) {
	lab.NeedProve(t)
	deadWaiters(t, map[string]deadWaiter{
		"StrictExpiry, oldest":     {strict: true, oldest: true},
		"StrictExpiry and MinHold": {strict: true, minHold: time.Second},
	})
}

type deadWaiter struct {
	strict  bool
	minHold time.Duration
	oldest  bool
}

func deadWaiters(t *testing.T, cases map[string]deadWaiter) {
	t.Parallel()
	const ttl, dead = 2 * time.Second, 8
	for what, c := range cases {
		for _, asks := range []string{"waits", "comes after", "tries"} {
			t.Run(what+", next "+asks, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, 1, version(c.oldest)...)
				ctx := t.Context()
				network := lab.StartProxy(t)
				b, err := etcd.New(dial(t, s.Addrs(), through(network)),
					&etcd.Options{StrictExpiry: c.strict, MaxTTL: ttl})
				require.NoError(t, err)
				t.Cleanup(func() { _ = b.Close() })
				declared := ttl + b.Guarantees().DeadHolderSlack + c.minHold
				dying, cancel := context.WithCancel(ctx)
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				req := request("n", ttl, true)
				req.MinHold = c.minHold
				first := locktest.Acquire(t, b, req)
				for i := range dead - 1 {
					req := request("n", ttl, true)
					req.MinHold = c.minHold
					all.Go(func() { _, _ = locktest.Ask(dying, b, req) })
					s.queued(t, "n", i+3) // and the floor of the holder
				}
				next := client(t, s.Addrs(), time.Minute)
				var answer <-chan locked
				if asks == "waits" {
					answer = lockLater(ctx, next, "n")
					s.queued(t, "n", dead+2)
				}
				proven, err := first.Hold.Renew(ctx)
				require.NoError(t, err)
				network.Set(lab.Drop) // they die
				began := time.Now()
				switch asks {
				case "comes after":
					eventually(t, 30*time.Second, "their leases are over", func() bool {
						resp, err := s.admin.Leases(ctx)
						return err == nil && len(resp.Leases) <= 1
					})
					answer = lockLater(ctx, next, "n")
				case "tries":
					eventually(t, 30*time.Second, "it is free", func() bool {
						l, err := next.TryLock(ctx, "n")
						return err == nil && l.Unlock(ctx) == nil
					})
				}
				if answer != nil {
					require.NoError(t, s.get(t, answer, 30*time.Second).lease.Unlock(ctx))
				}
				took := time.Since(began)
				t.Logf("free %v after %d died, %v are declared", took, dead, declared)
				assert.Less(t, took, declared)
				// Nobody holds beside one who may have been granted the lock. Its lease was renewed then, or later.
				if c.strict {
					assert.Greater(t, took+began.Sub(proven.Since), 2*ttl)
				}
			})
		}
	}
}
