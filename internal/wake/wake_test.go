package wake_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/wake"
)

var errLost = errors.New("lost")

// service is one that connections are opened to.
type service struct {
	refuses atomic.Bool
	opened  atomic.Int32
	open    atomic.Int32
	said    chan string   // what connections hear
	cut     chan struct{} // ends the connection
	errs    []error       // that Pause was told
	waits   atomic.Int32  // in Next
}

type conn struct{ s *service }

func (c conn) Close() {
	if c.s.waits.Load() == 0 { // drivers may not close what they read from
		c.s.open.Add(-1)
	}
}

func (c conn) Next(ctx context.Context) (wake.Event, error) {
	c.s.waits.Add(1)
	defer c.s.waits.Add(-1)
	select {
	case name := <-c.s.said:
		return wake.Event{Name: name}, nil
	case <-c.s.cut:
		return wake.Event{}, errLost
	case <-ctx.Done():
		return wake.Event{}, ctx.Err()
	}
}

const linger, pause = 10 * time.Second, time.Second

// run has a test use a Wakes in a bubble.
func run(t *testing.T, test func(t *testing.T, w *wake.Wakes, s *service, end func())) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{said: make(chan string), cut: make(chan struct{})}
		life, end := context.WithCancel(context.Background())
		w := wake.New(life, wake.Options{
			Linger: linger,
			Open: func(context.Context, any) (wake.Conn, error) {
				time.Sleep(10 * time.Millisecond)
				if s.refuses.Load() {
					return nil, errLost
				}
				s.opened.Add(1)
				s.open.Add(1)
				return conn{s}, nil
			},
			Pause: func(_ any, err error, _ int) time.Duration {
				s.errs = append(s.errs, err)
				return pause
			},
		})
		test(t, w, s, end)
		end()
		w.Wait()
		assert.Zero(t, s.open.Load(), "connections that are left")
	})
}

// listen has a caller wait for a name, and counts how often it is told.
func listen(t *testing.T, w *wake.Wakes, name string) (told *atomic.Int32, stop func()) {
	told = &atomic.Int32{}
	stop, err := w.Notify(t.Context(), name, func() { told.Add(1) })
	require.NoError(t, err)
	told.Store(0) // it may be told when the connection begins
	return told, stop
}

func TestThoseThatWaitForTheNameAreTold(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, _ func()) {
		a, stopA := listen(t, w, "a")
		too, stopToo := listen(t, w, "a")
		b, stopB := listen(t, w, "b")
		s.said <- "a"
		s.said <- "nobody's"
		synctest.Wait()
		assert.Equal(t, []int32{1, 1, 0}, []int32{a.Load(), too.Load(), b.Load()})
		stopA()
		stopA() // more than once does no harm
		s.said <- "a"
		s.said <- "b"
		synctest.Wait()
		assert.Equal(t, []int32{1, 2, 1}, []int32{a.Load(), too.Load(), b.Load()})
		assert.EqualValues(t, 1, s.opened.Load(), "one connection for all")
		stopToo()
		stopB()
	})
}

// Who is told may leave, have others leave, and wait for another name.
func TestThoseWhoAreToldMayCallBack(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, _ func()) {
		var stops [2]func()
		var told atomic.Int32
		for i := range stops {
			stop, err := w.Notify(t.Context(), "a", func() {
				if told.Add(1) == 1 {
					stops[1-i]()
					go func() { _, stop := listen(t, w, "b"); stop() }()
				}
			})
			require.NoError(t, err)
			stops[i] = stop
		}
		told.Store(0)
		s.said <- "a"
		synctest.Wait()
		assert.EqualValues(t, 1, told.Load(), "the other was gone")
		stops[0]()
		stops[1]()
	})
}

// Messages in a gap between two connections are missed, so everybody looks.
func TestAllAreToldAfterAGap(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, _ func()) {
		a, stopA := listen(t, w, "a")
		b, stopB := listen(t, w, "b")
		s.refuses.Store(true)
		s.cut <- struct{}{}
		time.Sleep(5 * pause)
		assert.Zero(t, a.Load()+b.Load())
		ctx, cancel := context.WithTimeout(t.Context(), pause)
		_, err := w.Notify(ctx, "c", func() {})
		require.ErrorIs(t, err, context.DeadlineExceeded, "nothing hears")
		cancel()
		s.refuses.Store(false)
		time.Sleep(2 * pause)
		assert.Equal(t, []int32{1, 1}, []int32{a.Load(), b.Load()})
		for _, err := range s.errs {
			assert.Equal(t, errLost, err)
		}
		assert.GreaterOrEqual(t, len(s.errs), 3)
		s.said <- "a"
		synctest.Wait()
		assert.EqualValues(t, 2, a.Load())
		stopA()
		stopB()
	})
}

func TestTheConnectionGoesWhenNobodyWaits(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, _ func()) {
		for range 5 {
			_, stop := listen(t, w, "a")
			stop()
			time.Sleep(linger / 2)
		}
		assert.EqualValues(t, 1, s.opened.Load(), "a name that is waited for now and then")
		time.Sleep(linger)
		synctest.Wait()
		assert.Zero(t, s.open.Load())
		_, stop := listen(t, w, "a")
		assert.EqualValues(t, 2, s.opened.Load())
		stop()
		assert.Empty(t, s.errs, "nothing failed")
	})
}

// A caller that leaves before the connection hears leaves nothing behind.
func TestACallerThatLeavesEarly(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, _ func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := w.Notify(ctx, "a", func() { t.Error("it has left") })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		s.said <- "a"
		time.Sleep(2 * linger)
		synctest.Wait()
		assert.Zero(t, s.open.Load())
	})
}

func TestTheEnd(t *testing.T) {
	run(t, func(t *testing.T, w *wake.Wakes, s *service, end func()) {
		s.refuses.Store(true)
		failed := make(chan error, 1)
		go func() { _, err := w.Notify(t.Context(), "a", func() {}); failed <- err }()
		synctest.Wait()
		end()
		require.ErrorIs(t, <-failed, context.Canceled)
		_, err := w.Notify(t.Context(), "b", func() {})
		require.ErrorIs(t, err, context.Canceled)
	})
}
