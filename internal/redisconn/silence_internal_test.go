package redisconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowDriver answers each command after as long as its first key says.
type slowDriver struct{}

func (slowDriver) Process(_ context.Context, cmd redis.Cmder) error {
	time.Sleep(cmd.Args()[firstKey].(time.Duration))
	return nil
}

func (slowDriver) Pipeline() redis.Pipeliner { return nil }

// Where batches have lately taken long, one that takes long is not silent, though a later one was answered
// before it: on a busy machine that is so for as long as it is busy (R21). Soon after it is silent again.
func TestASlowBatchIsNotSilentWhereOthersAreSlow(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = server.Close() }()
	synctest.Test(t, func(t *testing.T) {
		n := &Conn{timeout: 5 * time.Second}
		n.ctx, n.cancel = context.WithCancelCause(t.Context())
		l := n.newLane(slowDriver{}, server)
		l.quick = -1 << 20 // nobody goes alone
		script := NewScript("")
		ask := func(takes time.Duration) error {
			answer, err := l.Do(t.Context(), script.Call("ask", "n", 1, takes))
			if err == nil {
				err = answer.Value.cause
			}
			return err
		}
		overtaken := func() error {
			slow := make(chan error, 1)
			go func() { slow <- ask(450 * time.Millisecond) }()
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, ask(time.Millisecond))
			return <-slow
		}
		quick := func() {
			for range 100 {
				require.NoError(t, ask(time.Millisecond))
			}
		}
		quick()
		assert.Equal(t, ErrSilent, overtaken())
		time.Sleep(time.Second)
		quick()
		require.NoError(t, ask(300*time.Millisecond))
		assert.NoError(t, overtaken(), "it took no longer than was to be expected")
		quick()
		assert.Equal(t, ErrSilent, overtaken())
		time.Sleep(time.Second)
		n.cancel(ErrClosed)
		l.Wait()
	})
}
