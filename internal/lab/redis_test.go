package lab_test

import (
	"bufio"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestRedisIsAsked(t *testing.T) {
	r := lab.StartRedis(t)
	assert.Equal(t, []any{"bind", "127.0.0.1"}, r.MustDo(t, "CONFIG", "GET", "bind"))
	assert.Equal(t, []any{nil, nil}, r.MustDo(t, "MGET", "a", "b"))
	assert.Nil(t, r.MustDo(t, "GET", "a"))
	_, err := r.Do("NOSUCH", "secret")
	require.ErrorContains(t, err, "ERR unknown command")
	assert.NotContains(t, err.Error(), "lab: NOSUCH secret")
}

func TestRedisPausedDoesNotAnswerAndCatchesUp(t *testing.T) {
	r := lab.StartRedis(t)
	r.Pause()
	c, err := connect(r.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write([]byte("SET k late\r\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a paused server must not answer")
	assert.True(t, r.Running())
	r.Resume()
	eventually(t, "what was sent during a pause is carried out after it",
		func() bool { return r.MustDo(t, "GET", "k") == "late" })
	r.Pause()
	r.Kill()
	assert.False(t, r.Running())
	r.Restart(t)
	r.Pause()
	r.Stop()
	assert.False(t, r.Running())
	assert.Contains(t, r.Log(), "Redis is now ready to exit", "Stop ends a server in good order")
}

func TestRedisKilledComesBackOnTheSamePort(t *testing.T) {
	for kept, opts := range map[any][]lab.Option{nil: nil, "v": {lab.WithAppendOnly(),
		lab.WithConfig("key-load-delay", "100")}} { // in microseconds per key: it is not ready while it loads
		r := lab.StartRedis(t, opts...)
		r.MustDo(t, "EVAL", `for i = 1, 3000 do redis.call("SET", i, "v") end`, 0)
		addr, pid := r.Addr(), r.Pid()
		r.Kill()
		assert.False(t, r.Running())
		_, err := connect(addr)
		require.Error(t, err, "a killed server must not accept")
		r.Kill() // does no harm
		for range 2 {
			r.Restart(t) // also one that runs
			assert.Equal(t, addr, r.Addr())
			assert.NotEqual(t, pid, r.Pid())
			assert.Equal(t, kept, r.MustDo(t, "GET", "2999"))
		}
	}
}

func TestRedisClockJump(t *testing.T) {
	r := lab.StartRedis(t, lab.WithClock())
	r.MustDo(t, "SET", "short", "v", "PX", 30_000)
	r.MustDo(t, "SET", "long", "v", "PX", 90_000)
	r.JumpClock(t, time.Minute)
	assert.Nil(t, r.MustDo(t, "GET", "short"), "a forward jump expires keys early")
	assert.Equal(t, "v", r.MustDo(t, "GET", "long"))

	r.MustDo(t, "SET", "kept", "v", "PX", 30_000)
	r.JumpClock(t, -time.Minute)
	assert.Greater(t, r.TTL(t, "kept"), 55*time.Second, "a backward jump keeps keys")

	r.JumpClock(t, time.Hour)
	r.Restart(t)
	now, err := r.Time()
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(time.Hour), now, soon, "a jump outlives a restart")
	r.JumpClock(t, -time.Hour)

	// The event loop must go on after a jump back: it expires keys by itself.
	r.MustDo(t, "SET", "soon", "v", "PX", 50)
	eventually(t, "it is gone", func() bool { return r.MustDo(t, "DBSIZE") == int64(0) })
}

func TestRedisCountsTheCommandsOfOthers(t *testing.T) {
	for password, opts := range map[string][]lab.Option{"": nil, "p": {lab.WithPassword("p")}} {
		r := lab.StartRedis(t, opts...)
		c, err := connect(r.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		answers := bufio.NewReader(c)
		send := func(line, answer string) {
			_, err := c.Write([]byte(line + "\r\n"))
			require.NoError(t, err)
			got, err := answers.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, answer+"\r\n", got, line)
		}
		if password != "" {
			send("AUTH "+password, "+OK")
		}
		assert.NotContains(t, r.Commands(t), "info", "nobody has asked yet")
		send("PING", "+PONG")
		before := r.Commands(t)
		assert.Empty(t, r.Commands(t).Since(before), "asking does not count")
		for range 3 {
			send("SET k 1", "+OK")
		}
		send(`EVAL "return tonumber(redis.call('GET', 'k'))" 0`, ":1")
		diff := r.Commands(t).Since(before)
		assert.Equal(t, lab.Commands{"set": 3, "eval": 1, "get": 1}, diff)
		r.Restart(t)
		assert.NotContains(t, r.Commands(t), "set", "a restart counts from zero")
	}
}
