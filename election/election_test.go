package election_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

const (
	ttl    = 30 * time.Second
	margin = ttl / 5
)

// remote is the service of one client, which can be cut off from it: a request then
// fails, or hangs.
type remote struct {
	*memlock.Backend
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

func (r *remote) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := r.ask(ctx); err != nil {
		return driver.Grant{}, err
	}
	g, err := r.Backend.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = remoteHold{g.Hold, r}
	}
	return g, err
}

type remoteHold struct {
	driver.Hold
	r *remote
}

func (h remoteHold) Renew(ctx context.Context) (v driver.Validity, err error) {
	if err = h.r.ask(ctx); err == nil {
		v, err = h.Hold.Renew(ctx)
	}
	return v, err
}

func (h remoteHold) Release(ctx context.Context, keep time.Duration) error {
	return h.end(ctx, func(ctx context.Context) error { return h.Hold.Release(ctx, keep) })
}

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
	locks   *memlock.Backend
	running sync.WaitGroup
	leading atomic.Int32 // contexts of lead that have not ended
	last    atomic.Uint64
}

func inAWorld(t *testing.T, expiring bool, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, locks: memlock.New(expiring)}
		defer w.running.Wait()
		var cancel func()
		w.ctx, cancel = context.WithCancel(context.Background())
		defer cancel()
		test(t, w)
	})
}

func (w *world) client(b driver.Backend) *locker.Client {
	c := locktest.Must(locker.New(b, &locker.Options{Label: "client"}))
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// candidate is one process that stands for election until the test ends, or stop.
type candidate struct {
	*election.Candidate
	remote  *remote
	stop    context.CancelFunc
	stopped atomic.Bool
	mu      sync.Mutex
	terms   []term // of which the last may go on
	err     error  // of Run
}

type term struct {
	number     uint64
	began, end time.Time // of the context
	cause      error
}

func (c *candidate) all() []term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.terms)
}

func (c *candidate) last(t *testing.T, step string) term {
	terms := c.all()
	require.NotEmpty(t, terms, step)
	return terms[len(terms)-1]
}

// stand has a candidate stand that takes so long to return from lead.
func (w *world) stand(address string, slow time.Duration, opts election.Options) *candidate {
	opts.Address = address
	r := &remote{Backend: w.locks}
	c := &candidate{remote: r, Candidate: election.New(w.client(r), "boss", &opts)}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(w.ctx)
	w.running.Go(func() {
		c.err = c.Run(ctx, func(ctx context.Context) error {
			number, leads := election.FromContext(ctx, "boss")
			assert.True(w.t, leads)
			assert.EqualValues(w.t, 1, w.leading.Add(1), "%s leads beside another", address)
			assert.Greater(w.t, number, w.last.Swap(number))
			assert.True(w.t, c.IsLeader())
			this := term{number: number, began: time.Now()}
			c.mu.Lock()
			c.terms = append(c.terms, this)
			c.mu.Unlock()
			<-ctx.Done()
			w.leading.Add(-1)
			assert.False(w.t, c.IsLeader())
			this.end, this.cause = time.Now(), context.Cause(ctx)
			c.mu.Lock()
			c.terms[len(c.terms)-1] = this
			c.mu.Unlock()
			time.Sleep(slow)
			if c.stopped.Load() {
				return this.cause
			}
			return errors.New("not told: the term was over")
		})
	})
	synctest.Wait()
	return c
}

func (w *world) leader() locker.State {
	w.t.Helper()
	synctest.Wait()
	st, err := w.client(w.locks).Inspect(w.t.Context(), "boss")
	require.NoError(w.t, err)
	return st
}

// The errors that histories name.
var named = map[string]error{
	"nil": nil, "lost": locker.ErrLost, "stepped-down": election.ErrSteppedDown, "canceled": context.Canceled,
	"refused": errors.New("wrong password"), "unavailable": fmt.Errorf("restarting: %w", locker.ErrUnavailable),
}

// play plays a history: a time that passes, something that happens, or something that has to be true.
func (w *world) play(history string) {
	all := map[string]*candidate{}
	var cut, ended, began time.Time
	for step := range strings.SplitSeq(history, ", ") {
		word := append(strings.Fields(step), "", "", "")
		c, number := all[word[0]], func(i int) int { return must(strconv.Atoi(word[i])) }
		within := func(took time.Duration) {
			w.t.Helper()
			assert.GreaterOrEqual(w.t, took, must(time.ParseDuration(word[1])), step)
			assert.LessOrEqual(w.t, took, must(time.ParseDuration(word[2])), step)
		}
		if pause, err := time.ParseDuration(word[0]); err == nil {
			time.Sleep(pause)
			continue
		}
		synctest.Wait()
		switch word[0] + " " + word[1] {
		case word[0] + " stands": // for so long after the end of its context lead does not return
			slow, _ := time.ParseDuration(word[2])
			grace, _ := time.ParseDuration(word[3])
			all[word[0]] = w.stand(strings.TrimPrefix(word[0], "client"), slow, election.Options{Grace: grace})
		case word[0] + " stops":
			c.stopped.Store(true)
			c.stop()
		case word[0] + " cut", word[0] + " hangs", word[0] + " healed":
			cut = time.Now()
			c.remote.hang.Store(word[1] == "hangs")
			c.remote.cut.Store(word[1] != "healed")
		case word[0] + " misses": // the next answer
			c.remote.lose.Store(1)
		case "boss taken":
			w.locks.Lose("boss")
		case "service is":
			w.locks.Fail(named[word[2]])
		case word[0] + " steps": // down, for so long
			assert.True(w.t, c.StepDown(must(time.ParseDuration(word[3]))), step)
			assert.False(w.t, c.IsLeader(), step)
			assert.False(w.t, c.StepDown(0), "only once")
		case "nobody leads":
			assert.False(w.t, w.leader().Held, step)
		case word[0] + " leads":
			last := c.last(w.t, step)
			assert.Equal(w.t, []any{word[0], last.number}, []any{w.leader().Label, w.leader().Token}, step)
			assert.True(w.t, c.IsLeader(), step)
			began = last.began
		case word[0] + " follows":
			assert.False(w.t, c.IsLeader(), step)
			assert.False(w.t, c.StepDown(0), step)
		case word[0] + " named": // by the service, whether it leads or not
			assert.Equal(w.t, word[0], w.leader().Label)
		case word[0] + " terms":
			assert.Len(w.t, c.all(), number(2), step)
		case word[0] + " ends": // now, or soon
			for tries := 0; tries < 60 && c.last(w.t, step).end.IsZero(); tries++ {
				time.Sleep(time.Second)
			}
			last := c.last(w.t, step)
			require.ErrorIs(w.t, last.cause, named[word[2]], step)
			ended = last.end
		case word[0] + " returns":
			require.ErrorIs(w.t, c.err, named[word[2]], step)
		case "after-cut " + word[1]: // the last that ended
			within(ended.Sub(cut))
		case "between " + word[1]: // the end of one and the begin of the next
			within(began.Sub(ended))
		default:
			w.t.Fatal("no step: " + step)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// In these, the TTL is 30 s, and the margin 6 s.
func TestHistories(t *testing.T) {
	for name, history := range map[string]string{
		"one leads and resigns": "nobody leads, a stands 2s, client stands, 5m, a leads, client follows, a stops, a ends canceled, " +
			"client terms 0, a named, 2s, a returns nil, client leads, between 2s 2s",
		"cut off": "a stands 6s, b stands, 5m0.123s, a cut, 31s, a ends lost, after-cut 13s 24s, b leads, between 6s 7s, " +
			"a healed, 1m, b stops, 1m, a terms 2, a leads",
		"requests hang": "a stands 6s, b stands, 5m0.123s, a hangs, 31s, a ends lost, after-cut 13s 24s, b leads, between 6s 7s, " +
			"a healed, 1m, b stops, 1m, a terms 2, a leads",
		"answers are lost": "a stands" + strings.Repeat(", a misses, 1m", 20) + ", a terms 1, a leads",
		// The outage ends in the margin: nobody is let in until lead has returned.
		"kept while lead returns": "a stands 29s, b stands, 1m, a cut, a ends lost, a healed, 31s, b leads, between 29s 31s",
		"lead does not return": "a stands 1h 10s, b stands, 1m, a steps down 0s, a ends stepped-down, 2m, b leads, between 25s 40s, " +
			"b stops, 10m, a terms 1, 1h, a terms 2",
		"lead does not return, no deadline": "a stands 1h 10s, b stands, 1m, a steps down 0s, a ends stepped-down, 2m, b leads, " +
			"between 10s 10s, b stops, 10m, a terms 1, 1h, a terms 2",
		"taken away": "a stands, 2m, boss taken, a ends lost, 1s, a terms 2, a leads",
		"steps down": "a stands 1s, 2m, a steps down 1h, 59m, a ends stepped-down, nobody leads, b stands, b leads, a follows, 2m, " +
			"b steps down 1m, 1s, a leads, 2m, a leads",
		"outage": "service is unavailable, a stands, 1h, service is up, 1m, a leads, a stops, service is refused, b stands, " +
			"b returns refused, service is up",
	} {
		t.Run(name, func(t *testing.T) {
			inAWorld(t, !strings.Contains(name, "no deadline"), func(_ *testing.T, w *world) { w.play(history) })
		})
	}
}

// Somebody takes the lock away as soon as a candidate has it.
func TestQuickTermsAreSlowedDown(t *testing.T) {
	inAWorld(t, true, func(t *testing.T, w *world) {
		a := w.stand("a", 0, election.Options{})
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			w.locks.Lose("boss")
			time.Sleep(10 * time.Millisecond)
		}
		assert.InDelta(t, 60, len(a.all()), 20, "about every 10 s in the end")
		time.Sleep(2 * time.Minute)
		n := len(a.all())
		w.locks.Lose("boss")
		time.Sleep(time.Second)
		assert.Equal(t, n+1, len(a.all()), "after a steady term it stands again soon")
	})
}

func TestRunEndsWithLead(t *testing.T) {
	inAWorld(t, true, func(t *testing.T, w *world) {
		c := election.New(w.client(w.locks), "boss", nil)
		mine := errors.New("mine")
		for _, want := range []error{nil, mine} {
			require.Equal(t, want, c.Run(t.Context(), func(context.Context) error {
				require.ErrorIs(t, c.Run(t.Context(), nil), locker.ErrInvalid, "twice")
				return want
			}))
			assert.False(t, w.leader().Held)
		}
		assert.PanicsWithValue(t, mine, func() {
			_ = c.Run(t.Context(), func(context.Context) error { panic(mine) })
		})
		assert.False(t, w.leader().Held, "nobody leads after a panic")
		assert.False(t, c.IsLeader())
		require.NoError(t, c.Run(t.Context(), func(context.Context) error { return nil }))
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
		"taken away":    func(w *world, _ *locker.Lease, _ func()) { w.locks.Lose("boss") },
		"unlocked":      func(_ *world, l *locker.Lease, _ func()) { _ = l.Unlock(context.Background()) },
		"expired":       func(*world, *locker.Lease, func()) { time.Sleep(time.Hour) },
		"in the margin": func(*world, *locker.Lease, func()) { time.Sleep(ttl - margin) },
		"cancelled":     func(_ *world, _ *locker.Lease, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inAWorld(t, true, func(t *testing.T, w *world) {
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
				err := election.New(l, "boss", nil).Run(ctx, func(context.Context) error {
					t.Error("it leads")
					return nil
				})
				require.NoError(t, err)
				assert.False(t, w.leader().Held)
			})
		})
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	c := locktest.Must(locker.New(memlock.New(false), nil))
	defer func() { assert.NoError(t, c.Close()) }()
	for _, opts := range []election.Options{
		{Margin: 16 * time.Second}, {TTL: time.Second, Margin: time.Second}, {Margin: -1}, {Grace: -1}, {TTL: -1},
		{TTL: time.Microsecond}, {Address: "a\nb"},
	} {
		err := election.New(c, "boss", &opts).Run(t.Context(), nil)
		require.ErrorIs(t, err, locker.ErrInvalid, "%+v", opts)
	}
	require.ErrorIs(t, election.New(nil, "boss", nil).Run(t.Context(), nil), locker.ErrInvalid)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, election.New(c, "boss", nil).Run(over, nil), "asked to stop")
}

// Run was asked to stop, and says so only if lead has something else to say. Before, StepDown or the
// service may have ended the term, and lead says that.
func TestWhatRunReturnsWhenItsContextEnds(t *testing.T) {
	mine, why, cause := errors.New("mine"), errors.New("shutting down"), errors.New("the cause of the term's end")
	for what, test := range map[string]struct {
		before      string // what has ended the term
		leads, want error
	}{
		"nil":                            {"", nil, nil},
		"the error of ctx":               {"", fmt.Errorf("scheduling: %w", context.Canceled), nil},
		"the cause of ctx":               {"", why, nil},
		"an error of its own":            {"", mine, mine},
		"the deadline of another of its": {"", context.DeadlineExceeded, context.DeadlineExceeded},
		"that it has stepped down":       {"steps down", cause, nil},
		"that its context ended then":    {"steps down", context.Canceled, nil},
		"that of ctx ended since":        {"steps down", context.DeadlineExceeded, nil},
		"its own, after it stepped down": {"steps down", mine, mine},
		"that it was lost":               {"lost", cause, nil},
		"that it ended when it was lost": {"lost", context.Canceled, nil},
		"its own, after a loss":          {"lost", mine, mine},
	} {
		t.Run(what, func(t *testing.T) {
			inAWorld(t, true, func(t *testing.T, w *world) {
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				c := election.New(w.client(w.locks), "boss", nil)
				if test.before != "" {
					var cancel func()
					ctx, cancel = context.WithTimeoutCause(ctx, time.Minute, why)
					defer cancel()
				}
				require.Equal(t, test.want, c.Run(ctx, func(term context.Context) error {
					switch test.before {
					case "steps down":
						assert.True(t, c.StepDown(0))
					case "lost":
						assert.True(t, w.locks.Lose("boss"))
					default:
						stop(why)
					}
					<-term.Done()
					<-ctx.Done()
					if test.leads == cause { //nolint:errorlint // what stands for it
						return context.Cause(term)
					}
					return test.leads
				}))
			})
		})
	}
}

// When a client closes, the next one leads at once: nobody sees a context of the term before that goes on.
func TestATermEndsBeforeTheNextBegins(t *testing.T) {
	locks := memlock.New(false)
	before := context.Context(nil)
	for range 300 {
		c, next := locktest.Must(locker.New(locks, nil)), locktest.Must(locker.New(locks, nil))
		led, returns, leads := make(chan context.Context), make(chan struct{}), make(chan bool)
		go func() {
			_ = election.New(c, "boss", nil).Run(t.Context(), func(ctx context.Context) error {
				led <- ctx
				<-returns
				return nil
			})
		}()
		before = <-led
		go func() {
			_ = election.New(next, "boss", nil).Run(t.Context(), func(context.Context) error {
				leads <- before.Err() == nil
				return nil
			})
		}()
		go func() { assert.NoError(t, c.Close()) }()
		two := <-leads
		close(returns)
		require.False(t, two, "two lead")
		require.NoError(t, next.Close())
	}
}
