package single

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
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

// slowly is a server that a Backend reaches by a dialer, which can hang: then a request may be sent long
// after its caller has left.
func slowly(t *testing.T) (server *lab.Redis, node *Backend, hang func() (letGo func())) {
	t.Helper()
	server = lab.StartRedis(t)
	opts := &redis.Options{Addr: server.Addr(), PipelinePoolSize: -1, DialTimeout: time.Minute}
	var hung atomic.Pointer[chan struct{}]
	dial := redis.NewDialer(opts)
	opts.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		if over := hung.Load(); over != nil {
			<-*over
		}
		return dial(context.Background(), network, addr)
	}
	node = newNode(t, redis.NewClient(opts))
	load(t, node)
	return server, node, func() func() {
		over := make(chan struct{})
		hung.Store(&over)
		server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		return func() { hung.Store(nil); close(over) }
	}
}

// Undo is nil only if nothing of the attempt is left or can be sent: a request that the driver has yet to
// send, since it waits for a connection, counts from then on, and not from when its caller left.
func TestUndoWaitsForWhatTheDriverHas(t *testing.T) {
	const brief, short = 100 * time.Millisecond, 20 * time.Millisecond
	for what, ask := range map[string]func(ctx context.Context, b *Backend, g driver.Grant) (driver.Grant, error){
		"acquire": func(ctx context.Context, b *Backend, _ driver.Grant) (driver.Grant, error) {
			return locktest.Ask(ctx, b, driver.Request{Name: "n", Owner: rand.Text(), TTL: brief})
		},
		"shared": func(ctx context.Context, b *Backend, _ driver.Grant) (driver.Grant, error) {
			return locktest.Ask(ctx, b, driver.Request{Name: "n", Owner: rand.Text(), TTL: brief, Shared: true})
		},
		"renew": func(ctx context.Context, _ *Backend, g driver.Grant) (driver.Grant, error) {
			_, err := g.Hold.Renew(ctx)
			return g, err
		},
		"keep": func(ctx context.Context, _ *Backend, g driver.Grant) (driver.Grant, error) {
			return g, g.Hold.Release(ctx, brief)
		},
		"pass": func(ctx context.Context, _ *Backend, g driver.Grant) (driver.Grant, error) {
			return g.Hold.(driver.Passer).Pass(ctx, driver.Request{Name: "n", Owner: rand.Text(), TTL: brief}, false)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			lab.Again(t, func() bool {
				server, b, hang := slowly(t)
				held := driver.Request{Name: "held", Owner: rand.Text(), TTL: brief}
				if what == "pass" {
					held.Name = "n"
				}
				g := locktest.Acquire(t, b, held)
				if _, ok := g.Hold.(driver.Passer); !ok {
					return false // a copy of its request may still come
				}
				letGo := sync.OnceFunc(hang())
				defer letGo()
				left, err := ask(locktest.Within(t, tooShortToGoAlone), b, g)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				if !asError(t, err).Unknown {
					return false // the machine is too busy: the driver has not got it in time
				}
				require.NotNil(t, left.Hold)
				for begin := time.Now(); time.Since(begin) < 4*brief; {
					require.Error(t, left.Hold.Undo(locktest.Within(t, short)), "it may still be sent")
				}
				letGo()
				locktest.Eventually(t, soon, "it is undone", func() bool {
					return left.Hold.Undo(locktest.Within(t, soon)) == nil
				})
				assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n"), redisnode.LockKey("held")))
				return true
			})
		})
	}
}

// While nobody answers, Undo is nil once the longest time that was asked for has passed since the last
// request, MinHold included, and not before.
func TestUndoOfWhatNobodyAnswers(t *testing.T) {
	const keep = time.Second
	for _, minHold := range []time.Duration{0, keep} {
		t.Run(fmt.Sprint(minHold), func(t *testing.T) {
			t.Parallel()
			_, proxy, b := behindProxy(t)
			load(t, b)
			proxy.Requests(lab.Drop)
			began := time.Now()
			g, err := locktest.Ask(locktest.Within(t, 300*time.Millisecond), b, driver.Request{Name: "n",
				Owner: rand.Text(), TTL: keep / 2, MinHold: minHold})
			require.Error(t, err)
			require.NotNil(t, g.Hold)
			locktest.Eventually(t, soon, "it is over", func() bool {
				return g.Hold.Undo(locktest.Within(t, 20*time.Millisecond)) == nil
			})
			assert.GreaterOrEqual(t, time.Since(began), max(minHold, keep/2))
			proxy.Set(lab.Reset)
		})
	}
}
