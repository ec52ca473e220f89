package locker_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

func TestALeaseThatWasGrantedLateIsRenewedWhileItLasts(t *testing.T) {
	for _, share := range []float64{0.5, 0.65, 0.7, 0.8, 0.95, 0.98} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
				g, err := f.acquire(req)
				time.Sleep(time.Duration(share * float64(ttl)))
				return g, err, true
			}
			c, l := lease(t, f)
			time.Sleep(3 * ttl)
			require.NoError(t, l.Err(), "the answer took %v of the TTL", share)
			require.NoError(t, c.Close())
		})
	}
}

// session is a service whose holds share a session: what a renewal brings moves
// on with the session's heartbeat and not with the request.
type session struct {
	*fake
	began   time.Time
	beat    time.Duration
	renewed atomic.Int32
}

func (s *session) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := s.fake.Acquire(ctx, req)
	if err != nil {
		return g, err
	}
	return locker.Grant{Hold: sessionHold{g.Hold, s}, Validity: s.validity()}, nil
}

func (s *session) validity() locker.Validity {
	return locker.Validity{Since: s.began.Add(time.Since(s.began).Truncate(s.beat)), TTL: ttl}
}

type sessionHold struct {
	locker.Hold
	s *session
}

func (h sessionHold) Renew(context.Context) (locker.Validity, error) {
	h.s.renewed.Add(1)
	return h.s.validity(), nil
}

func TestMaxHoldOnASharedSessionAsksNotAgainAndAgain(t *testing.T) {
	for _, maxHold := range []time.Duration{ttl, 13 * ttl / 10, 16 * ttl / 10, 2 * ttl, 5 * ttl} {
		synctest.Test(t, func(t *testing.T) {
			s := &session{fake: newFake(), began: time.Now(), beat: ttl / 4}
			time.Sleep(s.beat - time.Second) // the heartbeat is somewhat old
			c, l := lease(t, s, locker.MaxHold(maxHold))
			granted := time.Now()
			<-l.Done()
			assert.InDelta(t, maxHold, time.Since(granted), float64(maxHold/50))
			assert.LessOrEqual(t, time.Since(granted), maxHold)
			// Every third of it or so, and no more often than thirty times.
			assert.LessOrEqual(t, int(s.renewed.Load()), int(maxHold/(ttl/10)), "MaxHold %v", maxHold)
			require.NoError(t, c.Close())
		})
	}
}

func TestWhatABackendCannotMeanIsNoLease(t *testing.T) {
	for what, wrong := range map[string]locker.Validity{
		"longer than the service keeps it": {TTL: ttl, Drift: -time.Second},
		"negative":                         {TTL: -ttl},
		"over at once":                     {TTL: 30}, // meant as seconds
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
					g, err := f.acquire(req)
					g.Validity.TTL, g.Validity.Drift = wrong.TTL, wrong.Drift
					return g, err, true
				}
				c := locker.New(f, &locker.Options{TTL: ttl})
				_, err := c.TryLock(t.Context(), "job")
				require.Error(t, err)
				synctest.Wait()
				assert.Empty(t, f.owner("job"), "it is taken back")
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestARenewalThatPromisesTooMuchIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{fake: newFake(), began: time.Now(), beat: time.Nanosecond}
		c, l := lease(t, overstating{s})
		require.ErrorContains(t, l.Renew(t.Context()), "Drift")
		<-l.Done()
		require.ErrorIs(t, l.Err(), locker.ErrLost)
		require.NoError(t, c.Close())
	})
}

// overstating grants well, and renews with a Drift that is negative.
type overstating struct{ *session }

func (o overstating) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := o.session.Acquire(ctx, req)
	g.Hold = overstatingHold{g.Hold}
	return g, err
}

type overstatingHold struct{ locker.Hold }

func (h overstatingHold) Renew(ctx context.Context) (locker.Validity, error) {
	v, err := h.Hold.Renew(ctx)
	v.Drift = -time.Second
	return v, err
}

func TestALostLeaseWithoutADeadlineIsReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var sent locker.Request
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			sent = req
			req.TTL = 100 * time.Hour
			g, err := f.acquire(req)
			g.Validity.TTL = 0
			return g, err, true
		}
		c, l := lease(t, f, locker.MaxHold(10*time.Hour))
		sent.Lost()
		<-l.Done()
		synctest.Wait()
		assert.Empty(t, f.owner("job"))
		require.NoError(t, c.Close())
	})
}

// stuck is a log handler that hangs for a while, once.
type stuck struct {
	slog.Handler
	told  atomic.Bool
	hangs time.Duration
}

func (*stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s *stuck) Handle(context.Context, slog.Record) error {
	if s.told.CompareAndSwap(false, true) {
		time.Sleep(s.hangs)
	}
	return nil
}

// R2: what is told of one lease does not delay the end of others.
func TestALoggerThatHangsDelaysNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(&stuck{Handler: slog.DiscardHandler, hangs: time.Hour})
		c := locker.New(newFake(), &locker.Options{TTL: ttl, Logger: logger})
		var leases []*locker.Lease
		for _, name := range []string{"a", "b", "c"} {
			l, err := c.Lock(t.Context(), name, locker.NoRenew())
			require.NoError(t, err)
			leases = append(leases, l)
		}
		for _, l := range leases {
			<-l.Done()
			assert.Zero(t, time.Since(l.Until()), l.Name())
		}
		time.Sleep(2 * time.Hour)
		require.NoError(t, c.Close())
	})
}
