package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/memory"
)

// ttl is that of the tests on memory, whose time is not the machine's.
const ttl = 10 * time.Second

func pairOf(t *testing.T, first, second locker.Backend) *locker.Client {
	t.Helper()
	b, err := bridge.New(first, second)
	require.NoError(t, err)
	return clientOf(t, b, "pair")
}

func clientOf(t *testing.T, b locker.Backend, label string) *locker.Client {
	t.Helper()
	c := locker.New(b, &locker.Options{TTL: ttl, Label: label, Patience: locker.NoPatience})
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// opens is the Opener of a Backend that is there already.
func opens(b locker.Backend) locker.Opener {
	return func(context.Context, *locker.URL, locker.Options) (locker.Backend, error) { return b, nil }
}

func try(t *testing.T, c *locker.Client, name string) *locker.Lease {
	t.Helper()
	l, err := c.TryLock(t.Context(), name)
	require.NoError(t, err)
	return l
}

func unlock(t *testing.T, l *locker.Lease) {
	t.Helper()
	require.NoError(t, l.Unlock(t.Context()))
}

// polled is a service without a queue and without messages.
type polled struct {
	b *memory.Backend
}

func (p polled) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	req.Wait = false
	return p.b.Acquire(ctx, req)
}
func (p polled) Guarantees() locker.Guarantees { return p.b.Guarantees() }
func (p polled) Close() error                  { return nil }

// silent never answers, and says what it was asked.
type silent struct {
	shared
	asked atomic.Int32
}

func (s *silent) Acquire(ctx context.Context, _ locker.Request) (locker.Grant, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return locker.Grant{}, ctx.Err()
}

// dull is a service with tokens that cannot be raised.
type dull struct{ shared }

func (d dull) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := d.shared.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = struct{ locker.Hold }{g.Hold}
	}
	return g, err
}

func TestNothingStaysOnTheFirstWhereTheSecondDoesNotGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := shared{memory.New()}, shared{memory.New()}
		pair, old, young := pairOf(t, a, b), clientOf(t, a, "old"), clientOf(t, b, "young")

		held := try(t, young, "job")
		_, err := pair.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		unlock(t, try(t, old, "job"))
		unlock(t, held)

		down := errors.New("pulled out")
		b.Fail(fmt.Errorf("%w: %w", down, locker.ErrUnavailable))
		_, err = pair.Lock(t.Context(), "job")
		require.ErrorIs(t, err, down)
		require.NotErrorIs(t, err, locker.ErrHeld)
		unlock(t, try(t, old, "job"))
		b.Fail(nil)
		unlock(t, try(t, pair, "job"))
	})
}

func TestASilentSecondIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := shared{memory.NewExpiring()}, &silent{shared: shared{memory.New()}}
		pair, old := pairOf(t, a, s), clientOf(t, a, "old")
		began := time.Now()
		_, err := pair.Lock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorContains(t, err, "memory: no answer for")
		assert.Less(t, time.Since(began), 2*ttl)
		unlock(t, try(t, old, "job"))
		assert.EqualValues(t, 1, s.asked.Load())

		// So is it when the caller has no more time.
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		defer cancel()
		_, err = pair.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		time.Sleep(time.Second)
		unlock(t, try(t, old, "job"))
	})
}

// late is a service whose releases wait for the network, whatever their contexts say.
type late struct {
	*memory.Backend
	closed chan struct{}
}

type lateHold struct {
	locker.Hold
	closed chan struct{}
}

func (l late) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := l.Backend.Acquire(ctx, req)
	g.Hold = lateHold{g.Hold, l.closed}
	return g, err
}

func (l late) Prompt() bool { return false }

func (l late) Close() error {
	close(l.closed)
	return l.Backend.Close()
}

func (h lateHold) Release(context.Context) error {
	<-h.closed
	return locker.ErrUnavailable
}

func TestCloseDoesNotWaitForALateRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := bridge.New(late{memory.New(), make(chan struct{})}, memory.New())
		require.NoError(t, err)
		_, err = b.Acquire(t.Context(), locker.Request{Name: "a", Owner: "owner", TTL: ttl, Lost: func() {}})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, b.Close())
		assert.Less(t, time.Since(began), time.Second)
	})
}

// However long the second one is waited for, nobody else gets the first one, and the
// lease begins whole.
func TestTheFirstIsKeptWhileTheSecondIsWaitedFor(t *testing.T) {
	for kind, second := range map[string]func(*memory.Backend) locker.Backend{
		"queue":  func(m *memory.Backend) locker.Backend { return shared{m} },
		"polled": func(m *memory.Backend) locker.Backend { return polled{m} },
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := shared{memory.NewExpiring()}, memory.NewExpiring()
				pair, old, young := pairOf(t, a, second(b)), clientOf(t, a, "old"), clientOf(t, shared{b}, "young")
				held := try(t, young, "job")
				got := make(chan *locker.Lease)
				go func() {
					l, err := pair.Lock(t.Context(), "job", locker.NoRenew())
					assert.NoError(t, err)
					got <- l
				}()
				for range 30 {
					time.Sleep(ttl / 10)
					_, err := old.TryLock(t.Context(), "job")
					require.ErrorIs(t, err, locker.ErrHeld)
				}
				unlock(t, held)
				l := <-got
				assert.Greater(t, time.Until(l.Until()), ttl*8/10)
				unlock(t, l)
				unlock(t, try(t, old, "job"))
			})
		})
	}
}

func TestTheFirstThatIsLostEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := shared{memory.NewExpiring()}, shared{memory.New()}
		pair, young := pairOf(t, a, b), clientOf(t, b, "young")
		held := try(t, young, "job")
		failed := make(chan error)
		go func() {
			_, err := pair.Lock(t.Context(), "job")
			failed <- err
		}()
		synctest.Wait()
		assert.True(t, a.Delete("job"))
		err := <-failed
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, locker.ErrLost)
		unlock(t, held)
		unlock(t, try(t, pair, "job"))
	})
}

// distant is a service without tokens that ends its renewals with their contexts, and
// answers an Acquire after a time, whatever the context says.
type distant struct {
	*memory.Backend
	away time.Duration
}

type distantHold struct{ locker.Hold }

func (d distant) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	time.Sleep(d.away)
	g, err := d.Backend.Acquire(context.WithoutCancel(ctx), req)
	return locker.Grant{Hold: distantHold{g.Hold}, Validity: g.Validity}, err
}

func (h distantHold) Renew(ctx context.Context) (locker.Validity, error) {
	if err := ctx.Err(); err != nil {
		return locker.Validity{}, err
	}
	return h.Hold.Renew(ctx)
}

func TestTheFirstThatIsLostIsNotForgottenWhenTheSecondAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.NewExpiring()
		pair, err := bridge.New(distant{a, 0}, distant{memory.New(), 2 * ttl})
		require.NoError(t, err)
		time.AfterFunc(ttl/10, func() { assert.True(t, a.Delete("job")) })
		_, err = pair.Acquire(t.Context(), locker.Request{Name: "job", Owner: "owner", TTL: ttl, Lost: func() {}})
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NoError(t, pair.Close())
	})
}

// Members with one URL and those with both get their turns beside each other.
func TestNobodyStarvesBesideTheOthers(t *testing.T) {
	for kind, hide := range map[string]func(*memory.Backend) locker.Backend{
		"queues": func(m *memory.Backend) locker.Backend { return shared{m} },
		"polled": func(m *memory.Backend) locker.Backend { return polled{m} },
	} {
		for _, alone := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, alone on %d", kind, alone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					services := []locker.Backend{hide(memory.NewExpiring()), hide(memory.NewExpiring())}
					const members, d = 3, 2 * time.Minute
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					var holders atomic.Int32
					var turns [2 * members]int
					var all sync.WaitGroup
					for i := range turns {
						c := clientOf(t, services[alone], "alone")
						if i%2 == 0 {
							c = pairOf(t, services[0], services[1])
						}
						all.Go(func() {
							for ctx.Err() == nil {
								l, err := c.Lock(ctx, "job")
								if err != nil {
									assert.ErrorIs(t, err, context.DeadlineExceeded)
									return
								}
								assert.EqualValues(t, 1, holders.Add(1))
								turns[i]++
								time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
								holders.Add(-1)
								assert.NoError(t, l.Unlock(t.Context()))
								time.Sleep(rand.N(100 * time.Millisecond)) // or a service without a queue sees nobody else
							}
						})
					}
					all.Wait()
					t.Log(turns)
					both, sum := 0, 0
					for i, n := range turns {
						sum += n
						if i%2 == 0 {
							both += n
						}
					}
					assert.Greater(t, sum, 200, "the lock is in use")
					assert.Greater(t, both, sum/20, "those with both")
					assert.Greater(t, sum-both, sum/20, "those with one")
				})
			})
		}
	}
}

func TestTwoThatWroteThePairInTwoOrdersComeFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := shared{memory.NewExpiring()}, shared{memory.NewExpiring()}
		ab, ba := pairOf(t, a, b), pairOf(t, b, a)
		var all sync.WaitGroup
		for range 20 {
			for _, c := range []*locker.Client{ab, ba} {
				all.Go(func() {
					l, err := c.Lock(t.Context(), "job")
					if assert.NoError(t, err) {
						assert.NoError(t, l.Unlock(t.Context()))
					}
				})
			}
			all.Wait()
		}
	})
}

// Any two members share a service, in every mixture: tokens rise from holder to
// holder, whichever way each has come.
func TestTokensRiseThroughTheMove(t *testing.T) {
	for _, bases := range [][2]string{{"", ""}, {"?token_base=1000000", ""}, {"", "?token_base=77"}} {
		a, b := memory.New(), memory.New()
		for range 5000 { // a is far ahead
			unlock(t, try(t, clientOf(t, shared{a}, ""), "x"))
		}
		open := bridge.Openers{"old": opens(shared{a}), "young": opens(shared{b})}
		urls := []string{"old://" + bases[0], "old://" + bases[0] + " young://" + bases[1], "young://" + bases[1]}
		clients := make([]*locker.Client, len(urls))
		for i, u := range urls {
			var err error
			clients[i], err = open.Open(t.Context(), u, nil)
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

// Nobody locks "idle" in the middle of the move.
func TestCheckFindsTokensThatWouldFall(t *testing.T) {
	a, b := memory.New(), memory.New()
	old := clientOf(t, shared{a}, "")
	var last uint64
	for range 50 {
		l := try(t, old, "idle")
		last, _ = l.Token()
		unlock(t, l)
	}
	open := func(parameters string) *locker.Client {
		open := bridge.Openers{"old": opens(shared{a}), "young": opens(shared{b})}
		c, err := open.Open(t.Context(), "old:// young://"+parameters, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	finding := func(c *locker.Client) locker.Finding {
		findings, err := c.Check(t.Context())
		require.NoError(t, err)
		return findings[len(findings)-2] // the way there; the other one is the way back
	}
	f := finding(open(""))
	assert.Equal(t, locker.SeverityWarning, f.Severity, f)
	base := regexp.MustCompile(`token_base=\d+`).FindString(f.Advice)
	require.NotEmpty(t, base, f.Advice)
	assert.Equal(t, locker.SeverityOK, finding(open("?"+base)).Severity)

	_, digits, _ := strings.Cut(base, "=")
	n, err := strconv.ParseUint(digits, 10, 64)
	require.NoError(t, err)
	l := try(t, locker.New(shared{b}, &locker.Options{TokenBase: n}), "idle")
	token, _ := l.Token()
	assert.Greater(t, token, last)
	unlock(t, l)
}

func TestTokensThatCannotBeRaised(t *testing.T) {
	a, b := shared{memory.New()}, dull{shared{memory.New()}}
	unlock(t, try(t, clientOf(t, a, ""), "job"))
	pair := pairOf(t, a, b)
	_, err := pair.TryLock(t.Context(), "job")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "write token_base=2 or more into its URL")
	unlock(t, try(t, clientOf(t, a, ""), "job"))
	unlock(t, try(t, clientOf(t, b, ""), "job"))
}

func TestALossOnEitherIsALoss(t *testing.T) {
	for _, lost := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			services := []shared{{memory.NewExpiring()}, {memory.NewExpiring()}}
			pair := pairOf(t, services[0], services[1])
			l := try(t, pair, "job")
			assert.True(t, services[lost].Delete("job"))
			<-l.Done()
			require.ErrorIs(t, l.Err(), locker.ErrLost)
			require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
			synctest.Wait()
			time.Sleep(2 * time.Second)
			for _, s := range services {
				unlock(t, try(t, clientOf(t, s, ""), "job"))
			}
		})
	}
}

func TestWhoHoldsWhere(t *testing.T) {
	a, b := shared{memory.New()}, shared{memory.New()}
	pair, old, young := pairOf(t, a, b), clientOf(t, a, "old-1"), clientOf(t, b, "young-1")
	look := func(name string) string {
		st, err := pair.Inspect(t.Context(), name)
		require.NoError(t, err)
		return fmt.Sprintf("%v %q %q %d", st.Held, st.Label, st.Where, st.Waiters)
	}
	assert.Equal(t, `false "" "" 0`, look("none"))
	first := try(t, pair, "waited for")
	ctx, stop := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for _, c := range []*locker.Client{pairOf(t, a, b), old} { // a client waits behind itself without asking
		waiters.Go(func() {
			_, err := c.Lock(ctx, "waited for")
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	require.Eventually(t, func() bool {
		st, err := pair.Inspect(t.Context(), "waited for")
		return err == nil && slices.Equal(slices.Sorted(slices.Values(st.Waiting)),
			[]string{"old-1 [memory]", "pair [memory memory]"})
	}, 10*time.Second, time.Millisecond, "with which URLs they came")
	stop()
	waiters.Wait()
	unlock(t, first)

	leases := []*locker.Lease{try(t, pair, "of both"), try(t, old, "of old"), try(t, young, "of young"),
		try(t, old, "of two"), try(t, young, "of two")}
	assert.Equal(t, `true "pair" "both" 0`, look("of both"))
	assert.Equal(t, `true "old-1" "memory only" 0`, look("of old"))
	assert.Equal(t, `true "young-1" "memory only; memory is held by old-1" 0`, look("of two"),
		"which is what a step in the middle prevents")
	st, err := old.Inspect(t.Context(), "of both")
	require.NoError(t, err)
	assert.Equal(t, "pair [memory memory]", st.Label, "with one URL one sees that it came with both")

	found := map[string]string{}
	for e, err := range pair.List(t.Context(), "of ") {
		require.NoError(t, err)
		found[e.Name] = e.Where
	}
	assert.Equal(t, map[string]string{"of both": "both", "of old": "memory only", "of young": "memory only",
		"of two": "memory only; memory is held by old-1"}, found)

	findings, err := pair.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, findings, 4)
	assert.Equal(t, `2: "of old" by "old-1", "of two" by "old-1"`, findings[0].Found)
	assert.Equal(t, `2: "of two" by "young-1", "of young" by "young-1"`, findings[1].Found)

	for name, who := range map[string]string{"of both": "pair", "of old": "old-1", "of young": "young-1",
		"of two": "young-1", "none": ""} {
		st, err := pair.Break(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, who, st.Label)
	}
	assert.Equal(t, `true "old-1" "memory only" 0`, look("of two"), "the other one is broken by another call")
	assert.Equal(t, `false "" "" 0`, look("of both"))
	for _, l := range leases {
		_ = l.Unlock(t.Context())
	}
}

// Broken on one service alone, the lock would be free for those with only that URL.
func TestBreakThatOneServiceCannotDo(t *testing.T) {
	a, b := memory.New(), memory.New()
	pair := pairOf(t, a, struct {
		locker.Backend
		locker.Inspector
	}{b, b})
	l := try(t, pair, "job")
	_, err := pair.Break(t.Context(), "job")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	unlock(t, l)
}

// The name that a Backend is asked for has the prefix of the Client in it.
func TestTheLongestNames(t *testing.T) {
	pair, err := bridge.New(memory.New(), memory.New())
	require.NoError(t, err)
	c := locker.New(pair, &locker.Options{Prefix: strings.Repeat("p", locker.MaxPrefixLen)})
	name := strings.Repeat("n", locker.MaxNameLen)
	l := try(t, c, name)
	for do, state := range map[string]func(context.Context, string) (locker.State, error){
		"Inspect": c.Inspect, "Break": c.Break} {
		st, err := state(t.Context(), name)
		require.NoError(t, err, do)
		assert.True(t, st.Held || do == "Inspect", do)
	}
	require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
}

func TestWhatCannotBeAPair(t *testing.T) {
	m := memory.New()
	one, err := bridge.New(m, memory.New())
	require.NoError(t, err)
	for want, pair := range map[string][2]locker.Backend{
		"is a pair itself": {one, m},
		"backends is nil":  {m, nil},
		"none below 20s": {limited{shared{m}, time.Second, 10 * time.Second},
			limited{shared{m}, 20 * time.Second, time.Minute}},
		"no TTL above 10s": {limited{shared{m}, 20 * time.Second, time.Minute},
			limited{shared{m}, time.Second, 10 * time.Second}},
	} {
		_, err := bridge.New(pair[0], pair[1])
		require.ErrorIs(t, err, locker.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
}

type limited struct {
	shared
	min, max time.Duration
}

func (l limited) Guarantees() locker.Guarantees {
	g := l.shared.Guarantees()
	g.MinTTL, g.MaxTTL = l.min, l.max
	return g
}

// owned remembers the owners by which it was asked.
type owned struct {
	shared
	owners []string
}

func (o *owned) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	o.owners = append(o.owners, req.Owner)
	return o.shared.Acquire(ctx, req)
}

// Two URLs of one service would otherwise grant the same lock twice. A request that is
// repeated has to find what it has left (R11).
func TestTheOwnersOfOneRequest(t *testing.T) {
	a, b := &owned{shared: shared{memory.New()}}, &owned{shared: shared{memory.New()}}
	pair, err := bridge.New(a, b)
	require.NoError(t, err)
	owner := strings.Repeat("4", 20) + strings.Repeat("2", 20)
	req := locker.Request{Name: "job", Owner: owner, TTL: ttl, Lost: func() {}}
	for range 2 {
		g, err := pair.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, g.Hold.Release(t.Context()))
	}
	assert.Equal(t, []string{req.Owner, req.Owner}, a.owners)
	assert.Equal(t, b.owners[0], b.owners[1])
	assert.NotEqual(t, a.owners[0], b.owners[0])
	assert.Len(t, b.owners[0], len(req.Owner))
}

// Each lock would wait for itself. The first lock says so, however it is asked for, and
// leaves nothing behind.
func TestTwoURLsOfOneService(t *testing.T) {
	m, q := shared{memory.New()}, polled{memory.New()}
	for kind, same := range map[string]locker.Backend{"queue": m, "polled": q} {
		pair := pairOf(t, same, same)
		for _, lock := range []func() (*locker.Lease, error){
			func() (*locker.Lease, error) { return pair.TryLock(t.Context(), "job") },
			func() (*locker.Lease, error) { return pair.Lock(t.Context(), "job") },
		} {
			_, err := lock()
			require.ErrorIs(t, err, locker.ErrInvalid, kind)
			require.ErrorContains(t, err,
				"memory and memory lead to the same locks: give two services, or two prefixes")
			unlock(t, try(t, clientOf(t, same, ""), "job"))
		}
	}
	_, err := pairOf(t, m, m).Check(t.Context())
	require.ErrorIs(t, err, locker.ErrInvalid)

	for kind, start := range services {
		t.Run(kind, func(t *testing.T) {
			if kind != "file" && kind != "redis" && os.Getenv(allEnv) == "" {
				t.Skip("it starts a server: set " + allEnv + "=1")
			}
			s := start(t)
			c, err := backends.Openers.Open(t.Context(), s.ownURL()+" "+s.ownURL(), nil)
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			_, err = c.TryLock(t.Context(), "job")
			require.ErrorIs(t, err, locker.ErrInvalid)
			require.ErrorContains(t, err, "lead to the same locks")
		})
	}
}
