package redlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// A server that is told to write all to disk, and comes back without that disk:
// neither a client that has seen it before nor a new one lets it vote (R24).
func TestAServerThatLostItsDiskIsGuarded(t *testing.T) {
	t.Parallel()
	s := durable(t, 1)
	o := redlock.Options{MaxTTL: 5 * time.Second}
	old := s.backend(t, o)
	g := acquire(t, old, "x", 5*time.Second)
	until := g.Validity.Until()
	s.servers[0].Kill()
	all, err := filepath.Glob(filepath.Join(s.servers[0].Dir(), "appendonlydir", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, all, "there is no disk to lose")
	for _, name := range all {
		require.NoError(t, os.Remove(name))
	}
	s.servers[0].Restart(t)
	fresh := s.backend(t, o)
	guarded := 0
	for time.Now().Before(until) {
		for _, b := range []*redlock.Backend{old, fresh} {
			g, err := locktest.Ask(t.Context(), b, request("x", time.Second))
			if err == nil {
				assert.False(t, time.Now().Before(until), "two hold")
				release(t, g)
				continue
			}
			if errors.As(err, new(*redlock.QuorumError)) && b.Nodes()[0].GuardedFor > 0 {
				guarded++
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	assert.Positive(t, guarded)
	within(t, 30*time.Second, "it votes again", func() bool {
		g, err := locktest.Ask(t.Context(), fresh, request("x", time.Second))
		return err == nil && g.Hold.Release(t.Context(), 0) == nil
	})
	// From now on it has the note of a run that gave votes.
	s.servers[0].Restart(t)
	within(t, 30*time.Second, "its data was kept", func() bool {
		g, err := locktest.Ask(t.Context(), s.backend(t, redlock.Options{MaxTTL: time.Hour}), request("x", time.Second))
		return err == nil && g.Hold.Release(t.Context(), 0) == nil
	})
}

// Until its first renewal, a lock on three of five nodes would be lost if one of them failed. The other two,
// whose servers were looked at too late for a vote, have it long before.
func TestNodesThatAreLookedAtLateGetTheLock(t *testing.T) {
	for _, fencing := range []bool{true, false} {
		t.Run(fmt.Sprint("fencing=", fencing), func(t *testing.T) {
			t.Parallel()
			s := durable(t, 5)
			s.patient = true
			lab.Again(t, func() bool { // a look takes no longer than two seconds
				b := s.through(t, redlock.Options{Fencing: fencing})
				s.proxies[3:].Replies(lab.Hold)
				began := time.Now()
				g := acquire(t, b, "x", time.Minute) // its first renewal would come after 20 s
				assert.Equal(t, 3, s.holders(t, "x"))
				s.proxies[3:].Replies(lab.Pass)
				early := time.Since(began) < time.Second
				if early {
					within(t, 30*time.Second, "all have it", func() bool { return s.holders(t, "x") == 5 })
				}
				release(t, g)
				within(t, 30*time.Second, "it is released", func() bool { return s.holders(t, "x") == 0 })
				return early
			})
		})
	}
}

// Thousands of callers are more than can be served at once, and no outage (R21).
func TestNobodyIsRefusedForLoad(t *testing.T) {
	s := durable(t, 3)
	s.patient = true
	b := s.backend(t, redlock.Options{NodeTimeout: 50 * time.Millisecond})
	warm(t, b)
	const callers = 3000       // more than a healthy node is asked by at once
	lab.Again(t, func() bool { // a disk that stalls is an outage
		var done atomic.Int64
		var all sync.WaitGroup
		var first sync.Once
		for range callers {
			all.Go(func() {
				g, err := locktest.Ask(t.Context(), b, request(rand.Text(), time.Minute))
				if err == nil {
					err = g.Hold.Release(context.WithoutCancel(t.Context()), 0)
				}
				if err == nil {
					done.Add(1)
				} else {
					first.Do(func() { t.Log(err) })
				}
			})
		}
		all.Wait()
		return done.Load() == callers
	})
}

// full fills the memory of servers, as they see it.
func (s *nodes) full(t *testing.T, yes bool) {
	size := 0
	if yes {
		size = 1
	}
	s.servers.MustDo(t, "CONFIG", "SET", "maxmemory", size)
}

// With full memory and noeviction, leases live, what is given up goes at once,
// and held is held.
func TestFullMemory(t *testing.T) {
	s := durable(t, 3)
	a, b := s.backend(t, redlock.Options{Fencing: true}), s.backend(t, redlock.Options{Fencing: true})
	release(t, acquire(t, b, "warm", time.Minute))
	g := acquire(t, a, "x", time.Minute)
	given := acquire(t, a, "given", time.Minute)
	s.everywhere(t, g, "x")
	s.everywhere(t, given, "given")
	_, err := g.Hold.Renew(t.Context())
	require.NoError(t, err)
	for _, r := range s.servers {
		within(t, 30*time.Second, "its token is on all nodes, also where the vote came last", func() bool {
			return r.MustDo(t, "EXISTS", redisnode.LockKey("x")+":quorum") == int64(1)
		})
	}
	s.full(t, true)
	for _, r := range s.servers { // as after a minute and more
		assert.Equal(t, int64(1), r.MustDo(t, "PEXPIRE", redisnode.LockKey("x")+":quorum", 1000000))
	}
	_, err = g.Hold.Renew(t.Context())
	require.NoError(t, err, "a renewal writes nothing anew")
	for _, r := range s.servers {
		within(t, 30*time.Second, "and the counter lives on, also where the renewal arrives last", func() bool {
			left, _ := r.MustDo(t, "PTTL", redisnode.LockKey("x")+":quorum").(int64)
			return left > 2000000
		})
	}
	waiting := request("x", time.Minute)
	waiting.Wait = true
	_, err = locktest.Ask(t.Context(), b, waiting)
	require.ErrorIs(t, err, driver.ErrHeld)
	refused(t, b, "x", time.Minute)
	require.NoError(t, given.Hold.Release(t.Context(), 0))
	within(t, 30*time.Second, "what was released is gone", func() bool { return s.holders(t, "given") == 0 })
	_, err = locktest.Ask(t.Context(), b, request("free", time.Minute))
	require.ErrorIs(t, err, driver.ErrUnavailable, "there is no room for another lock")
	s.full(t, false)
	release(t, g)
}

// Connections that go silent for a while, and stay so, cost no lease whose TTL is
// four times as long; and a lock can be had soon after (R22).
func TestSilentConnections(t *testing.T) {
	for _, silence := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		t.Run(silence.String(), func(t *testing.T) {
			t.Parallel()
			s := durable(t, 3)
			lab.Again(t, func() bool { // a machine that stalls loses leases, too
				s.proxies.Set(lab.Pass)
				// A machine that stalls for a TTL makes a round that counts for nothing, and ends no call.
				opts := &locker.Options{TTL: max(4*silence, 1200*time.Millisecond), OutageTimeout: 10 * time.Second}
				c := locktest.Must(locker.New(s.through(t, redlock.Options{NodeTimeout: 50 * time.Millisecond}), opts))
				defer func() { _ = c.Close() }()
				lost, wait := locktest.Silence(t, c, opts.TTL, silence,
					func() { s.proxies.Set(lab.Drop) }, func() { each(s.proxies, (*lab.Proxy).PassNew) })
				t.Logf("granted %v after the network was back, %d leases lost", wait, lost)
				return lost == 0 && wait < 300*time.Millisecond
			})
		})
	}
}

// A release whose connections have gone silent is sent again on others, and is not told as
// unconfirmed.
func TestAReleaseOnSilentConnectionsIsConfirmed(t *testing.T) {
	t.Parallel()
	s := durable(t, 3)
	lab.Again(t, func() bool { // where answers were slow a moment ago, a silent connection is given longer
		s.proxies.Set(lab.Pass)
		b := s.through(t, redlock.Options{})
		var grants []driver.Grant
		for range 100 {
			grants = append(grants, acquire(t, b, rand.Text(), time.Minute))
		}
		s.proxies.Set(lab.Drop)
		each(s.proxies, (*lab.Proxy).PassNew)
		var all sync.WaitGroup
		var confirmed atomic.Int64
		for _, g := range grants {
			all.Go(func() {
				if err := g.Hold.Release(context.WithoutCancel(t.Context()), 0); err == nil {
					confirmed.Add(1)
				}
			})
		}
		all.Wait()
		return confirmed.Load() == 100
	})
}

// What a slow minority would say can decide who has the lock. It is waited for once, and not in each round.
func TestASlowMinorityIsWaitedForOnce(t *testing.T) {
	s := durable(t, 5)
	holder := s.connect(t, redlock.Options{}, func(i int) string {
		if i < 2 {
			return "127.0.0.1:1"
		}
		return s.servers[i].Addr()
	})
	g := acquire(t, holder, "x", time.Minute)
	defer release(t, g)
	b := s.through(t, redlock.Options{NodeTimeout: hasty})
	warm(t, b)
	late := s.proxies[3:].Replies
	lab.Again(t, func() bool { // a machine that stalls is late, too
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		late(lab.Hold)
		passes := time.AfterFunc(400*time.Millisecond, func() { late(lab.Pass) })
		slow, err := locktest.Ask(t.Context(), b, request(rand.Text(), time.Minute))
		if err == nil {
			err = slow.Hold.Release(t.Context(), 0)
		}
		within(t, 30*time.Second, "they have answered", func() bool { return b.Nodes()[3].InFlight+b.Nodes()[4].InFlight == 0 })
		if passes.Stop() || err != nil { // nothing was under way
			late(lab.Pass)
			return false
		}
		late(lab.Hold)
		began := time.Now()
		_, err = locktest.Ask(t.Context(), b, request("x", time.Minute))
		took := time.Since(began)
		late(lab.Pass)
		warm(t, b)
		t.Log(took, err)
		// Once is four times as long as they were slow: more than three rounds usually take, and less than with a first
		// look, which this is not.
		return errors.Is(err, driver.ErrHeld) && took < 2500*time.Millisecond
	})
}
