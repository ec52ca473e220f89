package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// fault breaks one node and says how to mend it.
type fault struct {
	name   string
	damage func(s *nodes, i int) (mend func(t testing.TB))
}

func faults() []fault {
	proxied := func(m lab.Mode) func(s *nodes, i int) func(testing.TB) {
		return func(s *nodes, i int) func(testing.TB) {
			s.proxies[i].Set(m)
			return func(testing.TB) { s.proxies[i].Set(lab.Pass) }
		}
	}
	return []fault{
		{"killed", func(s *nodes, i int) func(testing.TB) {
			s.servers[i].Kill()
			return func(t testing.TB) { s.servers[i].Restart(t) }
		}},
		{"stopped", func(s *nodes, i int) func(testing.TB) {
			s.servers[i].Pause()
			return func(testing.TB) { s.servers[i].Resume() }
		}},
		{"cut off: dropped", proxied(lab.Drop)},
		{"cut off: held", proxied(lab.Hold)},
		{"reset", proxied(lab.Reset)},
	}
}

func TestLockIsOnAllNodesAndGoneAfterRelease(t *testing.T) {
	const ttl = time.Minute
	for _, n := range []int{1, 2, 4} {
		s := durable(t, n)
		for _, fencing := range []bool{false, true} {
			a, b := s.backend(t, redlock.Options{Fencing: fencing}), s.backend(t, redlock.Options{Fencing: fencing})
			g := acquire(t, a, "x", ttl)
			s.everywhere(t, g, "x")
			refused(t, b, "x", ttl)
			v, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
			assert.Equal(t, ttl, v.TTL)
			st, err := b.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.True(t, st.Held)
			assert.Equal(t, "test", st.Label)
			assert.WithinDuration(t, time.Now(), st.Since, 30*time.Second)
			assert.Equal(t, g.Token, st.Token)
			assert.Equal(t, fencing, g.Token != 0)
			release(t, g)
			within(t, 30*time.Second, "no node has it", func() bool { return s.holders(t, "x") == 0 })
			g2 := acquire(t, b, "x", ttl)
			if fencing {
				assert.Greater(t, g2.Token, g.Token)
			}
			release(t, g2)
		}
	}
}

// With one or two of five nodes broken in any way, before or during the lock,
// everything goes on: locks are exclusive, are renewed and released, and
// nothing waits for the broken ones.
func TestMinorityBroken(t *testing.T) { minorityBroken(t, 2, true) }

func TestProveMinorityBroken(t *testing.T) {
	lab.NeedProve(t)
	minorityBroken(t, 1, true)
	minorityBroken(t, 1, false)
	minorityBroken(t, 2, false)
}

func minorityBroken(t *testing.T, n int, fencing bool) {
	s := durable(t, 5)
	s.patient = true // to wait for a node that hangs takes two seconds
	for _, f := range faults() {
		t.Run(fmt.Sprintf("%s/%d/fencing=%v", f.name, n, fencing), func(t *testing.T) {
			o := redlock.Options{Fencing: fencing}
			a, b := s.through(t, o), s.through(t, o)
			release(t, acquire(t, b, "warm", time.Minute))
			release(t, acquire(t, a, "warm", time.Minute))
			before := acquire(t, a, "before", time.Minute)
			s.everywhere(t, before, "before")

			var mends []func(testing.TB)
			for i := range n {
				mends = append(mends, f.damage(s, i))
			}
			began := time.Now()
			refused(t, b, "before", time.Minute)
			_, err := before.Hold.Renew(t.Context())
			require.NoError(t, err)
			during := acquire(t, b, "during", time.Minute)
			refused(t, a, "during", time.Minute)
			release(t, during)
			during = acquire(t, a, "during", time.Minute)
			release(t, before)
			before = acquire(t, b, "before", time.Minute)
			assert.Less(t, time.Since(began), 10*time.Second, "something waited for a broken node")

			for _, mend := range mends {
				mend(t)
			}
			refused(t, a, "before", time.Minute)
			release(t, before)
			release(t, during)
			within(t, 30*time.Second, "releases reach the nodes that are back", func() bool {
				return s.holders(t, "before") == 0 && s.holders(t, "during") == 0
			})
		})
	}
}

// With three of five broken there is no lock, and the error says so soon: it
// names the nodes, and is never "held".
func TestMajorityBroken(t *testing.T) {
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := durable(t, 5)
			s.patient = true
			b, tries := s.through(t, redlock.Options{}), s.through(t, redlock.Options{NodeTimeout: hasty})
			g := acquire(t, b, "x", time.Minute)
			s.everywhere(t, g, "x")
			warm(t, tries)
			var mends []func(testing.TB)
			for i := range 3 {
				mends = append(mends, f.damage(s, i))
			}
			for _, name := range []string{"x", "y"} { // held, and free
				lab.Again(t, func() bool { // on a machine that stalls others are late, too
					began := time.Now()
					_, err := locktest.Ask(t.Context(), tries, request(name, time.Minute))
					require.ErrorIs(t, err, driver.ErrUnavailable)
					assert.NotErrorIs(t, err, driver.ErrHeld)
					assert.Less(t, time.Since(began), 30*time.Second)
					var q *redlock.QuorumError
					require.ErrorAs(t, err, &q)
					for i := range 3 {
						assert.Contains(t, err.Error(), s.proxies[i].Addr())
					}
					assert.NotContains(t, err.Error(), "\n")
					return len(q.Causes) == 3
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := g.Hold.Renew(ctx)
			cancel()
			require.Error(t, err)
			assert.NotErrorIs(t, err, driver.ErrLost, "nobody knows that yet")
			err = g.Hold.Release(t.Context(), 0)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			for _, mend := range mends {
				mend(t)
			}
			within(t, 30*time.Second, "the release gets through at last",
				func() bool { return s.holders(t, "x") == 0 && s.holders(t, "y") == 0 })
			within(t, 30*time.Second, "it is served again", func() bool {
				g, err := locktest.Ask(t.Context(), b, request("x", time.Minute))
				if err == nil {
					release(t, g)
				}
				return err == nil
			})
		})
	}
}

// A node that fails in the middle of each step: its reply is lost, so that
// nobody knows whether it did what it was asked.
func TestNodeFailsInTheMiddleOfAStep(t *testing.T) { nodesFailInTheMiddleOfAStep(t, 2) }

func TestProveOneNodeFailsInTheMiddleOfAStep(t *testing.T) {
	lab.NeedProve(t)
	nodesFailInTheMiddleOfAStep(t, 1)
}

func nodesFailInTheMiddleOfAStep(t *testing.T, n int) {
	// Which of the client's requests to the node fails: the vote, the raise, the renewal, the release.
	s := durable(t, 5)
	a, b := s.through(t, redlock.Options{Fencing: true}), s.backend(t, redlock.Options{Fencing: true})
	release(t, acquire(t, a, "warm", time.Minute))
	for nth := 1; nth <= 4; nth++ {
		t.Run(fmt.Sprintf("request %d/%d nodes", nth, n), func(t *testing.T) {
			arm := func(step int) {
				if step == nth {
					for i := range n {
						s.proxies[i].CutReply("{x}")
					}
				}
			}
			for i := range n {
				if nth == 2 { // the raise comes in the acquire, after the vote
					s.proxies[i].OnRequest("{x}", func(*lab.Link) { s.proxies[i].CutReply("{x}:quorum") })
				}
			}
			arm(1)
			g := acquire(t, a, "x", time.Minute)
			refused(t, b, "x", time.Minute)
			s.everywhere(t, g, "x") // a node that was too slow would be one more that fails
			arm(3)
			_, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
			arm(4)
			release(t, g)
			within(t, 30*time.Second, "nothing is left", func() bool { return s.holders(t, "x") == 0 })
			g2 := acquire(t, b, "x", time.Minute)
			assert.Greater(t, g2.Token, g.Token)
			release(t, g2)
		})
	}
}

// Servers that forget their scripts, all of them and in the middle of a hold.
func TestForgottenScripts(t *testing.T) {
	s := durable(t, 5)
	b := s.backend(t, redlock.Options{Fencing: true})
	flush := func() {
		s.servers.MustDo(t, "SCRIPT", "FLUSH")
	}
	for range 5 {
		flush()
		g := acquire(t, b, "x", time.Minute)
		flush()
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		flush()
		release(t, g)
	}
}

// A quorum does not wait for slow nodes, which get the lock and lose it later.
func TestSlowNodes(t *testing.T) {
	s := durable(t, 5)
	b := s.through(t, redlock.Options{NodeTimeout: 30 * time.Second})
	release(t, acquire(t, b, "warm", time.Minute))
	s.proxies[0].SetDelay(300 * time.Millisecond)
	s.proxies[3].SetDelay(300 * time.Millisecond)
	lab.Again(t, func() bool { // a machine that stalls is late, too
		began := time.Now()
		g := acquire(t, b, "x", time.Minute)
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		release(t, g)
		took := time.Since(began)
		within(t, 30*time.Second, "no node has it", func() bool {
			return s.holders(t, "x") == 0 && b.Nodes()[0].InFlight == 0 && b.Nodes()[3].InFlight == 0
		})
		return took < 550*time.Millisecond
	})
}

// What piles up behind a hung node has a bound, and the node is asked rarely.
func TestHungNodeCostsNothing(t *testing.T) {
	t.Parallel()
	s := durable(t, 5)
	b := s.backend(t, redlock.Options{})
	release(t, acquire(t, b, "warm", time.Minute))
	s.servers[2].Pause()
	defer s.servers[2].Resume()
	deadline := time.Now().Add(20 * time.Second) // by then it has been found out that it does not answer
	skipped := func() bool { return b.Nodes()[2].Sick }
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := 0; n < 100 || !skipped() && time.Now().Before(deadline); n++ {
				g, err := locktest.Ask(t.Context(), b, request(fmt.Sprintf("n%d-%d", i, n), time.Minute))
				if !assert.NoError(t, err) || !assert.NoError(t, g.Hold.Release(context.Background(), 0)) {
					return
				}
				time.Sleep(time.Millisecond) // other tests run, too
			}
		})
	}
	wg.Wait()
	n := b.Nodes()[2]
	assert.LessOrEqual(t, n.InFlight, 1000, "a vote that was not sent when its lock was released never is")
	assert.True(t, n.Sick)
	s.servers[2].Resume()
	within(t, 30*time.Second, "it is asked again, and votes", func() bool {
		release(t, acquire(t, b, "again", time.Minute))
		return !b.Nodes()[2].Sick
	})
}

// TryLock of two on a free name, who have the votes of one half of the nodes each: one gets it all the same, and who
// does not is told "held" or that votes were split, never both.
func TestTrySplit(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { trySplit(t, durable(t, n)) })
	}
}

func trySplit(t *testing.T, s *nodes) {
	half := len(s.servers) / 2
	ways := []*nodes{s, {servers: s.servers}}
	each(s.servers, func(r *lab.Redis) { ways[1].proxies = append(ways[1].proxies, lab.StartProxy(t, r.Addr())) })
	far := []proxies{ways[0].proxies[half:], ways[1].proxies[:half]}
	var backends []*redlock.Backend
	for _, way := range ways {
		b := way.through(t, redlock.Options{})
		g := acquire(t, b, "warm", time.Minute)
		s.everywhere(t, g, "warm")
		release(t, g)
		within(t, 30*time.Second, "no node has it", func() bool { return s.holders(t, "warm") == 0 })
		backends = append(backends, b)
	}
	tries := 0
	for range 5 {
		lab.Again(t, func() bool { // nobody wins one of a thousand; and a round may be over before the votes are split
			tries++
			name := fmt.Sprint("x", tries)
			var reqs []driver.Request
			var won, over atomic.Int64
			var all sync.WaitGroup
			for i, b := range backends {
				far[i].Requests(lab.Hold)
				req := request(name, time.Minute)
				reqs = append(reqs, req)
				all.Go(func() {
					defer over.Add(1)
					if _, err := locktest.Ask(t.Context(), b, req); err == nil {
						won.Add(1)
					} else {
						assert.True(t, errors.Is(err, driver.ErrHeld) != errors.Is(err, driver.ErrUnavailable), err)
					}
				})
			}
			split := false
			for ; !split && over.Load() == 0; time.Sleep(time.Millisecond) {
				split = true
				for i := range s.servers {
					split = split && strings.Contains(s.value(t, i, name), reqs[i/half].Owner)
				}
			}
			each(far, func(all proxies) { all.Requests(lab.Pass) })
			all.Wait()
			require.LessOrEqual(t, won.Load(), int64(1))
			return split && won.Load() == 1
		})
	}
}

// The clock of one node jumps forward and frees its key early, or back and keeps it: the others decide. When all clocks
// are set back, tokens rise all the same.
func TestClocksThatJump(t *testing.T) {
	s := start(t, 3, lab.WithAppendOnly(), lab.WithClock()).proven(t)
	fenced := redlock.Options{Fencing: true}
	backends := []*redlock.Backend{s.backend(t, fenced), s.backend(t, fenced)}
	var last uint64
	for n, jump := range []struct {
		by    time.Duration
		nodes []*lab.Redis
	}{{time.Hour, s.servers[1:2]}, {-2 * time.Hour, s.servers[1:2]}, {time.Hour, s.servers[1:2]}, {-time.Hour, s.servers}} {
		g := acquire(t, backends[n%2], "x", time.Minute)
		assert.Greater(t, g.Token, last)
		last = g.Token
		s.everywhere(t, g, "x")
		for _, r := range jump.nodes {
			r.JumpClock(t, jump.by)
		}
		refused(t, backends[1-n%2], "x", time.Minute)
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		release(t, g)
	}
	assert.Greater(t, acquire(t, backends[0], "x", time.Minute).Token, last)
}

// A renewal repairs nodes that have lost the key, which then count.
func TestRenewalRepairs(t *testing.T) {
	s := durable(t, 5)
	b := s.backend(t, redlock.Options{Fencing: true})
	g := acquire(t, b, "x", time.Minute)
	del := func(nodes ...int) {
		s.everywhere(t, g, "x")
		for _, i := range nodes {
			s.servers[i].MustDo(t, "DEL", "locker:2:{x}")
		}
	}
	for _, lost := range [][]int{{0, 1}, {2, 3}, {4}} {
		del(lost...)
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
	}
	// Three of five have lost it: a repair is no renewal, and a lease that is lost is not repaired.
	n := 0
	lab.Again(t, func() bool { // on a busy machine a vote is sent twice, and one may come after the DEL
		n++
		name := fmt.Sprint("lost", n)
		g := acquire(t, b, name, time.Minute)
		within(t, 30*time.Second, "all have voted", func() bool { return s.holders(t, name) == 5 }) // none was repaired
		s.servers[:3].MustDo(t, "DEL", redisnode.LockKey(name))
		_, err := g.Hold.Renew(t.Context())
		time.Sleep(20 * time.Millisecond)
		return errors.Is(err, driver.ErrLost) && s.holders(t, name) == 2
	})
}

// RaiseToken lifts what later tokens are above, for those who hold the lock. It changes neither the lease's own token,
// which is shown, and given to the holder that asks again, nor its rank: where a later holder has raised a node's
// counter, neither it nor a renewal takes the node from that holder.
func TestRaiseToken(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{Fencing: true})
	req := request("n", time.Minute)
	g := locktest.Acquire(t, b, req)
	s.everywhere(t, g, "n") // this Hold gives it to no node afterwards
	raise := func(token uint64) error { return g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), token) }
	high := g.Token + 1_000_000
	require.NoError(t, raise(high))
	st, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, g.Token, st.Token)
	assert.Equal(t, g.Token, locktest.Acquire(t, b, req).Token)
	later, counter := fmt.Sprint(g.Token+5, " later"), redisnode.LockKey("n")+":quorum"
	s.servers[0].MustDo(t, "SET", counter, later)
	require.NoError(t, raise(high+1))
	require.NoError(t, raise(g.Token))
	s.servers[1:].MustDo(t, "DEL", counter)
	_, err = g.Hold.Renew(t.Context())
	require.NoError(t, err, "two of three have it")
	for _, r := range s.servers[1:] {
		assert.Contains(t, r.MustDo(t, "GET", counter), fmt.Sprint(high+1), "renewals keep it there")
	}
	assert.Equal(t, later, s.servers[0].MustDo(t, "GET", counter))
	_, err = locktest.Break(t.Context(), b, "n")
	require.NoError(t, err)
	require.ErrorIs(t, raise(high), driver.ErrLost)
	within(t, 30*time.Second, "it is free everywhere", func() bool { return s.holders(t, "n") == 0 })
	assert.Greater(t, acquire(t, b, "n", time.Minute).Token, high+1)
}

// A subscription that is slower than a quorum's goes on when Notify has returned and its context has ended: any
// quorum may be the one that is released.
func TestSlowSubscriptionsOutliveNotifysContext(t *testing.T) {
	s := durable(t, 3)
	s.patient = true
	b := s.through(t, redlock.Options{})
	s.proxies[2].Requests(lab.Hold)
	ctx, cancel := context.WithCancel(t.Context())
	var woken atomic.Bool
	stop, err := b.Notify(ctx, "n", func() { woken.Store(true) })
	cancel()
	s.proxies[2].Requests(lab.Pass)
	require.NoError(t, err)
	defer stop()
	within(t, 30*time.Second, "the slow node is heard as well", func() bool {
		s.servers[2].MustDo(t, "PUBLISH", redisnode.WakeChannel("n"), "")
		return woken.Load()
	})
}

// A lock is won while releases of its holder before are still under way to some nodes. They are given it as soon as
// those have come, and not with the first renewal alone: until then any node of its quorum may be missed.
func TestWhatWasWaitedForIsSoonOnAllNodes(t *testing.T) {
	t.Parallel()
	s := durable(t, 5)
	before, next := s.through(t, redlock.Options{}), s.backend(t, redlock.Options{})
	warm(t, before)
	warm(t, next)
	n := 0
	lab.Again(t, func() bool { // they are asked for a second, if they have said by then that they refuse
		n++
		name := fmt.Sprint("n", n)
		last, req := request(name, time.Minute), request(name, time.Minute)
		req.Wait = true
		g := locktest.Acquire(t, before, last)
		s.everywhere(t, g, name)
		s.proxies[3:].Requests(lab.Hold)
		release(t, g)
		asked := time.Now()
		locktest.Acquire(t, next, req)
		assert.NotContains(t, s.value(t, 3, name), req.Owner)
		s.proxies[3:].Requests(lab.Pass)
		have := func(owner string) (n int) {
			for i := range s.servers {
				if strings.Contains(s.value(t, i, name), owner) {
					n++
				}
			}
			return n
		}
		within(t, 30*time.Second, "the releases have come", func() bool { return have(last.Owner) == 0 })
		if time.Since(asked) > time.Second {
			return false
		}
		for time.Since(asked) < 5*time.Second && have(req.Owner) < len(s.servers) {
			time.Sleep(2 * time.Millisecond)
		}
		return have(req.Owner) == len(s.servers)
	})
}
