package etcd_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
)

// remembered is a request whose Lost function a backend keeps for as long as it
// keeps anything of it, and what shows whether it does.
func remembered(name string, ttl time.Duration, wait bool) (locker.Request, weak.Pointer[atomic.Int32]) {
	told := new(atomic.Int32)
	req := request(name, ttl, wait)
	req.Lost = func() { told.Add(1) }
	return req, weak.Make(told)
}

// forgotten waits until nothing is kept of the requests. Of a hold that nobody
// releases, that is when its session is through.
func forgotten(t testing.TB, d time.Duration, kept ...weak.Pointer[atomic.Int32]) {
	t.Helper()
	isKept := func(p weak.Pointer[atomic.Int32]) bool { return p.Value() != nil }
	runtime.GC()
	for deadline := time.Now().Add(d); slices.ContainsFunc(kept, isKept); runtime.GC() {
		if time.Now().After(deadline) {
			require.Fail(t, "not within "+d.String()+": nothing is kept of what was lost")
		}
		time.Sleep(50 * time.Millisecond) // collections are dear
	}
}

// What an outage ends, held, waiting or under way, is kept by nobody: each
// outage would cost memory for as long as the process lives.
func TestOutageLeavesNothingInMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	busy, err := backend(t, s.Addrs()).Acquire(ctx, request("busy", time.Minute, false))
	require.NoError(t, err)
	network := newCut(t)
	var late laggard
	b, err := etcd.New(dial(t, s.Addrs(), through(network.dial), late.config), &etcd.Options{Timeout: time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, 10)
	later := func(req locker.Request) {
		go func() {
			_, err := b.Acquire(waits, req)
			answers <- err
		}()
	}
	const ttl = 2 * time.Second
	for range 2 {
		held, isHeld := remembered("held", ttl, false)
		_, err = b.Acquire(ctx, held)
		require.NoError(t, err)
		owed, isOwed := remembered("owed", ttl, false)
		grant, err := b.Acquire(ctx, owed)
		require.NoError(t, err)
		waiting, isWaiting := remembered("busy", ttl, true)
		later(waiting)
		s.queued(t, "busy", 2)
		late.keep(0, queue("under way"))
		underWay, isUnderWay := remembered("under way", ttl, false)
		later(underWay)
		<-late.kept

		network.set(lab.Reset, lab.Reset)
		over, end := context.WithCancel(ctx)
		end()
		require.Error(t, grant.Hold.Release(over))
		forgotten(t, 20*time.Second, isHeld, isOwed)
		cancel() // one is in its queue, the other has not been answered, and the session is through
		for range 2 {
			require.Error(t, <-answers)
		}
		forgotten(t, 5*time.Second, isWaiting, isUnderWay)

		network.set(lab.Pass, lab.Pass)
		s.queued(t, "busy", 1)
		waits, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	require.NoError(t, busy.Hold.Release(ctx))
}

// A session that was not heard of may be kept alive by what is still on its way,
// and its keys with it. They are strangers to the next session: it waits for
// them, and takes none of them for its own or for one that was taken back.
func TestKeyThatASilentSessionLeftIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	network := newCut(t)
	b := backend(t, s.Addrs(), through(network.dial), intercepted(func(ctx context.Context, method string, send func() error) error {
		if strings.HasSuffix(method, "/LeaseRevoke") {
			<-ctx.Done()
			return ctx.Err()
		}
		return send()
	}))
	const ttl, longer = 2 * time.Second, time.Minute
	other, err := b.Acquire(ctx, request("other", longer, false)) // its session lasts
	require.NoError(t, err)
	held, isHeld := remembered("n", ttl, false)
	_, err = b.Acquire(ctx, held)
	require.NoError(t, err)
	leases, _ := s.queued(t, "n", 1)
	alive, err := s.admin.KeepAlive(ctx, *leases[0])
	require.NoError(t, err)
	go func() {
		for range alive { // it logs if nobody listens
		}
	}()
	network.set(lab.Reset, lab.Reset)
	forgotten(t, 20*time.Second, isHeld)
	network.set(lab.Pass, lab.Pass)

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
	_, err = s.admin.Revoke(ctx, *leases[0])
	require.NoError(t, err)
	for range 2 {
		a := <-answers
		require.NoError(t, a.err)
		require.NoError(t, a.grant.Hold.Release(ctx))
	}
	require.NoError(t, other.Hold.Release(ctx))
}

// A name of a key is a cost to etcd until it is compacted: the sessions of one
// client use the same ones, as far as nothing can be left of the one before.
func TestNextSessionNamesItsKeysAsTheOneBeforeDid(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	var names []string
	for range 3 {
		held, isHeld := remembered("n", 2*time.Second, false)
		_, err := b.Acquire(ctx, held)
		require.NoError(t, err)
		leases, keys := s.queued(t, "n", 1)
		names = append(names, keys...)
		_, err = s.admin.Revoke(ctx, *leases[0])
		require.NoError(t, err)
		forgotten(t, 5*time.Second, isHeld)
	}
	assert.Equal(t, []string{names[0], names[0], names[0]}, names)
}
