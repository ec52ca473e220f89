package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// A session that was not heard of may be kept alive by what is still on its way,
// and its keys with it. They are strangers to the next session: it waits for
// them, and takes none of them for its own or for one that was taken back.
func TestKeyThatASilentSessionLeftIsWaitedFor(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	network := lab.StartProxy(t)
	b := backend(
		t,
		s.Addrs(),
		through(network),
		intercepted(func(ctx context.Context, method string, send func() error) error {
			if strings.HasSuffix(method, "/LeaseRevoke") {
				<-ctx.Done()
				return ctx.Err()
			}
			return send()
		}),
	)
	const ttl, longer = 2 * time.Second, time.Minute
	other, err := b.Acquire(ctx, request("other", longer, false)) // its session lasts
	require.NoError(t, err)
	told := make(chan struct{})
	held := request("n", ttl, false)
	held.Lost = func() { close(told) }
	locktest.Acquire(t, b, held)
	leases, _ := s.queued(t, "n", 1)
	alive, err := s.admin.KeepAlive(ctx, *leases[0])
	require.NoError(t, err)
	go func() {
		for range alive { // it logs if nobody listens
		}
	}()
	network.Set(lab.Reset)
	<-told
	network.Set(lab.Pass)

	for _, d := range []time.Duration{ttl, longer} {
		_, err = b.Acquire(ctx, request("n", d, false))
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	type answer struct {
		grant locker.Grant
		err   error
	}
	answers := make(chan answer, 2)
	for i, d := range []time.Duration{ttl, longer} {
		go func() {
			grant, err := b.Acquire(ctx, request("n", d, true))
			answers <- answer{grant, err}
		}()
		s.queued(t, "n", i+2)
	}
	s.revoke(t, *leases[0])
	for range 2 {
		a := <-answers
		require.NoError(t, a.err)
		require.NoError(t, a.grant.Hold.Release(ctx))
	}
	require.NoError(t, other.Hold.Release(ctx))
}

// Each request is bounded by Options.Timeout, whoever's context has no end: a network that is silent from now on
// hangs nobody. With several members, each try has its time within that.
func TestSilentNetworkHangsNobody(t *testing.T) {
	s := parallelScene(t, 3)
	const timeout = 500 * time.Millisecond
	for _, members := range []int{1, 3} {
		network := lab.StartProxy(t)
		open := func() *etcd.Backend {
			driver := dial(t, s.Addrs()[:members], through(network))
			b, err := etcd.New(driver, &etcd.Options{Timeout: timeout})
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.Close() })
			return b
		}
		b, fresh := open(), open()
		ctx := context.Background()
		keep := request(fmt.Sprint("kept", members), 10*time.Second, false)
		keep.MinHold = time.Minute
		kept := locktest.Acquire(t, b, keep)
		network.Set(lab.Drop)
		calls := map[string]func() error{
			"renew":     func() error { _, err := kept.Hold.Renew(ctx); return err }, // the session is still good
			"release":   func() error { return kept.Hold.Release(ctx) },
			"take back": func() error { return kept.Hold.Undo(ctx) },
			"raise":     func() error { return kept.Hold.(locker.TokenRaiser).RaiseToken(ctx, 1<<40) },
			"inspect":   func() error { _, err := b.Inspect(ctx, "n"); return err },
			"list":      func() error { return locktest.Lists(ctx, b) },
			"break":     func() error { _, err := locktest.Break(ctx, b, "n"); return err },
			"check":     func() error { _, err := b.Check(ctx); return err },
		}
		for _, b := range []*etcd.Backend{b, fresh} {
			for _, wait := range []bool{false, true} {
				for _, shared := range []bool{false, true} {
					calls[fmt.Sprintf("acquire, wait=%t shared=%t fresh=%t", wait, shared, b == fresh)] = func() error {
						req := request("n", time.Minute, wait)
						req.Shared = shared
						_, err := b.Acquire(ctx, req)
						return err
					}
				}
			}
		}
		var all sync.WaitGroup
		for what, call := range calls {
			all.Go(func() {
				began := time.Now()
				err := call()
				assert.Less(t, time.Since(began), 20*time.Second, what)
				if what != "renew" {
					assert.ErrorIs(t, err, locker.ErrUnavailable, what)
				}
			})
		}
		all.Wait()
	}
}

// A name of a key is a cost to etcd until it is compacted: a client uses the
// same ones again, whatever the session, once nothing can be left of them.
func TestNextSessionNamesItsKeysAsTheOneBeforeDid(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	var names []string
	for range 3 {
		grant := locktest.Acquire(t, b, request("n", 2*time.Second, false))
		leases, keys := s.queued(t, "n", 1)
		names = append(names, keys...)
		s.revoke(t, *leases[0])
		require.NoError(t, grant.Hold.Undo(ctx))
	}
	assert.Equal(t, []string{names[0], names[0], names[0]}, names)
}
