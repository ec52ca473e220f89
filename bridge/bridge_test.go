package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// A side that says "held" by an error has a fault, and is not polled as if it had refused.
func TestNothingStaysOnTheFirstWhereTheSecondDoesNotGrant(t *testing.T) {
	for _, test := range []struct {
		answer driver.Grant
		err    error
		want   error
		text   string
	}{
		{driver.Grant{Refused: &driver.Refusal{}}, nil, locker.ErrHeld, "held by another"},
		{driver.Grant{}, locker.ErrUnavailable, locker.ErrUnavailable, "unavailable"},
		{driver.Grant{}, locker.ErrRefused, locker.ErrRefused, "refused"},
		{driver.Grant{}, locker.ErrHeld, locker.ErrRefused, "instead of a Refusal"},
	} {
		a, b := forever(), forever()
		b.answers(test.answer, test.err)
		_, err := pairOf(t, a, b).TryLock(t.Context(), "job")
		require.ErrorIs(t, err, test.want)
		require.ErrorContains(t, err, test.text)
		require.Equal(t, test.answer.Refused != nil, errors.Is(err, locker.ErrHeld))
		isFree(t, a)
	}
}

func TestASilentSecondIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, asked := expiring(), forever(), 0
		b.acquire = func(ctx context.Context, _ driver.Request) (driver.Grant, error) {
			asked++
			<-ctx.Done()
			return driver.Grant{}, ctx.Err()
		}
		pair, began := pairOf(t, a, b), time.Now()
		_, err := pair.Lock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorContains(t, err, "memory: no answer for")
		assert.Less(t, time.Since(began), 2*ttl)
		isFree(t, a)
		assert.Equal(t, 1, asked)

		// So is it when the caller has no more time.
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		defer cancel()
		_, err = pair.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		time.Sleep(time.Second)
		isFree(t, a)
	})
}

// However long the second one is waited for, nobody else gets the first one, which may say late that
// it is held, and the lease begins whole.
func TestTheFirstIsKeptWhileTheSecondIsWaitedFor(t *testing.T) {
	for kind, service := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := expiring(), service()
				a.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
					if req.Wait {
						time.AfterFunc(ttl/2, req.Queued)
					}
					return a.Backend.Acquire(ctx, req)
				}
				old := clientOf(t, a, "old")
				held := try(t, clientOf(t, b, "young"), "job")
				in := lockLater(t.Context(), pairOf(t, a, b), locker.NoRenew())
				for range 32 {
					time.Sleep(ttl / 10)
					_, err := old.TryLock(t.Context(), "job")
					require.ErrorIs(t, err, locker.ErrHeld)
				}
				unlock(t, held)
				got := <-in
				require.NoError(t, got.err)
				assert.Greater(t, time.Until(got.Until()), ttl*8/10)
				unlock(t, got.Lease)
				isFree(t, a, b)
			})
		})
	}
}

// The first one is lost while the second one is waited for, or answers late, whatever the context
// says, and whether its service tells or a renewal finds out: nobody is told that it holds.
func TestTheFirstThatIsLostEndsTheWait(t *testing.T) {
	for i := range 7 {
		away, told := []time.Duration{0, ttl / 4, 2 * ttl, ttl / 15}[i/2], i%2 == 0
		synctest.Test(t, func(t *testing.T) {
			a, b := expiring(), forever()
			a.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				if !told {
					req.Lost = func() {}
				}
				return a.Backend.Acquire(ctx, req)
			}
			if away > 0 {
				b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
					time.Sleep(away)
					return b.Backend.Acquire(context.WithoutCancel(ctx), req)
				}
			} else {
				held := try(t, clientOf(t, b, "young"), "job")
				defer unlock(t, held)
			}
			pair := locktest.Must(bridge.New(a, b))
			time.AfterFunc(ttl/20, func() { assert.True(t, a.Lose("job")) })
			_, err := pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: ttl, Wait: true,
				Queued: func() {}, Lost: func() {}})
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.NotErrorIs(t, err, locker.ErrLost)
			isFree(t, a)
		})
	}
}

func TestTwoThatWroteThePairInTwoOrdersComeFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := expiring(), expiring()
		var all sync.WaitGroup
		for _, c := range []*locker.Client{pairOf(t, a, b), pairOf(t, b, a)} {
			all.Go(func() {
				for range 20 {
					l, err := c.Lock(t.Context(), "job")
					if assert.NoError(t, err) {
						time.Sleep(time.Millisecond)
						assert.NoError(t, l.Unlock(t.Context()))
					}
				}
			})
		}
		all.Wait()
	})
}

// Any two members share a service, in every mixture: tokens rise from holder to
// holder, whichever way each has come.
func TestTokensRiseThroughTheMove(t *testing.T) {
	for _, bases := range [][2]string{{"", ""}, {"?token_base=1000000", ""}, {"", "?token_base=77"}} {
		a, b := forever(), forever()
		for range 5000 { // a is far ahead
			unlock(t, try(t, clientOf(t, a, ""), "x"))
		}
		open := driver.Openers{"old": opens(a), "young": opens(b)}
		urls := []string{"old://" + bases[0], "old://" + bases[0] + " young://" + bases[1], "young://" + bases[1]}
		clients := make([]*locker.Client, len(urls))
		for i, u := range urls {
			var err error
			clients[i], err = bridge.Open(t.Context(), u, nil, open)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, clients[i].Close()) })
		}
		var highest uint64
		for step := range 40 {
			// old and both, both and young, and back again
			mixture := []*locker.Client{clients[1], clients[2*(step/10%2)]}
			if step%10 == 0 {
				mixture = mixture[:1]
			}
			for range 5 {
				l := try(t, mixture[rand.N(len(mixture))], "job")
				token, ok := l.Token()
				require.True(t, ok)
				require.Greater(t, token, highest)
				highest = token
				unlock(t, l)
			}
		}
	}
}

func TestTokensThatCannotBeRaised(t *testing.T) {
	a, b := forever(), forever()
	b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := b.Backend.Acquire(ctx, req)
		if g.Hold != nil {
			g.Hold = struct{ driver.Hold }{g.Hold}
		}
		return g, err
	}
	isFree(t, a)
	_, err := pairOf(t, a, b).TryLock(t.Context(), "job")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "write token_base=2 or more into its URL")
	isFree(t, a, b)
}

func TestALossOnEitherIsALoss(t *testing.T) {
	for lost := range 2 {
		synctest.Test(t, func(t *testing.T) {
			services := []fake{expiring(), expiring()}
			l := try(t, pairOf(t, services[0], services[1]), "job")
			time.Sleep(2 * ttl)
			elsewhere := &locker.Error{Op: "lease", Name: "another", Err: locker.ErrLost}
			ctx, end := context.WithCancelCause(t.Context())
			end(elsewhere)
			services[lost].Fail(elsewhere) // as a backend that answers with why the request was given up
			require.ErrorIs(t, l.Renew(ctx), context.Canceled)
			services[lost].Fail(nil)
			require.NoError(t, l.Err())
			assert.True(t, services[lost].Lose("job"))
			<-l.Done()
			require.ErrorIs(t, l.Err(), locker.ErrLost)
			require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
			time.Sleep(ttl)
			isFree(t, services[0], services[1])
		})
	}
}

// ends is a hold whose lease is over earlier than its TTL says.
type ends struct{ driver.Hold }

func (h ends) Renew(ctx context.Context) (driver.Validity, error) {
	v, err := h.Hold.Renew(ctx)
	v.Drift = ttl / 2
	return v, err
}

// A lease counts from before the first request, and lasts until the earlier end.
func TestALeaseEndsWithTheEarlierOfBoth(t *testing.T) {
	for early := range 2 {
		synctest.Test(t, func(t *testing.T) {
			const away = ttl / 20
			on := [2]fake{expiring(), expiring()}
			for i := range on {
				m := on[i].Backend
				on[i].acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
					time.Sleep(time.Duration(i) * away)
					g, err := m.Acquire(ctx, req)
					if i == early {
						g.Hold, g.Validity.Drift = ends{g.Hold}, ttl/2
					}
					return g, err
				}
			}
			pair := locktest.Must(bridge.New(on[0], on[1]))
			began := time.Now()
			g, err := pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: ttl, Lost: func() {}})
			require.NoError(t, err)
			assert.Zero(t, g.Validity.Since.Sub(began))
			assert.Equal(t, time.Duration(early)*away+ttl/2, g.Validity.Until().Sub(began))
			v, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
			assert.Equal(t, ttl/2, time.Until(v.Until()))
		})
	}
}

// A loss on one is a loss, whatever is known of the other; a release of which one outcome is not known is not through.
func TestAnUnknownOutcomeBesideALoss(t *testing.T) {
	for lost := range 2 {
		on := []fake{expiring(), expiring()}
		pair := locktest.Must(bridge.New(on[0], on[1]))
		g, err := pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: ttl, Lost: func() {}})
		require.NoError(t, err)
		on[1-lost].Fail(locker.ErrUnavailable)
		_, err = g.Hold.Renew(t.Context())
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.True(t, on[lost].Lose("job"))
		_, err = g.Hold.Renew(t.Context())
		require.ErrorIs(t, err, locker.ErrLost)
		err = g.Hold.Release(t.Context(), 0)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, locker.ErrLost)
		on[1-lost].Fail(nil)
		require.ErrorIs(t, g.Hold.Release(t.Context(), 0), locker.ErrLost)
		isFree(t, on[0], on[1])
	}
}

// On each service one sees that the holder came with both; of a long label the end is kept, in whole runes.
func TestTheLabelOfAHolderWithBoth(t *testing.T) {
	a, b := forever(), forever()
	both := locktest.Must(bridge.New(a, b))
	for label, want := range map[string]string{"pair": "pair", strings.Repeat("é", locker.MaxLabelLen/2): strings.Repeat("é", 56)} {
		l := try(t, clientOf(t, both, label), "job")
		for _, on := range []fake{a, b} {
			st, err := on.Inspect(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, want+" [memory memory]", st.Label)
		}
		unlock(t, l)
	}
	c := clientOf(t, both, "")
	st, inspected := c.Inspect(t.Context(), "job")
	_, checked := c.Check(t.Context())
	for _, err := range []error{inspected, checked, locktest.Lists(t.Context(), both), both.Break(t.Context(), st)} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "use the URLs of its two services, memory and memory")
	}
}

func TestWhatTheTwoCannotDo(t *testing.T) {
	m, brief := forever(), forever()
	one := locktest.Must(bridge.New(m, forever()))
	for want, pair := range map[string][2]driver.Backend{
		"is a bridge itself": {one, m},
		"backends is nil":    {m, nil},
		"one accepts none above 10s, the other none below 20s": {limited(time.Second, 10*time.Second),
			limited(20*time.Second, time.Minute)},
	} {
		_, err := bridge.New(pair[0], pair[1])
		require.ErrorIs(t, err, locker.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
	one = locktest.Must(bridge.New(m, newPolled()))
	assert.False(t, one.Queue())
	brief.claims = func(g *locker.Guarantees) { g.MaxMinHold = 4 * ttl }
	for _, pair := range []*locker.Client{pairOf(t, m, brief), pairOf(t, brief, m)} {
		_, err := pair.Lock(t.Context(), "job", locker.Shared())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "memory+memory has no shared locks")
		_, err = pair.Lock(t.Context(), "job", locker.MinHold(4*ttl))
		require.ErrorIs(t, err, errors.ErrUnsupported)
		isFree(t, m, brief)
	}
	_, err := pairOf(t, m, newPolled()).Lock(t.Context(), "job", locker.MinHold(time.Nanosecond))
	require.ErrorIs(t, err, errors.ErrUnsupported)

	// A MinHold that the pair says it can do is not too long for either.
	brief.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		require.LessOrEqual(t, req.MinHold, 4*ttl)
		return brief.Backend.Acquire(ctx, req)
	}
	one = locktest.Must(bridge.New(m, brief))
	g, err := one.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: 2 * ttl,
		MinHold: one.Guarantees().MaxMinHold, Lost: func() {}})
	require.NoError(t, err)
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	assert.Equal(t, 3*ttl, one.Guarantees().MaxMinHold)
}

// Two URLs of one service would otherwise grant the same lock twice. A request that is
// repeated has to find what it has left (R11), and one that was refused nothing (R10).
func TestTheOwnersOfOneRequest(t *testing.T) {
	services, owners := [2]fake{forever(), forever()}, [2][]string{}
	for i := range services {
		m := services[i].Backend
		services[i].acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Name == "job" {
				owners[i] = append(owners[i], req.Owner)
			}
			return m.Acquire(ctx, req)
		}
	}
	pair := locktest.Must(bridge.New(services[0], services[1]))
	held := try(t, clientOf(t, services[1].Backend, ""), "job")
	var unlocks sync.WaitGroup
	defer unlocks.Wait()
	req := driver.Request{Name: "job", Owner: strings.Repeat("4", 20) + strings.Repeat("2", 20), TTL: ttl,
		Wait: true, Lost: func() {}, Queued: func() { unlocks.Go(func() { assert.NoError(t, held.Unlock(t.Context())) }) }}
	for range 2 {
		g, err := pair.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	}
	assert.Equal(t, []string{req.Owner, req.Owner}, owners[0])
	require.Len(t, owners[1], 3, "refused, waited, repeated")
	assert.Equal(t, owners[1][0], owners[1][2])
	assert.NotEqual(t, owners[1][0], owners[1][1])
	for _, owner := range owners[1] {
		assert.NotEqual(t, req.Owner, owner)
		assert.Len(t, owner, len(req.Owner))
	}
}

// Each lock would wait for itself. The first lock says so, however it is asked for, and
// leaves nothing behind.
func TestTwoURLsOfOneService(t *testing.T) {
	asks := map[string]func(*locker.Client) (*locker.Lease, error){
		"try":  func(c *locker.Client) (*locker.Lease, error) { return c.TryLock(t.Context(), "job") },
		"lock": func(c *locker.Client) (*locker.Lease, error) { return c.Lock(t.Context(), "job") },
	}
	for kind, service := range kinds {
		same := service()
		pair := pairOf(t, same, same)
		for what, lock := range asks {
			_, err := lock(pair)
			require.ErrorIs(t, err, locker.ErrInvalid, kind, what)
			require.ErrorContains(t, err, "memory and memory lead to the same locks: give two services, or two prefixes")
			isFree(t, same)
		}
	}
}

// Members with one URL and those with both get their turns.
func TestNobodyStarves(t *testing.T) {
	for kind, service := range kinds {
		for alone := range 2 {
			t.Run(fmt.Sprintf("%s, alone on %d", kind, alone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on := []driver.Backend{service(), service()}
					ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
					defer stop()
					var inside atomic.Bool
					var turns [2]atomic.Int64 // of those with both, and of those with one
					var all sync.WaitGroup
					for n := range 8 {
						c := pairOf(t, on[0], on[1])
						if n%2 == 1 {
							c = clientOf(t, on[alone], "")
						}
						all.Go(func() {
							for {
								l, err := c.Lock(ctx, "job")
								if err != nil {
									assert.ErrorIs(t, err, context.DeadlineExceeded)
									return
								}
								assert.True(t, inside.CompareAndSwap(false, true), "two at once")
								time.Sleep(rand.N(200 * time.Millisecond))
								inside.Store(false)
								assert.NoError(t, l.Unlock(t.Context()))
								turns[n%2].Add(1)
								// Without a pause, a service without a queue sees nobody else.
								time.Sleep(rand.N(100 * time.Millisecond))
							}
						})
					}
					all.Wait()
					both, one := turns[0].Load(), turns[1].Load()
					t.Log("with both and with one:", both, one)
					assert.Greater(t, both+one, int64(200), "the lock is in use")
					assert.Greater(t, min(both, one), (both+one)/20)
				})
			})
		}
	}
}

// A program with one URL may share a name on its service. One with both URLs that waits there keeps
// further sharers out, gets in when those before it have left, and leaves nothing if it gives up.
func TestSharersOfOneService(t *testing.T) {
	for kind, service := range map[string]func() driver.Backend{
		"queue": kinds["queue"],
		"notes": func() driver.Backend { return mute{newPolled()} },
	} {
		for at := range 2 {
			t.Run(fmt.Sprintf("%s, service %d", kind, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on := []driver.Backend{service(), service()}
					pair, one, other := pairOf(t, on[0], on[1]), clientOf(t, on[at], "one"), clientOf(t, on[at], "other")
					for _, leaves := range []bool{true, false} {
						sharer := try(t, one, "job", locker.Shared())
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						in := lockLater(ctx, pair)
						synctest.Wait()
						for range 400 {
							_, err := other.TryLock(t.Context(), "job", locker.Shared())
							require.ErrorIs(t, err, locker.ErrHeld)
							time.Sleep(10 * time.Millisecond)
						}
						if leaves {
							cancel()
							require.ErrorIs(t, (<-in).err, context.Canceled)
							time.Sleep(time.Millisecond)
							unlock(t, try(t, other, "job", locker.Shared()))
							unlock(t, sharer)
							continue
						}
						unlock(t, sharer)
						left := time.Now()
						got := <-in
						require.NoError(t, got.err)
						assert.Less(t, time.Since(left), 400*time.Millisecond, "it asks again every 300 ms")
						unlock(t, got.Lease)
						unlock(t, try(t, other, "job", locker.Shared()))
					}
					if n, ok := on[at].(mute); ok {
						assert.GreaterOrEqual(t, n.notes, 2*4*3, "renewed all the time")
						assert.Equal(t, 1, n.left)
					}
				})
			})
		}
	}
}

// The engine learns when the lock that is in the way ends, on whichever side.
func TestAPairSaysHowLongItIsHeld(t *testing.T) {
	for at := range 2 {
		on := [2]fake{forever(), forever()}
		on[at].answers(driver.Grant{Refused: &driver.Refusal{Remaining: 7 * time.Second}}, nil)
		pair := locktest.Must(bridge.New(on[0], on[1]))
		g, err := pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: strings.Repeat("1", 40), TTL: ttl,
			Lost: func() {}, Queued: func() {}})
		require.NoError(t, err)
		require.NotNil(t, g.Refused)
		assert.Equal(t, 7*time.Second, g.Refused.Remaining)
	}
}
