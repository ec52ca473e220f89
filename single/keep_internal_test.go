package single

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// What a Release leaves that keeps the lock. How it meets other requests is in TestSearch.

// asks is a request for the lock n with a MinHold.
func asks(shared bool) driver.Request {
	return driver.Request{Name: "n", Owner: rand.Text(), Label: "me", TTL: ttl, MinHold: ttl / 2, Shared: shared}
}

func eachKind(t *testing.T, test func(t *testing.T, shared bool)) {
	for kind, shared := range map[string]bool{"alone": false, "shared": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, shared)
		})
	}
}

// What is kept is shown as it was, with its end, and no copy of its requests takes it. How long it is kept, and that it
// cannot be renewed, is in the suite.
func TestAKeptLockIsShown(t *testing.T) {
	const keep = time.Minute
	eachKind(t, func(t *testing.T, shared bool) {
		server, node := setUp(t)
		req := asks(shared)
		g := locktest.Acquire(t, node, req)
		before, err := node.Inspect(t.Context(), "n")
		require.NoError(t, err)
		require.NoError(t, g.Hold.Release(t.Context(), keep))
		require.NoError(t, g.Hold.Release(t.Context(), time.Hour), "it is kept already")
		if !shared { // a copy of a sharer's finds itself void, as always
			g, err := node.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.NotNil(t, g.Refused, "a copy of the request is granted")
		}
		after, err := node.Inspect(t.Context(), "n")
		require.NoError(t, err)
		assert.LessOrEqual(t, after.Remaining, keep)
		assert.NotZero(t, after.Since)
		assert.Equal(t, shared, after.KeptUntil.IsZero(), "of sharers it is not known")
		before.Remaining, after.Remaining, after.KeptUntil = 0, 0, time.Time{}
		assert.Equal(t, before, after)
		assert.Equal(t, "me", after.Label)
		assert.LessOrEqual(t, server.TTL(t, redisnode.LockKey("n")), keep+time.Second, "the note of a writer has as long")
	})
}

// Pass is a release first, which finds what is kept.
func TestAKeptLockIsPassedOn(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, "n", "a:", once)
	_, err := on(node).keep(t.Context(), keys("n", "a:"), false, time.Minute, 0)
	require.NoError(t, err)
	release(t, node, "n", "void:", false, time.Minute)
	assert.True(t, pass(t, node, "a:", "void:", false).void)
	assert.Equal(t, "a:", owned(t, server, "n"), "what is void changes nothing")
	assert.True(t, pass(t, node, "a:", "b:", false).granted)
	assert.Equal(t, "b:", owned(t, server, "n"))
}

// Those who wait were told of the TTL, which is longer.
func TestWaitersGetInWhenAKeptLockEnds(t *testing.T) {
	const keep = 500 * time.Millisecond
	eachKind(t, func(t *testing.T, shared bool) {
		server, node := setUp(t)
		g := locktest.Acquire(t, node, asks(shared))
		waiter := locktest.Client(t, newNode(t, redis.NewClient(&redis.Options{Addr: server.Addr()})), nil)
		got := make(chan error, 1)
		go func() {
			_, err := waiter.Lock(t.Context(), "n")
			got <- err
		}()
		locktest.Eventually(t, soon, "somebody waits", func() bool {
			if shared {
				return len(server.MustDo(t, "GET", redisnode.LockKey("n")).(string)) > len("shared 0123456789012345")
			}
			return server.MustDo(t, "EXISTS", redisnode.LockKey("n")+":wait") == int64(1)
		})
		woken := make(chan struct{}, 1)
		stop, err := node.Notify(t.Context(), "n", func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		require.NoError(t, err)
		defer stop()
		released := time.Now()
		require.NoError(t, g.Hold.Release(t.Context(), keep))
		if !shared { // a writer that waits for sharers asks again and again
			select {
			case <-woken:
			case <-time.After(soon):
				t.Error("it does not tell")
			}
		}
		select {
		case err := <-got:
			require.NoError(t, err)
			assert.GreaterOrEqual(t, time.Since(released), keep)
		case <-time.After(soon):
			t.Error("it does not know that the lock ends earlier")
		}
	})
}

// A release that keeps the lock knows, of the last of several copies, whether the lock was there: what
// an earlier one has kept is found, unless that has ended since.
func TestAReleaseThatKeepsIsSentTwice(t *testing.T) {
	for what, test := range map[string]struct {
		keep time.Duration
		gone bool
		want error
	}{
		"kept":           {time.Minute, false, nil},
		"kept, and over": {time.Millisecond, false, nil},
		"gone before":    {time.Minute, true, driver.ErrLost},
	} {
		t.Run(what, func(t *testing.T) {
			eachKind(t, func(t *testing.T, shared bool) {
				server, proxy, node := behindProxy(t)
				lab.Again(t, func() bool {
					warm(t, node)
					_, err := on(node).keep(t.Context(), keys("load", "me"), shared, time.Second, 0)
					require.NoError(t, err)
					req := asks(shared)
					g := locktest.Acquire(t, node, req)
					if h, ok := g.Hold.(*hold); ok && h.copied { // a copy may still come, as if it were the release
						locktest.Eventually(t, soon, "it is undone", func() bool { return h.Undo(t.Context()) == nil })
						return false
					}
					if test.gone {
						server.MustDo(t, "DEL", redisnode.LockKey("n"), redisnode.LockKey("n")+":shared")
					}
					proxy.OnRequest(req.Owner, func(l *lab.Link) { l.Replies(lab.Drop) })
					err = g.Hold.Release(t.Context(), test.keep)
					_ = g.Hold.Release(t.Context(), 0)
					if err != nil && !errors.Is(err, driver.ErrLost) {
						return false // the machine is too busy for it to be sent again
					}
					require.Equal(t, test.want != nil, err != nil, "%v", err)
					return true
				})
			})
		})
	}
}
