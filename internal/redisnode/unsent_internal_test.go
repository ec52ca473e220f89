package redisnode

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
