package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

const (
	// The smallest that servers may have.
	smallBuffer = "-Djute.maxbuffer=131072"
	// A session has room for some 150 locks with long names.
	roomFor = 150
)

// longName returns a name whose node has three bytes for almost each of its own.
func longName(i int) string { return strings.Repeat(" ", 500) + fmt.Sprint(i) }

// lockAll locks n names.
func lockAll(t testing.TB, c *locker.Client, n int) (leases []*locker.Lease) {
	t.Helper()
	leases = make([]*locker.Lease, n)
	aFewAtATime(n, func(i int) {
		var err error
		leases[i], err = c.Lock(within(t, 3*soon), longName(i))
		assert.NoError(t, err)
	})
	return leases
}

func unlockAll(t testing.TB, leases []*locker.Lease) {
	t.Helper()
	aFewAtATime(len(leases), func(i int) { assert.NoError(t, leases[i].Unlock(within(t, soon))) })
}

// serves returns nil if a service carries out a write.
func serves(t testing.TB, e *lab.ZooKeeperEnsemble) error {
	t.Helper()
	admin, done := dial(t, e.Addrs())
	defer done()
	answer := make(chan error, 1)
	go func() {
		_, err := admin.Create("/serves-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-time.After(30 * time.Second):
		return context.DeadlineExceeded
	}
}

// The end of a session is one transaction with the paths of all its nodes, both of holders
// and of waiters. If it is longer than twice jute.maxbuffer, no server can read it, and the
// service is lost.
func TestProveEndOfSessionsDoesNotEndTheService(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithJavaFlag(smallBuffer))
	opts := zookeeper.Options{SessionTimeout: 30 * time.Second}
	holder, waiter := newBackend(t, e.Addrs(), opts), newBackend(t, e.Addrs(), opts)
	lockAll(t, newClientOf(t, holder, soon), 2*roomFor)
	waits := newClientOf(t, waiter, soon)
	for i := range 2 * roomFor {
		go func() { _, _ = waits.Lock(t.Context(), longName(i)) }()
	}
	require.Eventually(t, func() bool {
		text, err := e.Servers[0].FourLetters("dump")
		return err == nil && strings.Count(text, "-lock-") == 4*roomFor
	}, 3*soon, 20*time.Millisecond)
	for _, b := range []*zookeeper.Backend{waiter, holder} {
		require.NoError(t, b.Close())
		require.NoError(t, serves(t, e), "the service is lost")
	}
	for _, s := range e.Servers {
		s.Kill()
	}
	e.Restart(t)
	require.NoError(t, serves(t, e), "the service does not come back")
	found, err := newBackend(t, e.Addrs(), opts).Check(within(t, soon))
	require.NoError(t, err)
	assert.Empty(t, said(found, driver.SeverityProblem), "Check says that these servers read enough")

	// The same nodes on one session: if the service survives that, this test has proven nothing.
	admin, done := dial(t, e.Addrs())
	for i := range 2 * roomFor {
		path := fmt.Sprintf("/%s%d", strings.Repeat("x", 1500), i)
		require.Eventually(t, func() bool {
			_, err := admin.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			return err == nil || errors.Is(err, zk.ErrNodeExists)
		}, soon, 10*time.Millisecond)
	}
	done()
	require.Error(t, serves(t, e))
}

// pathsOf returns, for each session with nodes, what their paths need in the transaction of its end.
func pathsOf(t testing.TB, z *lab.ZooKeeper) (all []int) {
	t.Helper()
	text, err := z.FourLetters("dump")
	require.NoError(t, err)
	_, text, _ = strings.Cut(text, "Sessions with Ephemerals")
	text, _, _ = strings.Cut(text, "Connections dump")
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "\t/"); ok {
			all[len(all)-1] += 4 + len(path)
		} else if strings.HasPrefix(line, "0x") {
			all = append(all, 0)
		}
	}
	return all
}

// A session that fills is followed by others, which end when they are empty.
func testSessionsFillAndEnd(t *testing.T, z *lab.ZooKeeper) {
	// Long enough for a busy machine, and not longer, since an empty session ends after one more.
	opts := zookeeper.Options{SessionTimeout: 12 * time.Second}
	c := newClient(t, []string{z.Addr()}, opts)
	sessions := func() int { return len(pathsOf(t, z)) }
	require.Eventually(t, func() bool { return sessions() == 0 }, 2*soon, 20*time.Millisecond,
		"those of the tests before have ended, at the latest by their timeout")
	leases := lockAll(t, c, 3*roomFor)
	assert.Equal(t, 3, sessions())
	for range 2 { // what has become free is used again
		unlockAll(t, leases[:2*roomFor])
		copy(leases, lockAll(t, c, 2*roomFor))
		assert.Equal(t, 3, sessions())
	}
	for _, bytes := range pathsOf(t, z) {
		assert.LessOrEqual(t, bytes, 255<<10)
	}
	held := map[int64]bool{}
	for i := 0; i < len(leases); i += 10 { // one session looks, and each of them holds some
		_, err := c.TryLock(within(t, soon), longName(i))
		require.ErrorIs(t, err, driver.ErrHeld)
		held[nodeOf(t, leases[i]).Session] = true
	}
	assert.Len(t, held, 3)
	unlockAll(t, leases)
	require.Eventually(t, func() bool { return sessions() == 0 }, 3*soon, 20*time.Millisecond,
		"those that are empty end: a client that neither holds nor waits writes nothing")
	warm(t, c, "goes-on")
}

// If a server refuses another connection, only locks for which there is no room fail, and
// the error says why. A lock that is released makes room.
func testServerRefusesAnotherConnection(t *testing.T, z *lab.ZooKeeper) {
	for range connections - 1 {
		t.Cleanup(occupy(t, z))
	}
	c := newImpatient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 10 * time.Second})
	warm(t, c, "a") // those of the test before may still count
	var leases []*locker.Lease
	for i := 0; ; i++ {
		require.Less(t, i, 2*roomFor)
		l, err := c.Lock(within(t, soon), longName(i))
		if err != nil {
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assert.NotErrorIs(t, err, driver.ErrHeld)
			assert.Contains(t, err.Error(), "the locks of this client fill 1 connection")
			assert.Contains(t, err.Error(), "maxClientCnxns")
			break
		}
		leases = append(leases, l)
	}
	assert.Greater(t, len(leases), roomFor)
	_, err := c.TryLock(within(t, soon), longName(0))
	require.ErrorIs(t, err, driver.ErrHeld, "to look needs no room")
	require.NoError(t, leases[0].Unlock(within(t, soon)))
	for range 5 { // each that fails gives back its room
		l := locktest.Lock(t, c, longName(0))
		_, err = c.Lock(within(t, soon), longName(1000))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NoError(t, l.Unlock(within(t, soon)))
	}
	for _, l := range leases[1:] {
		require.NoError(t, l.Err())
	}
}
