package session_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker/internal/clocktest"
	"github.com/golockers/locker/internal/session"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ttl  = 10 * time.Second
	idle = time.Minute
)

var (
	errLost    = errors.New("the answer was lost")
	errRefused = errors.New("beats are refused")
	errClosed  = errors.New("closed")
	terms      = session.Terms{
		Every: ttl / 4, Retry: ttl / 16, Silence: ttl / 2, Least: ttl / 4,
		Refused: func(err error) bool { return errors.Is(err, errRefused) },
	}
)

// service is the truth: it counts the TTL from when a beat arrives, and has ended the session when that has passed.
type service struct {
	mu    sync.Mutex
	draw  *rand.Rand
	keeps time.Time // until when it keeps the session for certain
	older bool      // an answer proves only the beat before, as in ZooKeeper
	last  time.Time
	sick  int // of how many beats one fails
}

func (s *service) random(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.draw.Int64N(int64(d)))
}

func (s *service) counts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeps = time.Now().Add(ttl)
}

func (s *service) keepsUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeps
}

// beat may be lost on the way there or back, take longer than the session lasts, or hear that the session is gone.
func (s *service) beat() (time.Time, error) {
	sent := time.Now()
	fate := s.random(time.Duration(s.sick))
	time.Sleep(s.random(ttl / 16))
	switch fate {
	case 1:
		s.counts()
		fallthrough
	case 2:
		time.Sleep(s.random(ttl / 4))
		return sent, errLost
	case 3:
		if s.random(8) == 0 {
			time.Sleep(2 * ttl) // whatever the context says
			return sent, errLost
		}
	case 4:
		if s.random(16) == 0 {
			return sent, session.ErrGone
		}
	}
	if time.Now().After(s.keepsUntil()) {
		return sent, session.ErrGone
	}
	s.counts()
	time.Sleep(s.random(ttl / 16))
	if s.older {
		sent, s.last = s.last, sent
	}
	return sent, nil
}

// Clients join a session, are granted holds, and leave, while the network and the service do what a seed says.
func TestSearchNobodyTrustsASessionForLongerThanTheServiceKeepsIt(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			srv := &service{draw: rand.New(rand.NewPCG(seed, 1)), keeps: began.Add(ttl), last: began, older: seed%2 == 0}
			srv.sick = 4 + int(srv.random(40))
			s := session.New(idle)
			time.Sleep(srv.random(ttl / 4))
			s.Open(began, ttl, terms)
			var all sync.WaitGroup
			all.Go(func() { s.Keep(srv.beat); assert.Error(t, s.Context().Err(), "seed %d: Keep has returned early", seed) })
			users, used := 0, sync.Mutex{}
			user := func() {
				for range 20 {
					time.Sleep(srv.random(ttl / 2))
					if !s.Join() {
						continue
					}
					used.Lock()
					users++
					used.Unlock()
					v, err := s.Validity()
					if srv.random(2) == 0 {
						ctx, cancel := context.WithTimeout(t.Context(), ttl/8)
						v, err = s.Fresh(ctx)
						cancel()
					}
					notified := 0
					var forget func()
					if err == nil {
						assert.False(t, v.Since.Add(v.TTL).After(srv.keepsUntil()), "seed %d: trusted for too long", seed)
						assert.GreaterOrEqual(t, time.Until(v.Since.Add(v.TTL)), ttl/4, "seed %d: not worth a lease", seed)
						forget, err = s.Grant(func() {
							assert.False(t, time.Now().After(srv.keepsUntil()), "seed %d: notified too late", seed)
							assert.NoError(t, s.Context().Err(), "seed %d: the context ends after that", seed)
							notified++
						})
					}
					time.Sleep(srv.random(ttl))
					if over := s.Err() != nil; err == nil && over {
						<-s.Context().Done()
						assert.Equal(t, 1, notified, "seed %d: each holder is notified, once", seed)
					} else if err == nil {
						forget()
					}
					used.Lock()
					users--
					s.Leave()
					used.Unlock()
				}
			}
			all.Go(func() {
				<-s.Context().Done()
				used.Lock()
				defer used.Unlock()
				assert.False(t, users > 0 && errors.Is(s.Err(), session.ErrUnused), "seed %d: it ends under its users", seed)
				assert.False(t, time.Now().After(srv.keepsUntil()) && !errors.Is(s.Err(), session.ErrGone), "seed %d: too late", seed)
			})
			for range 3 {
				all.Go(user)
			}
			if srv.random(3) == 0 {
				time.Sleep(srv.random(5 * ttl))
				s.Retire()
				assert.False(t, s.Join(), "seed %d", seed)
			}
			all.Wait()
			_, err := s.Validity()
			assert.Error(t, err)
			_, err = s.Grant(func() { t.Error("nobody is granted anything any more") })
			assert.Error(t, err)
		})
		if t.Failed() {
			return
		}
	}
}

// kept returns a session that is kept with beats that are answered at once, and its Keep, to be waited for.
func kept(t *testing.T, beat func() (time.Time, error)) (*session.Session, *sync.WaitGroup) {
	s, all := session.New(idle), new(sync.WaitGroup)
	s.Open(time.Now(), ttl, terms)
	require.NoError(t, s.Ready(t.Context()))
	require.True(t, s.Join())
	all.Go(func() { s.Keep(beat) })
	return s, all
}

func answered() (time.Time, error) { return time.Now(), nil }

func TestASessionEndsWhenNobodyUsesIt(t *testing.T) {
	for what, c := range map[string]struct {
		retire bool
		after  time.Duration
	}{"for a while": {false, idle}, "and nobody may": {true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s, all := kept(t, answered)
			if c.retire {
				s.Retire()
			}
			time.Sleep(time.Hour)
			require.NoError(t, s.Err(), what)
			left := time.Now()
			s.Leave()
			all.Wait()
			assert.Equal(t, c.after, time.Since(left), what)
			assert.Equal(t, session.ErrUnused, s.Err(), what)
			assert.False(t, s.Join(), what)
			assert.False(t, s.IsGone(), what)
			s.Ended()
			<-s.Gone()
			assert.True(t, s.IsGone())
			assert.Equal(t, session.ErrUnused, s.Err(), "the first cause counts")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := session.New(idle) // and the service does not grant it
		assert.Equal(t, session.ErrUnused, s.Ready(t.Context()))
		assert.Equal(t, idle, time.Since(began))
		s.Open(began, time.Hour, terms)
		assert.Equal(t, session.ErrUnused, s.Err(), "it stays over")
	})
}

func TestASilentSessionEndsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, all := kept(t, func() (time.Time, error) { return time.Time{}, errRefused })
		time.Sleep(terms.Every + terms.Silence)
		_, err := s.Fresh(t.Context())
		assert.ErrorIs(t, err, errRefused)
		assert.Equal(t, terms.Every+terms.Silence, time.Since(began), "nobody waits for the next")
		all.Wait()
		assert.Equal(t, ttl, time.Since(began))
		assert.ErrorIs(t, s.Err(), session.ErrSilent)
		assert.ErrorIs(t, s.Err(), errRefused, "it says why")
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, all := kept(t, func() (time.Time, error) { time.Sleep(time.Hour); return time.Now(), nil })
		<-s.Context().Done()
		assert.Equal(t, ttl, time.Since(began), "a beat that hangs does not delay it")
		all.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, all := kept(t, func() (time.Time, error) { return began, session.ErrGone })
		all.Wait()
		assert.Equal(t, session.ErrGone, s.Err())
		assert.Equal(t, terms.Every, time.Since(began), "at once, if the service says so")
	})
	synctest.Test(t, func(t *testing.T) { // what is late proves an older moment
		began, beats := time.Now(), 0
		_, all := kept(t, func() (time.Time, error) {
			beats++
			time.Sleep(time.Millisecond)
			return began.Add(-time.Second), nil
		})
		all.Wait()
		assert.Equal(t, ttl, time.Since(began))
		assert.EqualValues(t, ttl/terms.Every, beats+1)
	})
}

// Nobody is granted a lease that ends before it can be renewed: it waits for the beat that it takes.
func TestFreshWaitsForABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		recovers := terms.Every + terms.Silence + terms.Retry
		s, all := kept(t, func() (time.Time, error) {
			if time.Since(began) < recovers {
				return began, errLost
			}
			return time.Now(), nil
		})
		time.Sleep(terms.Silence)
		_, err := s.Validity()
		require.NoError(t, err)
		time.Sleep(terms.Every)
		_, err = s.Validity()
		require.ErrorIs(t, err, errLost)
		ctx, cancel := context.WithTimeout(t.Context(), terms.Retry/2)
		defer cancel()
		_, err = s.Fresh(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errLost)
		v, err := s.Fresh(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, recovers, v.Since.Sub(began), float64(terms.Retry))
		assert.Equal(t, v.Since, time.Now())
		s.End(errClosed)
		all.Wait()
	})
}

// A holder that takes its time to be notified has been, before anybody goes on to let the next one in.
func TestWhoeverEndsASessionWaitsForItsHolders(t *testing.T) {
	for what, end := range map[string]func(*session.Session){
		"Close": func(s *session.Session) { s.End(errClosed) },
		"gone":  (*session.Session).Ended,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, all := kept(t, answered)
			notified := false
			_, err := s.Grant(func() { time.Sleep(time.Second); notified = true })
			require.NoError(t, err)
			forget, err := s.Grant(func() { t.Error("it has left") })
			require.NoError(t, err)
			forget()
			for range 2 {
				all.Go(func() { end(s); assert.True(t, notified, what) })
			}
			synctest.Wait()
			assert.Error(t, s.Err(), "no hold may be trusted, and none is granted meanwhile")
			assert.NoError(t, s.Context().Err(), "%s: what waits for this goes on before they know", what)
			all.Wait()
			assert.True(t, notified, "%s: Keep has returned", what)
		})
	}
}

// The next beat is sent when the service can be reached again, and not much more often than those that fail.
func TestABeatIsHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		began := time.Now()
		s, all := kept(t, func() (time.Time, error) { sent = append(sent, time.Since(began)); return time.Now(), nil })
		for range 3 {
			time.Sleep(terms.Retry / 2)
			s.Hurry()
			synctest.Wait()
		}
		time.Sleep(terms.Every)
		synctest.Wait()
		assert.Equal(t, []time.Duration{terms.Retry / 2, terms.Retry * 3 / 2, terms.Retry*3/2 + terms.Every}, sent)
		s.End(errClosed)
		all.Wait()
	})
}

// Another server may grant another TTL when it takes up a session.
func TestATTLThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := session.New(idle)
		s.Open(time.Now(), ttl, terms)
		time.Sleep(time.Second)
		began := time.Now()
		s.Open(began, ttl/2, terms)
		v, err := s.Validity()
		require.NoError(t, err)
		assert.Equal(t, ttl/2, v.TTL)
		<-s.Context().Done() // nobody has to keep it for that
		assert.Equal(t, ttl/2, time.Since(began))
	})
}

// The machine sleeps: the monotonic clock does not notice.
func TestASessionEndsByTheWallClock(t *testing.T) {
	began := time.Now()
	s := session.New(idle)
	quick := terms
	quick.Every = time.Millisecond
	s.Open(began, ttl, quick)
	s.Keep(func() (time.Time, error) { return clocktest.WallBack(t, time.Now(), ttl), nil })
	assert.Equal(t, session.ErrSilent, s.Err())
	assert.Less(t, time.Since(began), ttl/2)
}

// A caller that reports that the service can be reached again does not wait for the pause after a failed beat, which
// is long if the TTL is long.
func TestHurryAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 5 * time.Minute
		began := time.Now()
		s := session.New(time.Hour)
		s.Join()
		s.Open(began, ttl, session.Terms{Every: ttl / 4, Retry: ttl / 16, Silence: ttl / 2, Least: ttl / 2,
			Refused: func(error) bool { return false }})
		back := began.Add(ttl*3/4 + 5*time.Second)
		go s.Keep(func() (time.Time, error) {
			if time.Now().Before(back) {
				time.Sleep(3 * time.Second)
				return began, errors.New("no answer")
			}
			return time.Now(), nil
		})
		time.Sleep(time.Until(back))
		s.Hurry()
		asked := time.Now()
		_, err := s.Fresh(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(asked), 3*time.Second, "no longer than the beat under way")
		s.End(errors.New("closed"))
	})
}
