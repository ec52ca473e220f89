package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
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
	other, err := locktest.Ask(ctx, b, request("other", longer, false)) // its session lasts
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
		_, err = locktest.Ask(ctx, b, request("n", d, false))
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	type answer struct {
		grant driver.Grant
		err   error
	}
	answers := make(chan answer, 2)
	for i, d := range []time.Duration{ttl, longer} {
		go func() {
			grant, err := locktest.Ask(ctx, b, request("n", d, true))
			answers <- answer{grant, err}
		}()
		s.queued(t, "n", i+2)
	}
	s.revoke(t, *leases[0])
	for range 2 {
		a := <-answers
		require.NoError(t, a.err)
		require.NoError(t, a.grant.Hold.Release(ctx, 0))
	}
	require.NoError(t, other.Hold.Release(ctx, 0))
}

// A name of a key is a cost to etcd until it is compacted: a client uses the
// same ones again, whatever the session, once nothing can be left of them.
func TestNextSessionNamesItsKeysAsTheOneBeforeDid(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	var names []string
	for range 3 {
		grant := locktest.Acquire(t, b, request("n", time.Minute, false))
		leases, keys := s.queued(t, "n", 1)
		names = append(names, keys...)
		s.revoke(t, *leases[0])
		require.NoError(t, grant.Hold.Undo(ctx))
	}
	assert.Equal(t, []string{names[0], names[0], names[0]}, names)
}
