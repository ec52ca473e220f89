package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

func orderChecks() []check {
	return []check{
		{
			Name:    "fifo-in-client",
			Promise: "Callers of one client get a name in the order in which they asked (R13).",
			Once:    true, run: func(s *trial) {
				c := s.client()
				s.inOrder(func(int) *locker.Client { return c }, "Acquire fails or returns to callers in "+
					"an order of its own: the engine asks with one caller at a time")
			},
		},
		{
			Name: "fifo-across-clients",
			Promise: "Waiters of different clients get a name in the order in which they began to wait " +
				"(Order is FIFO).",
			unasked: func(s subject) string {
				if s.Order != locker.OrderFIFO {
					return fmt.Sprintf("Order is %v", s.Order)
				}
				return ""
			},
			Once: true, run: func(s *trial) {
				s.inOrder(func(int) *locker.Client { return s.client() }, "the service hands the lock to "+
					"who asks at the right moment, or to the latest, or to a caller who did not wait")
			},
		},
	}
}

// orderTries is how often waiters may overtake each other: that one has begun
// to wait cannot be seen from outside with certainty. In a random order they
// pass one try in 720.
const orderTries = 3

// inOrder lets six callers wait, one after the other.
func (s *trial) inOrder(client func(i int) *locker.Client, cause string) {
	s.Helper()
	const callers = 6
	want := make([]int, callers)
	for i := range want {
		want[i] = i
	}
	var got []int
	for try := range orderTries {
		if s.failed.Load() {
			s.FailNow()
		}
		got = s.order(s.name(fmt.Sprintf("order-%d", try)), callers, client)
		if slices.Equal(got, want) {
			return
		}
		s.Logf("try %d: callers got the name in the order %v", try, got)
	}
	s.broken(fmt.Sprintf("callers who asked in the order %v got the name in the order %v", want, got), cause)
}

// order returns in which order callers get name.
func (s *trial) order(name string, callers int, client func(i int) *locker.Client) (got []int) {
	s.Helper()
	held := s.try(s.client(), name, locker.TTL(s.long))
	var mu sync.Mutex
	all := s.group()
	ctx := s.within(s.long + s.patience())
	for i := range callers {
		c := client(i)
		before := c.Stats().Waiting
		var over atomic.Bool
		all.Go(func() {
			defer over.Store(true)
			l, err := c.Lock(ctx, name, locker.TTL(s.long))
			if err != nil {
				s.report(fmt.Sprintf("caller %d did not get its turn: %v", i, err),
					"a waiter that is forgotten, or a refusal that does not match ErrHeld")
				return
			}
			mu.Lock()
			got = append(got, i)
			mu.Unlock()
			if err := l.Unlock(s.Context()); err != nil {
				s.report(fmt.Sprintf("Unlock failed: %v", err), "a lock that ends early")
			}
		})
		s.eventually(s.patience(), func() bool { return c.Stats().Waiting > before || over.Load() })
		s.inQueue(c, name, i+1)
	}
	s.unlock(held)
	all.Wait()
	return got
}

// inQueue returns when n wait in the service's queue, as far as that can be
// seen, and after a while where it cannot.
func (s *trial) inQueue(c *locker.Client, name string, n int) {
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	if st, err := c.Inspect(ctx, name); err != nil || st.Waiters < 0 {
		time.Sleep(settle / 4)
		return
	}
	s.eventually(settle, func() bool {
		st, err := c.Inspect(ctx, name)
		return err != nil || st.Waiters >= n
	})
}
