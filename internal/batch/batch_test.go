package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/batch"
)

var bounds = batch.Options{Max: 3, Flights: 2, Timeout: 5 * time.Second, Slow: 100 * time.Millisecond,
	Late: 250 * time.Millisecond}

// service answers a request with itself, after a while, and remembers what went together.
type service struct {
	mu      sync.Mutex
	trips   [][]string
	takes   time.Duration
	most    int // trips at once
	current int
	ended   []time.Duration // when the context of a trip ended before its answer
	began   time.Time
}

func (s *service) send(ctx context.Context, requests []string) ([]string, error) {
	s.mu.Lock()
	s.trips = append(s.trips, slices.Clone(requests))
	s.current++
	s.most = max(s.most, s.current)
	takes := s.takes
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current--
	}()
	if requests[0] == "hangs" {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return requests, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, time.Since(s.began))
		return nil, ctx.Err()
	}
}

// run has a test use a Batcher on a service whose trips take 10 ms, in a bubble.
func run(t *testing.T, key func(string) string,
	test func(t *testing.T, b *batch.Batcher[string, string], s *service, end func())) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{takes: 10 * time.Millisecond, began: time.Now()}
		life, end := context.WithCancel(context.Background())
		b := batch.New(life, bounds, key, s.send)
		test(t, b, s, end)
		end()
		b.Wait()
	})
}

func itself(s string) string { return s }

// start has callers ask at the same time, in this order.
func start(ctx context.Context, t *testing.T, b *batch.Batcher[string, string], all *sync.WaitGroup,
	requests ...string) {
	for _, request := range requests {
		all.Go(func() {
			answer, err := b.Do(ctx, request)
			assert.NoError(t, err)
			assert.Equal(t, request, answer.Value)
			assert.True(t, answer.Sent)
		})
		synctest.Wait()
	}
}

func TestCallersOfOneMomentShareTrips(t *testing.T) {
	run(t, itself, func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
		var all sync.WaitGroup
		// The first goes alone, the second in a trip of its own, and of the others three share each trip.
		start(t.Context(), t, b, &all, "a", "b", "z", "y", "x", "w", "v")
		all.Wait()
		assert.ElementsMatch(t, [][]string{{"a"}, {"b"}, {"x", "y", "z"}, {"v", "w"}}, s.trips)
		assert.Equal(t, bounds.Flights, s.most)
		assert.Equal(t, 20*time.Millisecond, time.Since(s.began))
	})
}

func TestNoTwoOfOneKeyGoTogether(t *testing.T) {
	run(t, func(s string) string { return s[:1] },
		func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
			var all sync.WaitGroup
			start(t.Context(), t, b, &all, "a1", "a2", "a3", "a4", "b1", "c1", "a5", "d1")
			all.Wait()
			assert.ElementsMatch(t, [][]string{{"a1"}, {"a2"}, {"a3", "b1", "c1"}, {"a4", "d1"}, {"a5"}},
				s.trips, "and none is passed by")
		})
	run(t, nil, func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
		var all sync.WaitGroup
		start(t.Context(), t, b, &all, "a", "b", "z", "z", "y")
		all.Wait()
		assert.Equal(t, [][]string{{"a"}, {"b"}, {"z", "z", "y"}}, s.trips,
			"without keys, in the order of arrival")
	})
}

// A trip that hangs holds up those on it, and nobody else, however many there are.
func TestTripsThatHangHoldNobodyUp(t *testing.T) {
	run(t, itself, func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
		var hanging sync.WaitGroup
		for range 20 {
			hanging.Go(func() {
				answer, err := b.Do(t.Context(), "hangs")
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.True(t, answer.Sent)
			})
		}
		time.Sleep(10 * bounds.Slow) // two at a time
		synctest.Wait()
		assert.Len(t, s.trips, 20)
		_, err := b.Do(t.Context(), "a")
		assert.NoError(t, err)
		assert.LessOrEqual(t, time.Since(s.began), 11*bounds.Slow+s.takes)
		hanging.Wait()
		assert.LessOrEqual(t, time.Since(s.began), bounds.Timeout+11*bounds.Slow)
	})
}

// A caller returns when its context ends; what it asked is given up when nobody waits for it any more.
func TestCallersThatLeave(t *testing.T) {
	run(t, itself, func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
		s.takes = time.Second
		ctx, leave := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		start(t.Context(), t, b, &all, "stays")
		gone := func(sent bool) func() {
			return func() {
				answer, err := b.Do(ctx, "leaves")
				assert.Equal(t, context.Canceled, err, "and not the cause, which may be of another lock")
				assert.Equal(t, sent, answer.Sent)
			}
		}
		all.Go(gone(true))
		synctest.Wait()
		all.Go(gone(false)) // two trips are under way
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		leave(errors.New("left"))
		synctest.Wait()
		time.Sleep(bounds.Late)
		synctest.Wait()
		assert.Equal(t, []time.Duration{300 * time.Millisecond}, s.ended)
		all.Wait()
		assert.Equal(t, [][]string{{"stays"}, {"leaves"}}, s.trips, "what was not sent never is")
		_, err := b.Do(ctx, "over")
		assert.Equal(t, context.Canceled, err, "and not the cause, which may be of another lock")
	})
}

// A trip that is not to go on for a while without callers is over before the last of them is told.
func TestATripThatIsNotToGoOnEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := bounds
		once.Late = 0
		trips := make(chan context.Context, 2)
		b := batch.New(t.Context(), once, nil, func(ctx context.Context, _ []string) ([]string, error) {
			trips <- ctx
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = b.Do(ctx, "alone, in a goroutine of its own") }()
		<-trips
		var trip context.Context
		go func() {
			trip = <-trips
			leave()
		}()
		_, err := b.Do(ctx, "leaves")
		require.ErrorIs(t, err, context.Canceled)
		assert.Error(t, trip.Err())
	})
}

// One of several that leaves does not end the trip of the others.
func TestATripGoesOnForThoseThatStay(t *testing.T) {
	run(t, itself, func(t *testing.T, b *batch.Batcher[string, string], s *service, _ func()) {
		s.takes = 90 * time.Millisecond
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		start(t.Context(), t, b, &all, "a", "b", "stays")
		all.Go(func() { _, err := b.Do(ctx, "leaves"); assert.ErrorIs(t, err, context.Canceled) })
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // the two are on their way
		leave()
		all.Wait()
		assert.Equal(t, [][]string{{"a"}, {"b"}, {"leaves", "stays"}}, s.trips)
		assert.Empty(t, s.ended)
	})
}

// The end of its life ends all requests, under way or waiting, and none begins after it.
func TestTheEnd(t *testing.T) {
	run(t, itself, func(t *testing.T, b *batch.Batcher[string, string], s *service, end func()) {
		s.takes = time.Hour
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				_, err := b.Do(t.Context(), fmt.Sprint(i))
				assert.ErrorIs(t, err,
					context.Canceled)
			})
		}
		synctest.Wait()
		end()
		b.Wait()
		all.Wait()
		assert.Zero(t, time.Since(s.began))
		trips := len(s.trips)
		answer, err := b.Do(t.Context(), "late")
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, answer.Sent)
		assert.Len(t, s.trips, trips)
	})
}

// An error is everybody's whose request was sent with it.
func TestAnErrorIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := errors.New("wrong")
		b := batch.New(t.Context(), bounds, itself,
			func(_ context.Context, _ []string) ([]string, error) {
				time.Sleep(time.Millisecond)
				return nil, wrong
			})
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				began := time.Now()
				answer, err := b.Do(t.Context(), fmt.Sprint(i))
				assert.Equal(t, wrong, err)
				assert.True(t, answer.Sent)
				assert.False(t, answer.Since.Before(began))
			})
		}
		all.Wait()
	})
}

// Patient requests wait for those under way if they are fewer, but not for slow ones.
func TestPatientRequests(t *testing.T) {
	for _, slow := range []time.Duration{2 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			life, end := context.WithCancel(context.Background())
			s := &service{takes: 10 * time.Millisecond, began: time.Now()}
			b := batch.New(life, batch.Options{Max: 9, Flights: 2, Timeout: time.Second, Slow: slow, Patient: true},
				nil, s.send)
			var all sync.WaitGroup
			start(t.Context(), t, b, &all, "a", "b", "c", "d", "e")
			time.Sleep(11 * time.Millisecond)
			start(t.Context(), t, b, &all, "f")
			all.Wait()
			if slow < s.takes {
				assert.Less(t, time.Since(s.began), 25*time.Millisecond)
			} else {
				assert.Equal(t, [][]string{{"a"}, {"b"}, {"c", "d", "e"}, {"f"}}, s.trips)
				assert.Equal(t, 30*time.Millisecond, time.Since(s.began))
			}
			end()
			b.Wait()
		})
	}
}
