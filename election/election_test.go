package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/memory"
)

const (
	ttl    = 30 * time.Second
	margin = ttl / 5
)

// remote is the service of one client, which can be cut off from it: a request then
// fails, or hangs.
type remote struct {
	*memory.Backend
	cut, hang atomic.Bool
	lose      atomic.Int32 // requests that are not answered
}

func (r *remote) ask(ctx context.Context) error {
	if r.lose.Add(-1) >= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	for r.cut.Load() {
		if !r.hang.Load() {
			return fmt.Errorf("cable cut: %w", locker.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (r *remote) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := r.ask(ctx); err != nil {
		return locker.Grant{}, err
	}
	g, err := r.Backend.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = remoteHold{g.Hold, r}
	}
	return g, err
}

type remoteHold struct {
	locker.Hold
	r *remote
}

func (h remoteHold) Renew(ctx context.Context) (v locker.Validity, err error) {
	if err = h.r.ask(ctx); err == nil {
		v, err = h.Hold.Renew(ctx)
	}
	return v, err
}

func (h remoteHold) Release(ctx context.Context) error { return h.end(ctx, h.Hold.Release) }

func (h remoteHold) Undo(ctx context.Context) error { return h.end(ctx, h.Hold.Undo) }

func (h remoteHold) end(ctx context.Context, how func(context.Context) error) error {
	if err := h.r.ask(ctx); err != nil {
		return err
	}
	return how(ctx)
}

// world is a service, and what its candidates do until the test ends.
type world struct {
	t       *testing.T
	ctx     context.Context
	locks   *memory.Backend
	running sync.WaitGroup
	leading atomic.Int32 // contexts of lead that have not ended
}

func inAWorld(t *testing.T, locks func() *memory.Backend, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, locks: locks()}
		defer w.running.Wait()
		var cancel func()
		w.ctx, cancel = context.WithCancel(context.Background())
		defer cancel()
		test(t, w)
	})
}

func (w *world) client(b locker.Backend) *locker.Client {
	c := locker.New(b, &locker.Options{Label: "client"})
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// candidate is one process that stands for election until the test ends, or stop.
type candidate struct {
	*election.Candidate
	remote *remote
	stop   context.CancelFunc
	terms  []term // of which the last may go on
	mu     sync.Mutex
	err    error // of Run
}

type term struct {
	number     uint64
	began, end time.Time // of the context
	cause      error
}

func (c *candidate) term(i int) term { return c.all()[i] }

func (c *candidate) count() int { return len(c.all()) }

func (c *candidate) all() []term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.terms)
}

// stand has a candidate stand that takes so long to return from lead.
func (w *world) stand(address string, slow time.Duration, opts election.Options) *candidate {
	opts.Address = address
	r := &remote{Backend: w.locks}
	c := &candidate{remote: r, Candidate: election.New(w.client(r), "boss", &opts)}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(w.ctx)
	w.running.Go(func() {
		c.err = c.Run(ctx, func(ctx context.Context, number uint64) error {
			assert.EqualValues(w.t, 1, w.leading.Add(1), "%s leads beside another", address)
			assert.True(w.t, c.IsLeader())
			c.mu.Lock()
			c.terms = append(c.terms, term{number: number, began: time.Now()})
			this := &c.terms[len(c.terms)-1]
			c.mu.Unlock()
			<-ctx.Done()
			w.leading.Add(-1)
			assert.False(w.t, c.IsLeader())
			c.mu.Lock()
			this.end, this.cause = time.Now(), context.Cause(ctx)
			c.mu.Unlock()
			time.Sleep(slow)
			return errors.New("not told: the term was over")
		})
	})
	synctest.Wait()
	return c
}

func (w *world) leader() *election.Leader {
	w.t.Helper()
	synctest.Wait()
	l, err := election.Find(w.t.Context(), w.client(w.locks), "boss")
	require.NoError(w.t, err)
	return l
}

func TestOneLeadsAndResigns(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		assert.Nil(t, w.leader())
		a := w.stand("10.0.0.1:80", 2*time.Second, election.Options{})
		b := w.stand("", 0, election.Options{})
		time.Sleep(10 * ttl)
		assert.Equal(t, &election.Leader{Address: "10.0.0.1:80", Term: a.term(0).number}, w.leader())
		assert.True(t, a.IsLeader())
		assert.False(t, b.IsLeader())

		a.stop()
		synctest.Wait()
		assert.Zero(t, b.count(), "lead has not returned, though its context has ended")
		assert.Equal(t, "10.0.0.1:80", w.leader().Address)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, a.err, context.Canceled)
		assert.Equal(t, "client", w.leader().Address)
		assert.Zero(t, b.term(0).began.Sub(a.term(0).end)-2*time.Second, "at once when lead has returned")
		assert.Greater(t, b.term(0).number, a.term(0).number)
	})
}

// A leader that is cut off ends in time, whether requests fail or hang; and it stands
// again.
func TestALeaderThatIsCutOff(t *testing.T) {
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprintf("hang=%v", hang), func(t *testing.T) {
			inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
				a := w.stand("a", margin, election.Options{})
				b := w.stand("b", 0, election.Options{})
				time.Sleep(5*time.Minute + 123*time.Millisecond)
				a.remote.hang.Store(hang)
				a.remote.cut.Store(true)
				cut := time.Now()
				time.Sleep(ttl + time.Second)
				ended, began := a.term(0).end, b.term(0).began
				require.ErrorIs(t, a.term(0).cause, locker.ErrLost)
				assert.GreaterOrEqual(t, ended.Sub(cut), ttl*2/3-margin-time.Second, "it goes on as long as it may")
				assert.GreaterOrEqual(t, began.Sub(ended), margin, "it has time to stop")
				assert.Less(t, began.Sub(ended), margin+time.Second)

				a.remote.cut.Store(false)
				time.Sleep(time.Minute)
				b.stop()
				time.Sleep(time.Minute)
				assert.Equal(t, 2, a.count(), "it stands again")
				assert.True(t, a.IsLeader())
			})
		})
	}
}

func TestALostAnswerEndsNoTerm(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		a := w.stand("a", 0, election.Options{})
		for range 20 {
			a.remote.lose.Store(1)
			time.Sleep(2 * ttl)
		}
		assert.Equal(t, 1, a.count())
		assert.True(t, a.IsLeader())
	})
}

// An outage that ends in the margin: the term is over, but nobody is let in until
// lead has returned.
func TestTheLockIsKeptWhileLeadReturns(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		a := w.stand("a", ttl-time.Second, election.Options{})
		b := w.stand("b", 0, election.Options{})
		time.Sleep(time.Minute)
		a.remote.cut.Store(true)
		for a.term(0).end.IsZero() {
			time.Sleep(time.Second)
		}
		a.remote.cut.Store(false)
		time.Sleep(ttl + time.Second)
		synctest.Wait()
		assert.GreaterOrEqual(t, b.term(0).began.Sub(a.term(0).end), ttl-time.Second)
	})
}

func TestLeadThatDoesNotReturn(t *testing.T) {
	const grace, stuck = 10 * time.Second, time.Hour
	for name, test := range map[string]struct {
		locks    func() *memory.Backend
		from, to time.Duration
	}{
		"with a deadline":    {memory.NewExpiring, grace + ttl/2, grace + ttl},
		"without a deadline": {memory.New, grace, grace},
	} {
		t.Run(name, func(t *testing.T) {
			inAWorld(t, test.locks, func(t *testing.T, w *world) {
				a := w.stand("a", stuck, election.Options{Grace: grace})
				b := w.stand("b", 0, election.Options{})
				time.Sleep(time.Minute)
				require.True(t, a.StepDown(0))
				time.Sleep(2 * time.Minute)
				after := b.term(0).began.Sub(a.term(0).end)
				assert.GreaterOrEqual(t, after, test.from)
				assert.LessOrEqual(t, after, test.to)
				b.stop()
				time.Sleep(10 * time.Minute)
				assert.Equal(t, 1, a.count(), "it does not stand while lead runs")
				time.Sleep(stuck)
				assert.Equal(t, 2, a.count(), "it stands again when lead has returned")
			})
		})
	}
}

func TestALockThatIsTakenAway(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		a := w.stand("a", 0, election.Options{})
		time.Sleep(2 * time.Minute)
		w.locks.Delete("boss")
		synctest.Wait()
		require.ErrorIs(t, a.term(0).cause, locker.ErrLost)
		time.Sleep(time.Second)
		assert.Greater(t, a.term(1).number, a.term(0).number)
	})
}

// Somebody takes the lock away as soon as a candidate has it.
func TestQuickTermsAreSlowedDown(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		a := w.stand("a", 0, election.Options{})
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			w.locks.Delete("boss")
			time.Sleep(10 * time.Millisecond)
		}
		assert.InDelta(t, 60, a.count(), 20, "about every 10 s in the end")
		time.Sleep(2 * time.Minute)
		n := a.count()
		w.locks.Delete("boss")
		time.Sleep(time.Second)
		assert.Equal(t, n+1, a.count(), "after a steady term it stands again soon")
	})
}

func TestStepDown(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		a := w.stand("a", time.Second, election.Options{})
		time.Sleep(2 * time.Minute)
		require.True(t, a.StepDown(time.Hour))
		assert.False(t, a.IsLeader(), "at once")
		assert.False(t, a.StepDown(0), "only once")
		time.Sleep(59 * time.Minute)
		require.ErrorIs(t, a.term(0).cause, election.ErrSteppedDown)
		assert.Nil(t, w.leader(), "nobody else stands")
		b := w.stand("b", 0, election.Options{})
		assert.True(t, b.IsLeader())
		assert.False(t, a.StepDown(0))
		time.Sleep(2 * time.Minute)
		require.True(t, b.StepDown(time.Minute))
		time.Sleep(time.Second)
		assert.True(t, a.IsLeader())
		time.Sleep(2 * time.Minute)
		assert.True(t, a.IsLeader(), "b stands behind it")
	})
}

func TestRunEndsWithLead(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		c := election.New(w.client(w.locks), "boss", nil)
		mine := errors.New("mine")
		for _, want := range []error{nil, mine} {
			require.Equal(t, want, c.Run(t.Context(), func(context.Context, uint64) error {
				require.ErrorIs(t, c.Run(t.Context(), nil), locker.ErrInvalid, "twice")
				return want
			}))
			assert.Nil(t, w.leader())
		}
		assert.PanicsWithValue(t, mine, func() {
			_ = c.Run(t.Context(), func(context.Context, uint64) error { panic(mine) })
		})
		assert.Nil(t, w.leader(), "nobody leads after a panic")
		assert.False(t, c.IsLeader())
		require.NoError(t, c.Run(t.Context(), func(context.Context, uint64) error { return nil }))
	})
}

// odd is a Locker of somebody else: what it returns, the test has made.
type odd struct {
	*locker.Client
	lock func() (*locker.Lease, error)
}

func (o odd) Lock(context.Context, string, ...locker.Option) (*locker.Lease, error) { return o.lock() }

// The lease is over, or the caller has left, at the moment of the grant: lead is not
// called, and nothing is left.
func TestNobodyLeadsWithALeaseThatIsOver(t *testing.T) {
	for name, spoil := range map[string]func(w *world, lease *locker.Lease, cancel func()){
		"taken away":    func(w *world, _ *locker.Lease, _ func()) { w.locks.Delete("boss") },
		"unlocked":      func(_ *world, l *locker.Lease, _ func()) { _ = l.Unlock(context.Background()) },
		"expired":       func(*world, *locker.Lease, func()) { time.Sleep(time.Hour) },
		"in the margin": func(*world, *locker.Lease, func()) { time.Sleep(ttl - margin) },
		"cancelled":     func(_ *world, _ *locker.Lease, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				c := w.client(w.locks)
				first := true
				l := odd{c, func() (*locker.Lease, error) {
					if !first {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					first = false
					lease, err := c.Lock(ctx, "boss", locker.NoRenew())
					assert.NoError(t, err)
					spoil(w, lease, cancel)
					return lease, nil
				}}
				err := election.New(l, "boss", nil).Run(ctx, func(context.Context, uint64) error {
					t.Error("it leads")
					return nil
				})
				require.ErrorIs(t, err, ctx.Err())
				assert.Nil(t, w.leader())
			})
		})
	}
}

func TestAnOutageEndsNothing(t *testing.T) {
	inAWorld(t, memory.NewExpiring, func(t *testing.T, w *world) {
		w.locks.Fail(fmt.Errorf("restarting: %w", locker.ErrUnavailable))
		a := w.stand("a", 0, election.Options{})
		time.Sleep(time.Hour)
		w.locks.Fail(nil)
		time.Sleep(time.Minute)
		assert.True(t, a.IsLeader())
		a.stop()

		refused := errors.New("wrong password")
		w.locks.Fail(refused)
		b := w.stand("b", 0, election.Options{})
		require.ErrorIs(t, b.err, refused)
		w.locks.Fail(nil)
	})
}

func TestOptionsThatDoNotFit(t *testing.T) {
	c := locker.New(memory.New(), nil)
	defer func() { assert.NoError(t, c.Close()) }()
	for _, opts := range []election.Options{
		{Margin: 16 * time.Second}, {TTL: time.Second, Margin: time.Second}, {Margin: -1}, {Grace: -1}, {TTL: -1},
		{TTL: time.Microsecond}, {Address: "a\nb"},
	} {
		err := election.New(c, "boss", &opts).Run(t.Context(), nil)
		require.ErrorIs(t, err, locker.ErrInvalid, "%+v", opts)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, election.New(c, "boss", nil).Run(over, nil), context.Canceled)
}
