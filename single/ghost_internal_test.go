package single

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// behindProxy starts a server and a Backend that reaches it through a proxy.
func behindProxy(t *testing.T) (*lab.Redis, *lab.Proxy, *Backend) {
	t.Helper()
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	// A reply that is lost keeps the driver, and so Close, waiting that long.
	return server, proxy, newNode(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(),
		ReadTimeout: 500 * time.Millisecond}))
}

// holdRequest keeps the next request with this text from the server. waits returns when it has come. letGo lets it go,
// and waits until the server has executed it.
func holdRequest(t *testing.T, server *lab.Redis, proxy *lab.Proxy, text string) (waits, letGo func()) {
	t.Helper()
	var link *lab.Link
	held := make(chan struct{})
	proxy.OnRequest(text, func(l *lab.Link) {
		l.Requests(lab.Hold)
		link = l
		close(held)
	})
	waits = func() {
		t.Helper()
		told(t, held, "no request had "+text+" in it")
	}
	return waits, func() {
		t.Helper()
		waits()
		before := server.Commands(t)
		link.Requests(lab.Pass)
		require.Eventually(t, func() bool { return server.Commands(t).Since(before)["evalsha"] > 0 },
			soon, time.Millisecond, "the request that was held has arrived")
	}
}

// tooShortToGoAlone is a time limit with which a request takes the queue, and is sent once.
const tooShortToGoAlone = 40 * time.Millisecond

// The first copy of an acquire that was sent twice arrives when its lock is released, or not kept any more, or when a
// refusal was taken back. On a machine that is too busy for a caller to go alone there is one copy, and it is tried
// again.
func TestTheFirstCopyOfAnAcquireTakesNothingLater(t *testing.T) {
	for _, how := range []string{"released", "kept", "refused"} {
		t.Run(how, func(t *testing.T) {
			eachKind(t, func(t *testing.T, shared bool) {
				server, proxy, node := behindProxy(t)
				lab.Again(t, func() bool {
					warm(t, node)
					end := func(driver.Hold) {}
					if how == "refused" {
						holder := locktest.Acquire(t, node, asks(false)).Hold
						end = func(driver.Hold) { require.NoError(t, holder.Release(t.Context(), 0)) }
					}
					req := asks(shared)
					_, letGo := holdRequest(t, server, proxy, req.Owner)
					g, err := node.Acquire(t.Context(), req)
					require.NoError(t, err)
					copied := g.Refused != nil && g.Refused.Undo != nil
					if how != "refused" {
						h, ok := g.Hold.(*hold)
						copied = ok && h.copied
						end = func(h driver.Hold) {
							keep := map[bool]time.Duration{true: time.Millisecond}[how == "kept" && copied]
							require.NoError(t, h.Release(t.Context(), keep))
						}
					} else if copied {
						require.NoError(t, ignoreLost(g.Refused.Undo(t.Context())))
					}
					end(g.Hold)
					free := func() bool {
						st, err := node.Inspect(t.Context(), "n")
						return err == nil && !st.Held
					}
					locktest.Eventually(t, soon, "it is free", free)
					letGo()
					if copied {
						assert.True(t, free(), "R7: a ghost has the lock")
					}
					return copied
				})
			})
		})
	}
}
