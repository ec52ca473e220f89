package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/postgres"
)

// minHolds are a lock that is held alone and one of a sharer, each for an hour, with a MinHold.
func minHolds() []driver.Request {
	all := []driver.Request{request("alone", owner(1)), sharer("shared", 2)}
	for i := range all {
		all[i].Label, all[i].TTL, all[i].MinHold = "me", time.Hour, time.Minute
	}
	return all
}

// What is kept looks as it did before, keeps others out for that long, and not for its TTL.
func TestAKeptLockEndsInTime(t *testing.T) {
	const keep = time.Second
	_, b, _ := server(t)
	for _, req := range minHolds() {
		g := locktest.Acquire(t, b, req)
		before, err := b.Inspect(t.Context(), req.Name)
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, g.Hold.Release(t.Context(), keep))
		answered := time.Now()
		after, err := b.Inspect(t.Context(), req.Name)
		require.NoError(t, err)
		assert.LessOrEqual(t, after.Remaining, keep)
		assert.WithinDuration(t, before.Since.Add(req.MinHold), before.KeptUntil, time.Second)
		assert.WithinDuration(t, time.Now().Add(after.Remaining), after.KeptUntil, time.Second)
		assert.WithinDuration(t, began, before.Since, 10*time.Second)
		after.Remaining, after.KeptUntil = before.Remaining, before.KeptUntil
		assert.Equal(t, before, after)
		_, err = locktest.Ask(t.Context(), b, request(req.Name, owner(8)))
		var held *refusal.Error
		require.ErrorAs(t, err, &held)
		assert.LessOrEqual(t, held.Remaining, keep)
		if !req.Shared {
			refused(t, b, sharer(req.Name, 9))
		}
		locktest.Eventually(t, 30*time.Second, "it is free", func() bool {
			_, err := locktest.Ask(t.Context(), b, request(req.Name, owner(7)))
			return err == nil
		})
		assert.GreaterOrEqual(t, time.Since(began), keep)
		assert.Less(t, time.Since(answered), keep+b.Guarantees().MinHoldSlack+keep/100)
		require.ErrorIs(t, g.Hold.Release(t.Context(), keep), driver.ErrLost)
	}
}

// Of sharers whose releases share a statement, some leave and some are kept, and the one that is kept for
// longest keeps the lock, unless one stays.
func TestSharersThatAreKeptTogether(t *testing.T) {
	const keep = time.Second
	_, b, _ := server(t)
	for round := range 8 {
		name, longest := fmt.Sprint(round), time.Minute
		if round == 0 {
			longest = keep
		}
		var holds [12]driver.Hold
		for i := range holds {
			req := sharer(name, i)
			req.TTL = time.Hour
			holds[i] = locktest.Acquire(t, b, req).Hold
		}
		began := time.Now()
		var all sync.WaitGroup
		for i, h := range holds[1:] {
			lasts := keep * time.Duration(i%3) / 2
			if i == len(holds)/2 {
				lasts = longest
			}
			all.Go(func() { assert.NoError(t, h.Release(t.Context(), lasts)) })
		}
		all.Wait()
		answered := time.Now()
		look := func() driver.State {
			st, err := b.Inspect(t.Context(), name)
			require.NoError(t, err)
			return st
		}
		assert.Greater(t, look().Remaining, time.Hour/2, "one stays")
		if round == 0 {
			locktest.Eventually(t, 30*time.Second, "the others end", func() bool { return look().Sharers == 1 })
			assert.GreaterOrEqual(t, time.Since(began), keep)
			assert.Less(t, time.Since(answered), keep+b.Guarantees().MinHoldSlack+keep/100)
			refused(t, b, request(name, owner(99)))
		}
		require.NoError(t, holds[0].Release(t.Context(), 0))
		if round == 0 {
			acquire(t, b, name, owner(99))
		} else {
			assert.InDelta(t, longest, look().Remaining, float64(longest/2))
		}
	}
}

// Those who wait learn at once that what they wait for is only kept, and get in when it ends.
func TestWaitersGetInWhenAKeptLockEnds(t *testing.T) {
	const keep = time.Second
	s, b, _ := server(t)
	c := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	for _, req := range minHolds() {
		g := locktest.Acquire(t, b, req)
		got := make(chan error, 1)
		go func() {
			l, err := c.Lock(locktest.Within(t, 30*time.Second), req.Name)
			if err == nil {
				err = l.Unlock(t.Context())
			}
			got <- err
		}()
		until(t, s, "t", "SELECT waited FROM locker_locks WHERE name = $1", []byte(req.Name))
		woken := make(chan struct{}, 10)
		stop, err := b.Notify(t.Context(), req.Name, func() { woken <- struct{}{} })
		require.NoError(t, err)
		for len(woken) > 0 {
			<-woken // they are told that the connection hears
		}
		began := time.Now()
		require.NoError(t, g.Hold.Release(t.Context(), keep))
		answered := time.Now()
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Error("it is not told")
		}
		stop()
		require.NoError(t, <-got)
		assert.GreaterOrEqual(t, time.Since(began), keep)
		assert.Less(t, time.Since(answered), keep+b.Guarantees().MinHoldSlack+keep/100)
	}
}

// A crash does not undo what would leave the lock for its TTL.
func TestAKeptLockSurvivesACrash(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithConfig("wal_writer_delay", "10000"))
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), &postgres.Options{Timeout: 20 * time.Second})
	var holds []driver.Hold
	for _, req := range minHolds() {
		holds = append(holds, locktest.Acquire(t, b, req).Hold)
	}
	for _, h := range holds {
		require.NoError(t, h.Release(t.Context(), time.Minute))
	}
	s.Restart(t)
	c := locktest.Must(locker.New(b, nil))
	for _, req := range minHolds() {
		st, err := c.Inspect(t.Context(), req.Name)
		require.NoError(t, err)
		assert.True(t, st.Held)
		assert.LessOrEqual(t, st.Remaining, time.Minute)
	}
}
