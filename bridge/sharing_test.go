package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/memory"
)

// noting is a service without a queue for one name: a writer that waits for sharers leaves
// a note there that lasts for a second.
type noting struct {
	polled
	mu          sync.Mutex
	note        string
	until       time.Time
	notes, left int
}

func newNoting() *noting { return &noting{polled: polled{memory.NewExpiring()}} }

func (n *noting) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if rest := time.Until(n.until); req.Shared && rest > 0 {
		return locker.Grant{}, &locker.HeldError{Remaining: rest}
	}
	g, err := n.polled.Acquire(ctx, req)
	st, _ := n.b.Inspect(ctx, req.Name)
	switch {
	case req.Shared:
	case err == nil:
		n.until = time.Time{}
	case errors.Is(err, locker.ErrHeld) && req.Wait && st.Sharers > 0:
		n.note, n.until = req.Owner, time.Now().Add(time.Second)
		n.notes++
		return g, &locker.HeldError{Remaining: st.Remaining, AskWithin: 300 * time.Millisecond,
			Leave: func(context.Context) error {
				n.mu.Lock()
				defer n.mu.Unlock()
				if n.left++; n.note == req.Owner {
					n.until = time.Time{}
				}
				return nil
			}}
	}
	return g, err
}

// mute is a noting that says it would tell, and never does.
type mute struct{ *noting }

func (mute) Notify(context.Context, string, func()) (stop func(), err error) { return func() {}, nil }

var sharedKinds = map[string]func() locker.Backend{
	"queue": func() locker.Backend { return shared{memory.NewExpiring()} },
	"notes": func() locker.Backend { return newNoting() },
}

// In every mixture of programs that a move can have, a writer is alone, and readers are not.
func TestReadersAndWritersOfAMove(t *testing.T) {
	for kind, service := range sharedKinds {
		synctest.Test(t, func(t *testing.T) {
			a, b := service(), service()
			old, pair, second, young := clientOf(t, a, "old"), pairOf(t, a, b), pairOf(t, a, b), clientOf(t, b, "young")
			for _, fleet := range [][]*locker.Client{{old, pair, second}, {pair, second, young}} {
				for i, holder := range fleet {
					for j, other := range fleet {
						what := fmt.Sprintf("%s: %d before %d", kind, i, j)
						reader, err := holder.TryLock(t.Context(), "job", locker.Shared())
						require.NoError(t, err, what)
						beside, err := other.TryLock(t.Context(), "job", locker.Shared())
						require.NoError(t, err, what)
						for _, l := range []*locker.Lease{beside, reader} {
							_, err = other.TryLock(t.Context(), "job")
							require.ErrorIs(t, err, locker.ErrHeld, what)
							_, err = fleet[(j+1)%3].TryLock(t.Context(), "job")
							require.ErrorIs(t, err, locker.ErrHeld, what)
							unlock(t, l)
						}
						writer := try(t, holder, "job")
						_, err = other.TryLock(t.Context(), "job", locker.Shared())
						require.ErrorIs(t, err, locker.ErrHeld, what)
						_, err = other.TryLock(t.Context(), "job")
						require.ErrorIs(t, err, locker.ErrHeld, what)
						unlock(t, writer)
					}
				}
			}
		})
	}
}

// A writer with both URLs waits for a reader with one of them, whom new readers do not
// follow. When it leaves, they do, at once.
func TestAWriterThatWaitsKeepsReadersOutOfEitherService(t *testing.T) {
	for kind, service := range map[string]func() locker.Backend{
		"queue": sharedKinds["queue"],
		"notes": func() locker.Backend { return mute{newNoting()} },
	} {
		for at := range 2 {
			t.Run(fmt.Sprintf("%s, service %d", kind, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on := []locker.Backend{service(), service()}
					pair, one, other := pairOf(t, on[0], on[1]), clientOf(t, on[at], "one"), clientOf(t, on[at], "other")
					read := func() error {
						l, err := other.TryLock(t.Context(), "job", locker.Shared())
						if err == nil {
							unlock(t, l)
						}
						return err
					}
					for _, leaves := range []bool{true, false} {
						reader, err := one.TryLock(t.Context(), "job", locker.Shared())
						require.NoError(t, err)
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						in := make(chan *locker.Lease, 1)
						go func() {
							l, err := pair.Lock(ctx, "job")
							assert.Equal(t, leaves, errors.Is(err, context.Canceled), err)
							in <- l
						}()
						synctest.Wait()
						for range 400 {
							require.ErrorIs(t, read(), locker.ErrHeld)
							time.Sleep(10 * time.Millisecond)
						}
						if leaves {
							cancel()
							assert.Nil(t, <-in)
							time.Sleep(time.Millisecond)
							require.NoError(t, read())
							unlock(t, reader)
							unlock(t, try(t, pair, "job"))
							continue
						}
						unlock(t, reader)
						unlock(t, <-in)
						require.NoError(t, read())
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

// While readers of all kinds come and go, a writer waits for two of their holds at most.
func TestAWriterGetsInAmongReadersOfAMove(t *testing.T) {
	const hold = 100 * time.Millisecond
	for kind, service := range sharedKinds {
		bound := 2 * hold
		if kind == "notes" {
			bound += 300 * time.Millisecond // nobody tells it that the last reader has left
		}
		for at := range 2 {
			t.Run(fmt.Sprintf("%s, service %d", kind, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					on := []locker.Backend{service(), service()}
					ctx, cancel := context.WithCancel(t.Context())
					var all sync.WaitGroup
					var reads atomic.Int64
					for i := range 50 {
						c := clientOf(t, on[at], "one")
						if i%2 == 0 {
							c = pairOf(t, on[0], on[1])
						}
						all.Go(func() {
							for time.Sleep(rand.N(hold)); ctx.Err() == nil; reads.Add(1) {
								l, err := c.Lock(t.Context(), "job", locker.Shared())
								if !assert.NoError(t, err) {
									return
								}
								time.Sleep(rand.N(hold))
								unlock(t, l)
							}
						})
					}
					writer := pairOf(t, on[0], on[1])
					var longest time.Duration
					for range 5 {
						time.Sleep(3 * hold)
						began := time.Now()
						l, err := writer.Lock(t.Context(), "job")
						require.NoError(t, err)
						longest = max(longest, time.Since(began))
						unlock(t, l)
					}
					cancel()
					all.Wait()
					t.Logf("%d reads, a writer waited for %v at most", reads.Load(), longest)
					assert.Greater(t, reads.Load(), int64(400))
					assert.Less(t, longest, bound)
				})
			})
		}
	}
}

func TestAReaderThatIsLostOnEitherServiceIsLost(t *testing.T) {
	for at := range 2 {
		synctest.Test(t, func(t *testing.T) {
			on := []shared{{memory.NewExpiring()}, {memory.NewExpiring()}}
			pair := pairOf(t, on[0], on[1])
			l, err := pair.TryLock(t.Context(), "job", locker.Shared())
			require.NoError(t, err)
			token, ok := l.Token()
			assert.False(t, ok, token)
			time.Sleep(2 * ttl)
			require.NoError(t, l.Err())
			require.True(t, on[at].Delete("job"))
			synctest.Wait()
			require.ErrorIs(t, l.Err(), locker.ErrLost)
			time.Sleep(ttl)
			unlock(t, try(t, pair, "job"))
		})
	}
}

func TestOperatorsSeeReadersOfAMove(t *testing.T) {
	a, b := shared{memory.New()}, shared{memory.New()}
	client := func(label string, of locker.Backend) *locker.Client {
		if of == nil {
			var err error
			of, err = bridge.New(a, b)
			require.NoError(t, err)
		}
		c := locker.New(of, &locker.Options{Label: label})
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	pair := client("operator", nil)
	read := func(c *locker.Client) *locker.Lease {
		l, err := c.TryLock(t.Context(), "job", locker.Shared())
		require.NoError(t, err)
		return l
	}
	state := func() locker.State {
		st, err := pair.Inspect(t.Context(), "job")
		require.NoError(t, err)
		slices.Sort(st.Sharing)
		return st
	}
	old := read(client("web-7", a))
	st := state()
	assert.Equal(t, "memory only", st.Where)
	assert.Equal(t, 1, st.Sharers)
	assert.NotZero(t, st.Token)

	first, second := read(client("web-1", nil)), read(client("web-2", nil))
	unlock(t, old)
	old = read(client("web-7", a))
	st = state()
	assert.Equal(t, "both", st.Where)
	assert.Equal(t, 3, st.Sharers)
	assert.Equal(t, []string{"web-1", "web-2", "web-7 [memory]"}, st.Sharing)
	assert.Zero(t, st.Token)
	for listed, err := range pair.List(t.Context(), "") {
		require.NoError(t, err)
		slices.Sort(listed.Sharing)
		assert.Equal(t, st, listed.State)
	}
	found, err := pair.Check(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(found, func(f locker.Finding) bool { return f.What == "names held on memory only" })
	assert.Equal(t, `1: "job" by "web-7"`, found[i].Found)

	const waits = "memory only; memory is held by web-3, who waits"
	// A writer that has the first service waits for a reader of the second one.
	unlock(t, old)
	unlock(t, first)
	unlock(t, second)
	young := read(client("web-8", b))
	in := make(chan *locker.Lease)
	go func() {
		l, err := client("web-3", nil).Lock(t.Context(), "job")
		assert.NoError(t, err)
		in <- l
	}()
	require.Eventually(t, func() bool { return state().Where == waits }, soon, time.Millisecond)
	st, err = pair.Break(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, 1, st.Sharers)
	assert.Equal(t, []string{"web-8 [memory]"}, st.Sharing)
	writer := <-in
	require.NoError(t, writer.Renew(t.Context()))
	require.ErrorIs(t, young.Err(), locker.ErrLost)
	unlock(t, writer)

	// A reader that has the first service waits for a writer of the second one.
	writer = try(t, client("web-8", b), "job")
	go func() {
		l, err := client("web-3", nil).Lock(t.Context(), "job", locker.Shared())
		assert.NoError(t, err)
		in <- l
	}()
	require.Eventually(t, func() bool { return state().Where == waits }, soon, time.Millisecond)
	assert.Zero(t, state().Sharers)
	assert.Empty(t, state().Sharing)
	unlock(t, writer)
	unlock(t, <-in)

	first, second = read(client("web-1", nil)), read(client("web-2", nil))
	st, err = pair.Break(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, 2, st.Sharers)
	for _, l := range []*locker.Lease{first, second} {
		require.ErrorIs(t, l.Err(), locker.ErrLost)
	}
	assert.False(t, state().Held)
}

func TestReadersFindThatBothAreOneService(t *testing.T) {
	m := memory.New()
	pair := pairOf(t, shared{m}, shared{m})
	_, err := pair.TryLock(t.Context(), "job", locker.Shared())
	require.ErrorIs(t, err, locker.ErrInvalid)
	unlock(t, try(t, clientOf(t, shared{m}, ""), "job"))
}

func TestTheSecondServiceMayHaveAsManyReadersAsThereCanBe(t *testing.T) {
	a, b := shared{memory.New()}, shared{memory.New()}
	pair := pairOf(t, a, b)
	for i := range locker.MaxSharers {
		_, err := b.Acquire(t.Context(), locker.Request{Name: "job", Owner: strconv.Itoa(i), TTL: ttl, Shared: true})
		require.NoError(t, err)
	}
	_, err := pair.Lock(t.Context(), "job", locker.Shared())
	require.ErrorIs(t, err, locker.ErrRefused)
	require.ErrorContains(t, err, "4096 share")
	unlock(t, try(t, clientOf(t, a, ""), "job"))
}

// alone is a service on which every lock is held alone.
type alone struct{ shared }

func (a alone) Guarantees() locker.Guarantees {
	g := a.shared.Guarantees()
	g.Shared = locker.SharingNone
	return g
}

func TestBothHaveToHaveSharedLocks(t *testing.T) {
	m := shared{memory.New()}
	assert.Equal(t, locker.SharingTokenless, pairOf(t, m, m).Guarantees().Shared)
	for _, pair := range []*locker.Client{pairOf(t, m, alone{m}), pairOf(t, alone{m}, m)} {
		assert.Equal(t, locker.SharingNone, pair.Guarantees().Shared)
		_, err := pair.Lock(t.Context(), "job", locker.Shared())
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// Programs of a fleet read and write while it moves there and back. Nobody writes beside
// anybody, and all get their turns.
func TestFleetOfReadersAndWriters(t *testing.T) {
	for kind, service := range sharedKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := service(), service()
				readAndWrite(t, 5*time.Second, func() *locker.Client { return clientOf(t, a, "a") },
					func() *locker.Client { return pairOf(t, a, b) }, func() *locker.Client { return clientOf(t, b, "b") })
			})
		})
	}
}

func TestProveFleetOfReadersAndWriters(t *testing.T) {
	lab.NeedProve(t)
	for _, pair := range [][2]string{{"redis", "etcd"}, {"redis", "postgres"}, {"zookeeper", "redis"}} {
		t.Run(pair[0]+" "+pair[1], func(t *testing.T) {
			first, second := services[pair[0]](t), services[pair[1]](t)
			ttl := max(fleetTTL, first.session("fleet"), second.session("fleet"))
			a, b := fleetURL(first, ttl), fleetURL(second, ttl)
			opens := func(url string) func() *locker.Client {
				return func() *locker.Client {
					c, err := backends.Openers.Open(t.Context(), url, nil)
					require.NoError(t, err)
					return c
				}
			}
			readAndWrite(t, 5*time.Second, opens(a), opens(a+" "+b), opens(b))
		})
	}
}

// readAndWrite moves a fleet of nine, a third of them writers, to the second service and
// back, one after the other. Each has the time d for it.
func readAndWrite(t *testing.T, d time.Duration, urls ...func() *locker.Client) {
	const members = 9
	var readers, writers, most atomic.Int32
	var turns [members]atomic.Int32
	var steps [members]chan func() *locker.Client
	var all sync.WaitGroup
	for i := range members {
		steps[i] = make(chan func() *locker.Client)
		all.Go(func() {
			var c *locker.Client
			for {
				select {
				case open := <-steps[i]:
					if c != nil {
						assert.NoError(t, c.Close())
					}
					if open == nil {
						return
					}
					c = open()
				default:
				}
				if c == nil {
					c = (<-steps[i])()
				}
				ctx, cancel := context.WithTimeout(context.Background(), stuck)
				if i%3 == 0 {
					l, err := c.Lock(ctx, "job")
					if assert.NoError(t, err) {
						assert.EqualValues(t, 1, writers.Add(1))
						assert.Zero(t, readers.Load(), "beside a writer")
						time.Sleep(rand.N(2 * time.Millisecond))
						assert.Zero(t, readers.Load(), "beside a writer")
						writers.Add(-1)
						assert.NoError(t, l.Unlock(ctx))
					}
					time.Sleep(rand.N(20 * time.Millisecond))
				} else {
					l, err := c.Lock(ctx, "job", locker.Shared())
					if assert.NoError(t, err) {
						most.Store(max(most.Load(), readers.Add(1)))
						assert.Zero(t, writers.Load(), "beside a reader")
						time.Sleep(rand.N(5 * time.Millisecond))
						assert.Zero(t, writers.Load(), "beside a reader")
						readers.Add(-1)
						assert.NoError(t, l.Unlock(ctx))
					}
					time.Sleep(rand.N(5 * time.Millisecond))
				}
				cancel()
				turns[i].Add(1)
			}
		})
	}
	for _, open := range []func() *locker.Client{urls[0], urls[1], urls[2], urls[1], urls[0], nil} {
		for _, i := range rand.Perm(members) {
			time.Sleep(d / 4 / members / 2)
			steps[i] <- open
		}
		time.Sleep(d / 4 / 2)
	}
	all.Wait()
	var counted [members]int32
	for i := range turns {
		counted[i] = turns[i].Load()
		assert.Greater(t, counted[i], int32(20), "turns of %d", i)
	}
	t.Logf("turns %v (every third writes), at most %d readers at once", counted, most.Load())
	assert.Greater(t, most.Load(), int32(1))
}
