package redisnode

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// A copy whose time is over before it is sent has no answer, and not one of zeros.
func TestACopyThatIsNotSentBringsNothing(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	n, err := New(client, time.Second)
	require.NoError(t, err)
	defer func() { assert.NoError(t, n.Close()); _ = client.Close() }()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l := n.one
	for _, hedge := range []bool{false, true} {
		a := n.inspect.Attempt("inspect", "n", nil, "k", "k", "k", "k")
		l.mu.Lock()
		f := l.board([]*Attempt{a}, nil)
		c := l.nextCopy(f)
		l.mu.Unlock()
		if !hedge {
			c = l.firstCopy(f, l.server, &buffers{})
		}
		l.carry(over, c)
		l.land(f, c, f.since)
		assert.Equal(t, flying, a.stage, "it was answered")
		l.fail(f, ErrTimeout)
		assert.ErrorIs(t, a.Err, ErrTimeout)
	}
}

// A user who may not run INFO at first may be given the right: which run answers is asked again now and then.
func TestARunThatIsNotKnownIsAskedForAgain(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", "on", ">secret", "~*", "&*", "+@all", "-info"))
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker", Password: "secret"})
	n, err := New(client, 20*time.Second)
	require.NoError(t, err)
	defer func() { assert.NoError(t, n.Close()); _ = client.Close() }()
	known := func(ago time.Duration) bool {
		n.one.mu.Lock()
		if n.one.run != nil {
			n.one.run.met = n.one.run.met.Add(-ago)
		}
		n.one.mu.Unlock()
		k := KeysOf("n", "me", "", "")
		require.Nil(t, n.Do(t.Context(), n.Release(&k, 0)).Err)
		n.one.mu.Lock()
		defer n.one.mu.Unlock()
		return n.one.run.id != ""
	}
	require.False(t, known(0))
	server.MustDo(t, "ACL", "SETUSER", "locker", "+info")
	require.False(t, known(0), "not each time")
	require.True(t, known(askAgain))
}

// What waits for a program's only server goes in several flights; of several servers, each gets all at once.
func TestAFlightTakesAShareWhereOthersFollow(t *testing.T) {
	for _, c := range []struct {
		spread                 bool
		waiting, takes, beside int // beside: how many flights of one attempt are under way when the last may follow
	}{
		{false, 400, 400, 1}, {false, 600, maxFlight, 1},
		{true, 50, 50, 3}, {true, 256, maxShare, 3}, {true, 600, 150, 3}, {true, 4096, maxFlight, 3},
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes, in which flights would become slow
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			n, err := New(client, time.Second)
			require.NoError(t, err)
			defer func() { assert.NoError(t, n.Close()); _ = client.Close() }()
			n.Spread = c.spread
			l := n.one
			l.mu.Lock()
			defer l.mu.Unlock()
			for range c.waiting {
				l.queue = append(l.queue, &Attempt{stage: queued})
			}
			for l.may() {
				l.board(nil, &Attempt{stage: queued})
			}
			assert.Len(t, l.flights, c.beside+1, "%+v", c)
			all := l.flights
			l.flights = all[:c.beside]
			queue := slices.Clone(l.queue)
			assert.Len(t, l.take(), c.takes, "%+v", c)
			l.flights, l.queue = all, queue
			assert.Len(t, l.take(), min(c.waiting, maxFlight), "behind slow ones: %+v", c)
			l.queue, l.flights = nil, nil
		})
	}
}
