package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// as logs a client in.
func as(user string) func(*clientv3.Config) {
	return func(c *clientv3.Config) { c.Username, c.Password = user, "pass" }
}

// tokenKinds are etcds of both versions whose users' tokens last for a second or two.
func tokenKinds(t *testing.T) map[string][]lab.Option {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600))
	kinds := map[string][]lab.Option{}
	for name, v := range versions {
		kinds["simple, "+name] = append([]lab.Option{lab.WithConfig("auth-token-ttl", "2")}, v...)
		kinds["jwt, "+name] = append([]lab.Option{
			lab.WithConfig("auth-token", "jwt,sign-method=HS256,ttl=1s,priv-key="+key)}, v...)
	}
	return kinds
}

// withAuthScene is a cluster with authentication, whose admin is root.
func withAuthScene(t *testing.T, opts ...lab.Option) scene {
	s := newScene(t, 1, append(opts, lab.WithConfig("bcrypt-cost", "4"))...)
	withAuth(t, s.admin)
	s.admin = dial(t, s.Addrs(), as("root"))
	return s
}

// The stream of the watches keeps the token with which it was opened, and etcd refuses each new watch on
// it once that has expired: the waiter hung for ever, and everybody behind it.
func TestProveWaiterOnAStreamThatIsOlderThanItsTokenGetsTheLock(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	kinds := tokenKinds(t)
	delete(kinds, "jwt, oldest") // there the driver, by which the test looks on, hangs as soon as its own token expires
	for kind, opts := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := withAuthScene(t, opts...)
			ctx := t.Context()
			var clients []*locker.Client
			for range 3 {
				c := client(t, s.Addrs(), 2*time.Second, as("locker"))
				warm, err := c.Lock(ctx, "warm") // its session watches from now on
				require.NoError(t, err)
				require.NoError(t, warm.Unlock(ctx))
				clients = append(clients, c)
			}
			holder, waiter, behind := clients[0], clients[1], clients[2]
			for round := range 2 {
				time.Sleep(3500 * time.Millisecond) // a simple token ends when it was not used for its time, and a second more
				name := fmt.Sprint("n", round)
				held := locktest.Lock(t, holder, name)
				s.admin = dial(t, s.Addrs(), as("root")) // the oldest etcd does not let the driver log in whose token is over
				first := lockLater(ctx, waiter, name)
				s.queued(t, name, 2)
				second := lockLater(ctx, behind, name)
				s.queued(t, name, 3)
				if round > 0 {
					s.watched(t, 2) // released before that, a look would be enough
				}
				require.NoError(t, held.Unlock(ctx))
				got := s.get(t, first, beforeThePoll)
				require.NoError(t, got.lease.Unlock(ctx))
				got = s.get(t, second, beforeThePoll)
				require.NoError(t, got.lease.Unlock(ctx))
			}
		})
	}
}

// The token of a client that has asked for nothing for a while has expired, whatever the version of etcd: requests are
// answered all the same, and log in together. The driver alone hangs for ever on the oldest.
func TestTokenThatHasExpiredIsRenewed(t *testing.T) {
	kinds := tokenKinds(t)
	delete(kinds, "simple, newest")
	delete(kinds, "jwt, oldest")
	testExpiredToken(t, kinds)
}

func TestProveTokenThatHasExpiredIsRenewed(t *testing.T) {
	lab.NeedProve(t)
	kinds := tokenKinds(t)
	delete(kinds, "simple, oldest")
	delete(kinds, "jwt, newest")
	testExpiredToken(t, kinds)
}

func testExpiredToken(t *testing.T, kinds map[string][]lab.Option) {
	t.Parallel()
	for kind, opts := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := withAuthScene(t, opts...)
			const callers = 20
			var refused, logins atomic.Int64
			var counts atomic.Bool
			b := patientBackend(t, s.Addrs(), as("locker"), intercepted(func(ctx context.Context, method string, send func() error) error {
				if strings.HasSuffix(method, "/Authenticate") {
					for logins.Add(1); 0 < refused.Load() && refused.Load() < callers; { // all are to meet it
						if err := clock.Sleep(ctx, time.Millisecond); err != nil {
							return err
						}
					}
					return send()
				}
				err := send()
				if counts.Load() && strings.HasSuffix(method, "/Txn") && errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
					refused.Add(1)
				}
				return err
			}))
			ctx := t.Context()
			held := locktest.Acquire(t, b, request("held", time.Hour, false)) // it asks for nothing for a while
			for refused.Load() == 0 {
				time.Sleep(4 * time.Second)
				logins.Store(0)
				counts.Store(true)
				answers := make(chan error, callers)
				for i := range callers {
					go func() {
						g, err := locktest.Ask(ctx, b, request(fmt.Sprint("n", i), time.Hour, false))
						if err == nil {
							err = g.Hold.Release(ctx, 0)
						}
						answers <- err
					}()
				}
				for range callers {
					require.NoError(t, <-answers)
				}
			}
			assert.Less(t, logins.Load(), int64(callers/2), "not each for itself")
			require.NoError(t, held.Hold.Release(ctx, 0))
		})
	}
}

// What asking again does not mend is told as such, within a TTL, by those who wait and by those who come.
func TestRightsThatAreTakenAwayAreToldToWaiters(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		says string
		do   func(t *testing.T, s scene)
	}{
		"role revoked": {"permission denied", func(t *testing.T, s scene) {
			_, err := s.admin.UserRevokeRole(t.Context(), "locker", "locker")
			require.NoError(t, err)
		}},
		"password changed": {"authentication failed", func(t *testing.T, s scene) {
			_, err := s.admin.UserChangePassword(t.Context(), "locker", "another")
			require.NoError(t, err)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := withAuthScene(t)
			const ttl = 3 * time.Second
			held := locktest.Lock(t, client(t, s.Addrs(), time.Minute, as("root")), "n")
			waiter := client(t, s.Addrs(), ttl, as("locker"))
			answer := lockLater(t.Context(), waiter, "n")
			s.queued(t, "n", 2)
			s.watched(t, 1)
			c.do(t, s)
			told := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, c.says)
				require.NotErrorIs(t, err, driver.ErrUnavailable, "asking again does not help")
				require.NotErrorIs(t, err, driver.ErrHeld)
			}
			select {
			case a := <-answer:
				told(a.err)
			case <-time.After(2 * ttl):
				require.Fail(t, "the waiter was not told")
			}
			_, err := waiter.Lock(within(t, 10*time.Second), "m")
			told(err)
			require.NoError(t, held.Err())
			assert.NoError(t, held.Unlock(t.Context()))
		})
	}
}
