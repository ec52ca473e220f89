package redisconn

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answering is a server that answers each command with 1.
type answering struct{}

func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(command).SetVal(int64(1))
		return nil
	}
}

func (answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.(command).SetVal(int64(1))
		}
		return nil
	}
}

func answeringBatcher(t *testing.T) *batcher {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(answering{})
	b := &batcher{ctx: t.Context(), timeout: time.Second, driver: client, server: client}
	b.ticking = b.tick
	return b
}

// One batch has a call that was started and one whose caller leaves just when the
// answers are handed out; what is told of the first begins another request.
func TestCallerWhoLeavesDoesNotHoldUpAnswers(t *testing.T) {
	b := answeringBatcher(t)
	script := NewScript("return 1")
	first, leaving, next := script.Call("vote", "n", 1, "k"), script.Call("inspect", "n", 1, "k"),
		script.Call("release", "n", 1, "k")
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{})
	next.answered = func(*Call) { close(told) }
	first.answered = func(*Call) {
		cancel()
		time.Sleep(20 * time.Millisecond) // the caller finds its call over
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.True(t, b.enqueue(next))
	}
	b.mu.Lock() // both share a batch
	left := make(chan *Error, 1)
	go func() { left <- b.do(ctx, leaving) }()
	b.enqueue(first)
	time.Sleep(20 * time.Millisecond)
	b.mu.Unlock()
	for _, what := range []func() bool{
		func() bool { return len(left) == 1 },
		func() bool {
			select {
			case <-told:
				return true
			default:
				return false
			}
		},
	} {
		require.Eventually(t, what, 5*time.Second, time.Millisecond)
	}
}

func TestCallThatWasNotStartedIsOver(t *testing.T) {
	n, err := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), time.Second)
	require.NoError(t, err)
	require.NoError(t, n.Close())
	c := NewScript("return 1").Call("vote", "n", 1, "k")
	require.False(t, n.Start(c, func(*Call) { t.Error("it was told all the same") }))
	assert.False(t, n.Withdraw(c))
	assert.WithinDuration(t, time.Now(), c.Sent(), time.Minute)
	_, err = n.Result(c)
	require.ErrorIs(t, err, ErrClosed)
}
