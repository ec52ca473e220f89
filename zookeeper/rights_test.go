package zookeeper_test

import (
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

// The right to write is taken away while a lock is held. If it is given back in time, nothing is lost. Otherwise the
// holder loses its lease by its deadline, and nobody gets in before that. Other callers are told why they fail.
func testHeartbeatThatIsRefused(t *testing.T, z *lab.ZooKeeper) {
	const prefix, session = "/refused", 6 * time.Second
	c := newImpatient(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix, SessionTimeout: session})
	l := locktest.Lock(t, c, "a")
	allowBeats(t, z, prefix, zk.PermAll&^zk.PermWrite)
	isRefused(t, c, "b")
	until := l.Until()
	allowBeats(t, z, prefix, zk.PermAll)
	require.Eventually(t, func() bool { return l.Err() != nil || l.Until().After(until) }, soon, 10*time.Millisecond)
	warm(t, c, "b")
	require.NoError(t, l.Err())
	allowBeats(t, z, prefix, zk.PermAll&^zk.PermWrite)
	other := newClient(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix, SessionTimeout: session})
	in := later(t, func() (entrance, error) {
		next, err := other.Lock(within(t, 2*soon), "a")
		return entrance{next, time.Now()}, err
	})
	isRefused(t, c, "b")
	next := <-in
	assert.False(t, next.at.Before(l.Until()), "another got in %v before the holder's Until", l.Until().Sub(next.at))
	require.ErrorIs(t, l.Err(), driver.ErrLost)
	require.NoError(t, next.Unlock(within(t, soon)))
	// That session is over, and the client opens another.
	locktest.Eventually(t, soon, "it has another session", func() bool {
		again, err := c.Lock(within(t, soon), "a")
		return err == nil && nodeOf(t, again).Session != nodeOf(t, l).Session && again.Unlock(within(t, soon)) == nil
	})
}

// Somebody removes a session's own node by hand: it is created again, and nothing is lost.
func testNodeOfTheSessionIsRemoved(t *testing.T, z *lab.ZooKeeper) {
	const prefix = "/by-hand"
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix})
	g := acquire(t, b, asking("a", false))
	admin := adminOf(t, z.Addr())
	for _, beat := range beatsOf(t, admin, prefix) {
		require.NoError(t, admin.Delete(beat, -1))
		require.Eventually(t, func() bool {
			there, _, err := admin.Exists(beat)
			return err == nil && there
		}, soon, 10*time.Millisecond)
	}
	_, err := g.Hold.Renew(within(t, soon))
	require.NoError(t, err)
	require.NoError(t, g.Hold.Release(within(t, soon), 0))
}

// allowBeats sets everybody's rights on a session's own node.
func allowBeats(t *testing.T, z *lab.ZooKeeper, prefix string, perms int32) {
	t.Helper()
	admin := adminOf(t, z.Addr())
	beats := beatsOf(t, admin, prefix)
	require.Len(t, beats, 1)
	_, err := admin.SetACL(beats[0], zk.WorldACL(perms), -1)
	require.NoError(t, err)
}

// isRefused waits until a client's calls fail because its session may not be kept alive.
func isRefused(t *testing.T, c *locker.Client, name string) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		var l *locker.Lease
		if l, err = c.Lock(within(t, soon), name); err == nil {
			err = l.Unlock(within(t, soon))
		}
		return err != nil
	}, soon, 20*time.Millisecond)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
	assert.Contains(t, err.Error(), "to write ")
}
