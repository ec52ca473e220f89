package single_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// Connections that go silent for a while, and stay so, cost no lease whose TTL is
// four times as long; and a lock can be had soon after (R22).
func TestSilentConnections(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	for name, client := range map[string]func() (*locker.Client, error){
		"opened": func() (*locker.Client, error) {
			return openers.Open(t.Context(), "redis://"+proxy.Addr()+"?ttl=2s", nil)
		},
		"given": func() (*locker.Client, error) {
			b, err := single.New(newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = b.Close() })
			return locker.New(b, &locker.Options{TTL: 2 * time.Second}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			again(t, func() bool { // a machine that stalls loses leases, too
				proxy.Set(lab.Pass)
				c, err := client()
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				var leases []*locker.Lease
				for i := range 100 {
					l, err := c.Lock(t.Context(), fmt.Sprint(name, i))
					require.NoError(t, err)
					leases = append(leases, l)
				}
				time.Sleep(300 * time.Millisecond) // renewals come at any moment of the silence
				proxy.Set(lab.Drop)
				const silence = 500 * time.Millisecond
				granted := make(chan time.Time, 1)
				go func() {
					time.Sleep(silence / 2)
					l, err := c.Lock(context.Background(), name)
					assert.NoError(t, err)
					granted <- time.Now()
					if err == nil {
						assert.NoError(t, l.Unlock(context.Background()))
					}
				}()
				time.Sleep(silence)
				proxy.PassNew()
				back := time.Now()
				wait := (<-granted).Sub(back)
				t.Logf("granted %v after the network was back", wait)
				time.Sleep(2 * time.Second)
				lost := 0
				for _, l := range leases {
					if l.Err() != nil {
						lost++
					}
				}
				return lost == 0 && wait < 900*time.Millisecond // 300 ms where the machine is not busy
			})
		})
	}
}

// A server that stalls for a moment answers later: that is told as a success.
func TestAServerThatStallsIsWaitedFor(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	c := client(t, server.Addr(), nil)
	for range 20 { // so that callers alone go to the driver themselves
		l, err := c.Lock(t.Context(), "warm")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
	}
	stall := func() {
		server.Pause()
		time.AfterFunc(250*time.Millisecond, server.Resume)
	}
	stall()
	l, err := c.TryLock(t.Context(), "job")
	require.NoError(t, err)
	stall()
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("job")))
}

// Every error matches one of the library's or the context's, whichever of two
// time limits comes first.
func TestErrorsAreClassifiedByCause(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	c := client(t, server.Addr(), &single.Options{Timeout: 60 * time.Millisecond})
	for i := range 20 {
		l, err := c.Lock(t.Context(), fmt.Sprint("n", i))
		if err != nil {
			continue // the machine is busy
		}
		server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Millisecond+time.Duration(i)*time.Millisecond/2)
		err = l.Unlock(ctx)
		cancel()
		server.Resume()
		if err != nil {
			assert.True(t, errors.Is(err, locker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded), err)
		}
	}
}

// With full memory and noeviction, held is held, leases live, and what is given
// up goes at once.
func TestFullMemory(t *testing.T) {
	server, node := setUp(t)
	held := single.Request{Name: "n", Value: "holder", TTL: ttl}
	acquire(t, node, held)
	acquire(t, node, single.Request{Name: "given", Value: "me", TTL: ttl})
	load(t, node)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 1)
	a := acquire(t, node, single.Request{Name: "n", Value: "other", TTL: ttl, Waiting: true})
	assert.False(t, a.Granted)
	assert.Positive(t, a.Left)
	state, err := node.Renew(t.Context(), "n", "holder", ttl)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	_, err = node.TakeBack(t.Context(), "given", "me", time.Minute)
	assert.NoError(t, err)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("given")), "a ghost")
	_, err = node.TakeBack(t.Context(), "given", "never there", time.Minute)
	assert.ErrorContains(t, err, "OOM", "the note that it is void has to be tried again")
	_, err = node.Acquire(t.Context(), single.Request{Name: "free", Value: "me", TTL: ttl})
	assert.False(t, asError(t, err).Unknown)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 0)
	_, err = node.TakeBack(t.Context(), "given", "never there", time.Minute)
	assert.NoError(t, err)
}

// The driver panics at pushes that no Redis sends. To a waiter that is a broken
// connection.
func TestMalformedPushes(t *testing.T) {
	for _, push := range []string{"*0\r\n", "*1\r\n:0\r\n", "*2\r\n$7\r\nmessage\r\n$1\r\nx\r\n"} {
		sent := make(chan struct{}, 100)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					buf := make([]byte, 4096)
					for {
						n, err := c.Read(buf)
						if err != nil {
							return
						}
						answer := "-ERR unknown command\r\n"
						if strings.Contains(strings.ToLower(string(buf[:n])), "subscribe") {
							answer = push
							sent <- struct{}{}
						}
						_, _ = io.WriteString(c, strings.Repeat(answer, max(1, strings.Count(string(buf[:n]), "*"))))
					}
				}()
			}
		}()
		client := newClient(t, &redis.Options{Addr: l.Addr().String(), Protocol: 2})
		node := newNode(t, client, nil)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		_, err = node.Subscribe(ctx, "n", func() {})
		cancel()
		require.Error(t, err, "%q", push)
		<-sent
	}
}
