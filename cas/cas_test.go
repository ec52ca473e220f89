package cas_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
)

const ttl = 10 * time.Second

func connect(t *testing.T, s *service) (driver.Backend, *line) {
	l := s.line()
	b, err := cas.New(l, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b, l
}

func ask(t *testing.T, b driver.Backend, req driver.Request) (driver.Grant, error) {
	req.Name, req.TTL, req.Owner = "n", cmp.Or(req.TTL, ttl), rand.Text()
	return locktest.Ask(t.Context(), b, req)
}

func mustHave(t *testing.T, b driver.Backend, req driver.Request) driver.Hold {
	t.Helper()
	g, err := ask(t, b, req)
	require.NoError(t, err)
	return g.Hold
}

// Processes that try once and end get the lock of a dead holder only where the store knows how old its record is.
func TestFreshProcessesThatTry(t *testing.T) {
	for ages, want := range map[bool]int{false: 0, true: 8} {
		synctest.Test(t, func(t *testing.T) {
			got := 0
			for range 8 {
				s := newService(ages)
				dead, _ := connect(t, s)
				mustHave(t, dead, driver.Request{Shared: true})
				beside, _ := connect(t, s)
				time.Sleep(ttl / 2)
				living := mustHave(t, beside, driver.Request{Shared: true}) // its writes say how old the other is
				time.Sleep(ttl / 4)
				require.NoError(t, living.Release(t.Context(), 0))
				time.Sleep(ttl/4 + time.Millisecond)
				fresh, _ := connect(t, s)
				if _, err := ask(t, fresh, driver.Request{}); err == nil {
					got++
				}
			}
			assert.Equal(t, want, got, "ages %v", ages)
		})
	}
}

// A Swap that arrives after its take-back does nothing; without the take-back it would.
func TestASwapThatArrivesLate(t *testing.T) {
	for _, undone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(false)
			b, cut := connect(t, s)
			cut.load("n")
			cut.mu.Lock()
			cut.conn = 1
			cut.mu.Unlock()
			swapping := make(chan driver.Grant)
			go func() {
				g, err := ask(t, b, driver.Request{})
				assert.ErrorIs(t, err, driver.ErrUnavailable)
				swapping <- g
			}()
			time.Sleep(75 * time.Microsecond) // the Load is answered, the Swap not yet sent
			cut.Requests(conformance.HoldOpen)
			g := <-swapping // it has given up
			require.NotNil(t, g.Hold)
			if undone {
				require.NoError(t, g.Hold.Undo(t.Context()))
			}
			cut.Requests(conformance.Pass)
			time.Sleep(time.Millisecond)
			other, _ := connect(t, s)
			_, err := ask(t, other, driver.Request{})
			assert.Equal(t, undone, err == nil, "%v", err)
		})
	}
}

// While a store without ages is out of reach, no time settles what may be left; with them it does.
func TestOnlyAgesLetTimeSettleATakeBack(t *testing.T) {
	for _, ages := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, cut := connect(t, newService(ages))
			hold := mustHave(t, b, driver.Request{})
			cut.Requests(conformance.Drop)
			time.Sleep(2 * ttl)
			assert.Equal(t, ages, hold.Undo(t.Context()) == nil)
		})
	}
}

// The note of a writer that has died keeps no reader from a free name, and readers from joining others for a second.
func TestTheNoteOfADeadWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(false)
		reader, _ := connect(t, s)
		hold := mustHave(t, reader, driver.Request{Shared: true})
		writer, _ := connect(t, s)
		_, err := ask(t, writer, driver.Request{Wait: true})
		held, ok := errors.AsType[*refusal.Error](err)
		require.True(t, ok)
		require.NotZero(t, held.AskWithin)
		time.Sleep(time.Hour)
		late, _ := connect(t, s)
		_, err = ask(t, late, driver.Request{Shared: true})
		require.ErrorIs(t, err, driver.ErrHeld, "it may be alive")
		time.Sleep(time.Second)
		_ = mustHave(t, late, driver.Request{Shared: true}).Release(t.Context(), 0)
		_, err = hold.Renew(t.Context())
		require.NoError(t, err, "nobody has removed it")

		_, err = ask(t, writer, driver.Request{Wait: true})
		require.ErrorIs(t, err, driver.ErrHeld)
		require.NoError(t, hold.Release(t.Context(), 0))
		fresh, _ := connect(t, s)
		mustHave(t, fresh, driver.Request{Shared: true})
	})
}

// What is no record of ours is not taken for that of a free name, and written over.
func TestAnotherRecordIsRefused(t *testing.T) {
	for _, value := range []string{`{}`, `null`, `{"leader":"x","ttl":5}`, `{"n":0}`, `[]`, `5`, `lock`} {
		s := newService(false)
		_, err := s.swap("n", "", []byte(value))
		require.NoError(t, err)
		b, _ := connect(t, s)
		_, err = ask(t, b, driver.Request{})
		require.ErrorIs(t, err, driver.ErrRefused, value)
		assert.Equal(t, value, string(s.load("n").Value))
	}
}

// In the smallest store, notes leave renewals the room that they need, and a writer without one is told who holds.
func TestManySharersAndNotesInASmallStore(t *testing.T) {
	for _, label := range []string{"", strings.Repeat("a", driver.MaxLabelLen), strings.Repeat("\x01", driver.MaxLabelLen)} {
		for _, pause := range []time.Duration{time.Nanosecond, time.Minute + 1} {
			synctest.Test(t, func(t *testing.T) {
				s := newService(false)
				s.bytes = 4096
				var holds []driver.Hold
				for {
					b, _ := connect(t, s)
					g, err := ask(t, b, driver.Request{Label: label, TTL: time.Hour, Shared: true})
					if err != nil {
						require.ErrorIs(t, err, driver.ErrRefused)
						break
					}
					holds = append(holds, g.Hold)
				}
				time.Sleep(pause)
				for range 17 {
					b, _ := connect(t, s)
					_, err := ask(t, b, driver.Request{TTL: time.Hour, Wait: true})
					require.ErrorIs(t, err, driver.ErrHeld)
				}
				assert.Contains(t, string(s.load("n").Value), `"w":`)
				for _, hold := range holds {
					_, err := hold.Renew(t.Context())
					require.NoError(t, err)
				}
			})
		}
	}
}

// past loads what was before once.
type past struct {
	*line
	before *cas.Entry
}

func (p *past) Load(ctx context.Context, key string) (cas.Entry, error) {
	if e := p.before; e != nil {
		p.before = nil
		return *e, nil
	}
	return p.line.Load(ctx, key)
}

// A Load that is not fresh, as of a leader that was deposed, does not make a release leave the lock.
func TestAReleaseDoesNotRestOnAFreshLoad(t *testing.T) {
	s := newService(false)
	other, _ := connect(t, s)
	p := &past{line: s.line()}
	b, err := cas.New(p, nil)
	require.NoError(t, err)
	before := s.load("n")
	hold := mustHave(t, b, driver.Request{Shared: true})
	beside := mustHave(t, other, driver.Request{Shared: true}) // b has to load again
	p.before = &before
	require.NoError(t, hold.Release(t.Context(), 0))
	require.NoError(t, beside.Release(t.Context(), 0))
	mustHave(t, other, driver.Request{})
}

func TestRequireIsToldTheTruth(t *testing.T) {
	for _, ages := range []bool{false, true} {
		b, _ := connect(t, newService(ages))
		client := locktest.Must(locker.New(b, nil))
		require.NoError(t, locker.Require(client, driver.Guarantees{DeadHolder: driver.RecoveryWatched}))
		require.Equal(t, ages, locker.Require(client, driver.Guarantees{DeadHolder: driver.RecoveryAfterTTL}) == nil)
		require.Equal(t, ages, locker.Require(client, driver.Guarantees{MaxMinHold: time.Hour}) == nil)
		require.NoError(t, client.Close())
	}
	for what, err := range map[string]error{
		"no store":           second(cas.New(nil, nil)),
		"a negative timeout": second(cas.New(newService(false).line(), &cas.Options{Timeout: -1})),
	} {
		require.ErrorIs(t, err, driver.ErrInvalid, what)
	}
}

func second[A, B any](_ A, b B) B { return b }

// leaving is a store whose requests take a second to end when their context has ended, and which counts them.
type leaving struct {
	*line
	slow     string
	inFlight atomic.Int32
	atClose  int32
}

func (l *leaving) request(ctx context.Context, what string) error {
	if what != l.slow {
		return nil
	}
	defer l.inFlight.Add(-1)
	l.inFlight.Add(1)
	<-ctx.Done()
	time.Sleep(time.Second)
	return ctx.Err()
}

func (l *leaving) Load(ctx context.Context, key string) (cas.Entry, error) {
	if err := l.request(ctx, "Load"); err != nil {
		return cas.Entry{}, err
	}
	return l.line.Load(ctx, key)
}

func (l *leaving) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	if err := l.request(ctx, "Swap"); err != nil {
		return "", err
	}
	return l.line.Swap(ctx, key, version, value)
}

// List breaks off after what it has found.
func (l *leaving) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for key, err := range l.line.List(ctx, prefix) {
			if !yield(key, err) {
				return
			}
		}
		if err := l.request(ctx, "List"); err != nil {
			yield("", err)
		}
	}
}

func (l *leaving) Watch(ctx context.Context, _ string, _ func()) (func(), error) {
	return func() {}, l.request(ctx, "Watch")
}

func (l *leaving) Close() error {
	l.atClose = l.inFlight.Load()
	return l.line.Close()
}

// The store is closed, and Close returns, when no request is under way any more.
func TestCloseWaitsForRequestsInFlight(t *testing.T) {
	for what, ask := range map[string]func(t *testing.T, b driver.Backend) error{
		"Load": func(t *testing.T, b driver.Backend) error {
			return second(b.(driver.Operator).Inspect(t.Context(), "n"))
		},
		"Swap": func(t *testing.T, b driver.Backend) error {
			return second(locktest.Ask(t.Context(), b, driver.Request{Name: "n", Owner: "o", TTL: time.Minute}))
		},
		"List": func(t *testing.T, b driver.Backend) error { return locktest.Lists(t.Context(), b.(locktest.Operator)) },
		"Watch": func(t *testing.T, b driver.Backend) error {
			return second(b.(driver.Notifier).Notify(t.Context(), "n", func() {}))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &leaving{line: newService(false).line(), slow: what}
			b, err := cas.New(store, &cas.Options{Timeout: time.Minute})
			require.NoError(t, err)
			var asked error
			go func() { asked = ask(t, b) }()
			time.Sleep(time.Millisecond) // the line's own time
			synctest.Wait()
			require.EqualValues(t, 1, store.inFlight.Load(), what)
			began := time.Now()
			require.NoError(t, b.Close(), what)
			assert.Zero(t, store.inFlight.Load(), "%s is under way after Close", what)
			assert.Zero(t, store.atClose, "%s was under way when the store was closed", what)
			assert.Equal(t, time.Second, time.Since(began), what)
			synctest.Wait()
			require.ErrorIs(t, asked, driver.ErrClosed, what)
			require.ErrorIs(t, ask(t, b), driver.ErrClosed, what)
		})
	}
}

// A listing that is too slow, or breaks off, yields what it has found.
func TestListYieldsWhatItHasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(false)
		store := &leaving{line: s.line(), slow: "List"}
		b, err := cas.New(store, &cas.Options{Timeout: time.Minute})
		require.NoError(t, err)
		mustHave(t, b, driver.Request{TTL: time.Hour})
		found, err := locktest.List(t.Context(), b.(locktest.Operator), "")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Len(t, found, 1)
		require.NoError(t, b.Close())
	})
}
