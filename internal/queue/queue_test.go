package queue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/queue"
	"github.com/golockers/locker/internal/session"
	"github.com/stretchr/testify/assert"
)

// service is a queue of places, whose requests may get no answer, and whose watches may fail.
type service struct {
	mu     sync.Mutex
	draw   *rand.Rand
	places []*place
}

type place struct {
	s      *service
	shared bool
	gone   chan struct{}
	asked  int
}

var (
	errRemoved = errors.New("the place is gone")
	errNone    = errors.New("no answer")
)

func (s *service) random(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draw.IntN(n)
}

func (s *service) delay() { time.Sleep(time.Duration(s.random(20)) * time.Millisecond) }

func (s *service) enter(shared bool) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{s: s, shared: shared, gone: make(chan struct{})}
	s.places = append(s.places, p)
	return p
}

func (p *place) leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if i := slices.Index(p.s.places, p); i >= 0 {
		p.s.places = slices.Delete(p.s.places, i, i+1)
		close(p.gone)
	}
}

func (p *place) Ahead(context.Context) (*place, error) {
	p.asked++
	p.s.delay()
	defer p.s.delay() // the answer may be old when it arrives
	if p.s.random(8) == 0 {
		return nil, errNone
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	var ahead *place
	for _, q := range p.s.places {
		if q == p {
			return ahead, nil
		}
		if !p.shared || !q.shared {
			ahead = q
		}
	}
	return nil, errRemoved
}

func (p *place) Await(ctx context.Context, ahead *place) error {
	p.s.delay()
	switch p.s.random(8) {
	case 0:
		return errNone
	case 1:
		return nil // it looks as if it might be gone
	}
	select {
	case <-ahead.gone:
		p.s.delay()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*place) Lost(err error) bool { return errors.Is(err, errRemoved) }

// alive is a session that is proven for a long time.
func alive() *session.Session {
	s := session.New(time.Hour)
	s.Join()
	s.Open(time.Now(), 10*time.Hour, session.Terms{Silence: 10 * time.Hour})
	return s
}

// Readers and writers come, hold, give up, and lose their places.
func TestSearchNobodyHoldsAlongsideAWriterAndNobodyWaitsForEver(t *testing.T) {
	for seed := range uint64(3000) {
		synctest.Test(t, func(t *testing.T) {
			s, on := &service{draw: rand.New(rand.NewPCG(seed, 2))}, alive()
			defer on.End(errRemoved)
			holding := map[*place]bool{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for range 12 {
				time.Sleep(time.Duration(s.random(200)) * time.Millisecond)
				shared, patient, removed := s.random(2) == 0, s.random(4) > 0, s.random(10) == 0
				p := s.enter(shared)
				var ahead *place // as the request that made the place may tell
				if s.random(2) == 0 {
					s.mu.Lock()
					if hold, wait := queue.Split(s.places, func(p *place) bool { return p.shared }); !slices.Contains(hold, p) {
						before := append(slices.Clone(hold), wait[:len(wait)-1]...)
						for _, q := range before {
							if !p.shared || !q.shared {
								ahead = q
							}
						}
					}
					s.mu.Unlock()
				}
				all.Go(func() {
					defer p.leave()
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					if !patient {
						ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
						defer cancel()
					}
					if removed {
						time.AfterFunc(50*time.Millisecond, p.leave)
					}
					told := false
					err := queue.Wait(ctx, on, p, ahead, func() { told = true })
					switch {
					case err == nil:
					case removed && errors.Is(err, errRemoved):
						return
					case !patient:
						assert.ErrorIs(t, err, context.DeadlineExceeded, "seed %d", seed)
						assert.Equal(t, told, errors.Is(err, driver.ErrHeld), "seed %d", seed)
						return
					default:
						assert.NoError(t, err, "seed %d: it waits for ever", seed)
						return
					}
					mu.Lock()
					for other := range holding {
						assert.True(t, removed || p.shared && other.shared, "seed %d: two hold at once", seed)
					}
					if !removed {
						holding[p] = true
					}
					mu.Unlock()
					time.Sleep(time.Duration(s.random(100)) * time.Millisecond)
					mu.Lock()
					delete(holding, p)
					mu.Unlock()
				})
			}
			all.Wait()
			assert.Empty(t, s.places)
		})
		if t.Failed() {
			return
		}
	}
}

// silent answers nothing, once it has said what was ahead.
type silent struct {
	place
	says  bool
	waits bool // for what is ahead
}

func (s *silent) Ahead(context.Context) (*place, error) {
	s.asked++
	if s.says {
		s.says = false
		return &place{}, nil
	}
	return nil, errNone
}

func (s *silent) Await(ctx context.Context, _ *place) error {
	if s.waits {
		<-ctx.Done()
	}
	return errNone
}

// A wait ends with its session or its context, and says no more than is known.
func TestAWaitThatEnds(t *testing.T) {
	wait := func(says, waits bool, how func(*session.Session, context.CancelFunc)) (asked int, err error) {
		synctest.Test(t, func(t *testing.T) {
			s := session.New(time.Hour)
			s.Join()
			s.Open(time.Now(), 10*time.Minute, session.Terms{Silence: 5 * time.Minute})
			defer s.End(errRemoved)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go how(s, cancel)
			p := &silent{says: says, waits: waits}
			err = queue.Wait(ctx, s, p, nil, func() {})
			asked = p.asked
		})
		return asked, err
	}
	after := func(d time.Duration) func(*session.Session, context.CancelFunc) {
		return func(_ *session.Session, cancel context.CancelFunc) { time.Sleep(d); cancel() }
	}
	asked, err := wait(true, false, after(time.Minute))
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, driver.ErrHeld, "the service is heard of")
	assert.InDelta(t, 60, asked, 30, "it is asked about once a second")

	_, err = wait(false, false, after(time.Minute))
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, driver.ErrHeld, "the service has never said so")
	assert.ErrorIs(t, err, errNone)

	_, err = wait(true, false, after(6*time.Minute))
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, driver.ErrHeld, "it is not known any more")
	assert.ErrorIs(t, err, driver.ErrUnavailable)

	_, err = wait(true, true, func(s *session.Session, _ context.CancelFunc) { time.Sleep(time.Minute); s.End(session.ErrGone) })
	assert.Equal(t, session.ErrGone, err)
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ places, hold string }{
		{"", ""}, {"w", "w"}, {"wr", "w"}, {"ww", "w"}, {"r", "r"}, {"rr", "rr"}, {"rrwr", "rr"}, {"rwr", "r"},
	} {
		hold, wait := queue.Split([]byte(c.places), func(b byte) bool { return b == 'r' })
		assert.Equal(t, c.hold, string(hold), c.places)
		assert.Equal(t, c.places, string(hold)+string(wait))
	}
}
