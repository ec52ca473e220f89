package zookeeper_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

func testListAndBreak(t *testing.T, z *lab.ZooKeeper) {
	const ttl = time.Minute // a renewal would notice, too, but not before 20 s
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{Prefix: "/listed", SessionTimeout: ttl})
	began := time.Now().Truncate(time.Millisecond)
	l := locktest.Lock(t, newClientOf(t, b, soon), "a/2 %ä", locker.Label("me"), locker.TTL(ttl))
	token, _ := l.Token()
	listed := 0
	for st, err := range b.List(within(t, soon), "a/") {
		require.NoError(t, err)
		listed++
		for _, other := range []string{"etcd 1-1", "zookeeper 1", st.Holder + " ", st.Holder + "0x"} {
			st.Holder = other
			require.ErrorIs(t, b.Break(within(t, soon), st), driver.ErrInvalid, other)
		}
		assert.WithinRange(t, st.Since, began, time.Now(), "nobody has come or left since")
		st.Holder, st.Since = "", time.Time{}
		assert.Equal(t, driver.State{Name: "a/2 %ä", Held: true, Label: "me", Token: token}, st)
	}
	require.Equal(t, 1, listed)
	// These could be from another cluster, or from before a restore.
	locktest.Lock(t, newClientOf(t, b, soon), "later")
	later, err := b.Inspect(within(t, soon), "later")
	require.NoError(t, err)
	for _, other := range []string{later.Holder, "zookeeper 1-9000000000"} {
		require.NoError(t, b.Break(within(t, soon), driver.State{Name: "a/2 %ä", Held: true, Holder: other}))
	}
	require.NoError(t, l.Err())
	st, err := b.Inspect(within(t, soon), "a/2 %ä")
	require.NoError(t, err)
	require.True(t, st.Held, "it is another holder's")
	_, err = locktest.Break(within(t, soon), b, "a/2 %ä")
	require.NoError(t, err)
	select {
	case <-l.Done():
		assert.ErrorIs(t, l.Err(), driver.ErrLost)
	case <-time.After(soon / 3):
		t.Error("the holder was not told at once")
	}
}

// For a holder that had to wait, too, Inspect says since when it holds, and not since when it waited, once it has held the
// lock for a second.
func testSinceWhenItIsHeld(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	since := func() time.Time {
		st, err := b.Inspect(within(t, soon), "since")
		require.NoError(t, err)
		require.True(t, st.Held)
		return st.Since
	}
	first := acquire(t, b, asking("since", false))
	next := ask(t, b, asking("since", true))
	eventuallyLen(t, z.Addr(), "since", 2)
	time.Sleep(10 * time.Millisecond) // its clock counts milliseconds
	released := time.Now().Truncate(time.Millisecond)
	require.NoError(t, first.Hold.Release(within(t, soon), 0))
	held := <-next
	last := ask(t, b, asking("since", true))
	eventuallyLen(t, z.Addr(), "since", 2)
	var got time.Time
	require.Eventually(t, func() bool { got = since(); return !got.IsZero() }, soon, time.Millisecond)
	assert.WithinRange(t, got, released, time.Now().Add(-time.Second))
	require.NoError(t, held.Hold.(driver.TokenRaiser).RaiseToken(within(t, soon), held.Token+1))
	assert.Equal(t, got, since(), "that is no new grant")
	require.NoError(t, held.Hold.Release(within(t, soon), 0))
	require.NoError(t, (<-last).Hold.Release(within(t, soon), 0))
}

// List does not wait for the answer about one lock before it asks about the next.
func testListAsksForSeveralAtOnce(t *testing.T, z *lab.ZooKeeper) {
	const n = 8
	p := lab.StartProxy(t, z.Addr())
	b, other := newBackend(t, []string{p.Addr()}, zookeeper.Options{}), newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	var asked atomic.Int32
	for i := range n {
		name := fmt.Sprintf("at-once-%d", i)
		acquire(t, other, asking(name, false))
		p.OnRequest("/locker/"+name, func(*lab.Link) {
			if p.Replies(lab.Hold); asked.Add(1) == n {
				p.Replies(lab.Pass)
			}
		})
	}
	found := 0
	for st, err := range b.List(within(t, 10*time.Second), "at-once-") {
		require.NoError(t, err, "%d of %d were asked for when no answer came", asked.Load(), n)
		assert.True(t, st.Held)
		if found++; found == n-1 {
			break
		}
	}
	assert.Equal(t, n-1, found)
}

// said returns the findings of a severity as text.
func said(found []driver.Finding, severity driver.Severity) string {
	var all []string
	for _, f := range found {
		if f.Severity == severity {
			all = append(all, f.What+": "+f.Found+": "+f.Advice)
		}
	}
	return strings.Join(all, "\n")
}

func testCheck(t *testing.T, z, other *lab.ZooKeeper) {
	check := func(servers []string, opts zookeeper.Options) []driver.Finding {
		found, err := newBackend(t, servers, opts).Check(within(t, soon))
		require.NoError(t, err)
		return found
	}
	found := check([]string{z.Addr()}, zookeeper.Options{})
	assert.Empty(t, said(found, driver.SeverityProblem)+said(found, driver.SeverityWarning))
	assert.Contains(t, said(found, driver.SeverityOK), "3.")

	found = check([]string{z.Addr(), strings.Replace(z.Addr(), "127.0.0.1", "localhost", 1)},
		zookeeper.Options{})
	assert.Contains(t, said(found, driver.SeverityProblem), "stand alone")
	assert.NotContains(t, said(found, driver.SeverityProblem), "it is another one", "it is one server")
	another := other.Addr()
	problems := said(check([]string{z.Addr(), another}, zookeeper.Options{}), driver.SeverityProblem)
	assert.Contains(t, problems, "it is another one than that of ")
	assert.Contains(t, problems, another)
	assert.Contains(t, problems, z.Addr())
	found = check([]string{z.Addr()}, zookeeper.Options{SessionTimeout: 2 * time.Minute})
	assert.Contains(t, said(found, driver.SeverityProblem), "maxSessionTimeout")
	locktest.Eventually(t, soon, "a warning of three ticks", func() bool { // with so short a session, no server may be late
		found, err := newBackend(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 500 * time.Millisecond}).
			Check(within(t, soon))
		return err == nil && strings.Contains(said(found, driver.SeverityWarning), "three ticks")
	})
	_, err := newBackend(t, []string{unused(t)}, zookeeper.Options{}).Check(within(t, soon))
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func testCheckOfAnEnsemble(t *testing.T, e *lab.ZooKeeperEnsemble) {
	b := newBackend(t, e.Addrs(), zookeeper.Options{})
	// A leader that was paused in an earlier test may not know yet that it has been replaced.
	require.Eventually(t, func() bool {
		found, err := b.Check(within(t, soon))
		return err == nil && said(found, driver.SeverityProblem)+said(found, driver.SeverityWarning) == ""
	}, soon, 50*time.Millisecond)
	found, err := newBackend(t, e.Addrs()[:2], zookeeper.Options{}).Check(within(t, soon))
	require.NoError(t, err)
	assert.Contains(t, said(found, driver.SeverityWarning), "even number")
	assert.Contains(t, said(found, driver.SeverityWarning), "members of the ensemble: 3")
}
