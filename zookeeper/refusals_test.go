package zookeeper_test

import (
	"errors"
	"fmt"
	"net"
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

// unused returns an address that nobody listens on, nor can before the test ends: a connection was made from there.
func unused(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), l.Close() })
	return c.LocalAddr().String()
}

func TestWrongAddressIsToldAtOnce(t *testing.T) {
	c := newImpatient(t, []string{unused(t), unused(t)}, zookeeper.Options{})
	for range 3 {
		began := time.Now()
		_, err := c.Lock(within(t, soon), "a")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Contains(t, err.Error(), "refused")
		assert.Less(t, time.Since(began), 2*time.Second)
	}
	_, err := locker.Open(within(t, soon), "zookeeper://"+unused(t)+"/locks", nil, zookeeper.Openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	_, err = locker.Open(within(t, soon), "zookeeper://no-such-host.invalid/locks", nil, zookeeper.Openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func testLostQuorumIsToldWithinTheDeadline(t *testing.T, e *lab.ZooKeeperEnsemble) {
	c := newImpatient(t, e.Addrs(), zookeeper.Options{})
	warm(t, c, "a")
	for _, s := range e.Others(e.Leader(t)) {
		s.Kill()
	}
	for range 3 {
		began := time.Now()
		_, err := c.Lock(within(t, 2*time.Second), "a")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrHeld)
		assert.Less(t, time.Since(began), 3*time.Second)
	}
	e.Restart(t)
	require.Eventually(t, func() bool {
		l, err := c.Lock(within(t, 2*time.Second), "a")
		return err == nil && l.Unlock(within(t, soon)) == nil
	}, time.Minute, 10*time.Millisecond)
}

// Credentials are replaced while locks are held: clients that have both give their nodes to
// both, an operator does the same for the nodes that last, and then the old ones can go.
func testCredentialsAreReplaced(t *testing.T, z *lab.ZooKeeper) {
	client := func(auth string) *locker.Client {
		c, err := locker.Open(within(t, soon), "zookeeper://"+z.Addr()+"/replaced?ttl=10s"+auth, nil, zookeeper.Openers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	const before, after = "&auth=digest:user:before", "&auth2=digest:user:after"
	first := locktest.Lock(t, client(before), "a")
	require.NoError(t, first.RaiseToken(within(t, soon), 1<<50)) // makes a node that lasts
	next := lock(t, client(before+after), "a")
	admin := adminOf(t, z.Addr())
	for _, password := range []string{"before", "after"} {
		require.NoError(t, admin.AddAuth("digest", []byte("user:"+password)))
	}
	for _, node := range []string{"/replaced", "/replaced/a", "/replaced/a/%tokens"} {
		_, err := admin.SetACL(node, zk.AuthACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
	require.NoError(t, first.Unlock(within(t, soon)))
	second, alone := <-next, client(after)
	_, err := alone.TryLock(within(t, soon), "a")
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, second.Unlock(within(t, soon)))
	third := locktest.Lock(t, alone, "a")
	was, _ := second.Token()
	is, _ := third.Token()
	assert.Greater(t, is, was)
	require.NoError(t, third.Unlock(within(t, soon)))
	require.NoError(t, locktest.Lock(t, alone, "b").Unlock(within(t, soon)))
}

// Nobody else has rights on the nodes of a client with credentials, which shows them on each connection.
func testCredentials(t *testing.T, z *lab.ZooKeeper) {
	const secret = "s3cr:t&%"
	p := lab.StartProxy(t, z.Addr())
	url := func(password string) string {
		return fmt.Sprintf("zookeeper://%s/app/locks?ttl=4s&auth=digest:user:%s", p.Addr(), password)
	}
	c, err := locker.Open(within(t, soon), url("s3cr:t%26%25"), nil, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	l := locktest.Lock(t, c, "a")
	admin := adminOf(t, z.Addr())
	require.ErrorIs(t, admin.Delete(nodeOf(t, l).Path, -1), zk.ErrNoAuth)
	_, _, err = admin.Get(nodeOf(t, l).Path)
	require.ErrorIs(t, err, zk.ErrNoAuth)

	for _, wrong := range []string{"other-s3cret", "s3cr:t"} {
		began := time.Now()
		_, err = locker.Open(within(t, soon), url(wrong), nil, zookeeper.Openers)
		require.Error(t, err)
		require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		assert.NotContains(t, err.Error(), wrong)
		assert.Contains(t, err.Error(), "/app/locks")
		assert.Less(t, time.Since(began), 3*time.Second)
	}
	p.Set(lab.Reset)
	p.Set(lab.Pass)
	warm(t, c, "b")
	require.NoError(t, l.Unlock(within(t, soon)))

	// Printing Options does not show them.
	auth := zookeeper.Auth{Scheme: "digest", Credentials: "user:" + secret}
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", auth, zookeeper.Options{Auth: []zookeeper.Auth{auth}}, auth), secret)
}

// If the service does not allow locks under a prefix, Open reports that at once, with the reason.
func testPrefixesThatAreRefused(t *testing.T, z *lab.ZooKeeper) {
	admin := adminOf(t, z.Addr())
	for node, one := range map[string]struct {
		flags, perms int32
		want         error
		not          string
	}{
		"/closed": {0, zk.PermRead, zk.ErrNoAuth, "ends with a session"},
		"/mayfly": {zk.FlagEphemeral, zk.PermAll, zk.ErrNoChildrenForEphemerals, "credentials"},
	} {
		_, err := admin.Create(node, nil, one.flags, zk.WorldACL(one.perms))
		require.NoError(t, err)
		for _, prefix := range []string{node, node + "/locks"} {
			began := time.Now()
			_, err = locker.Open(within(t, soon), "zookeeper://"+z.Addr()+prefix+"?ttl=4s", nil, zookeeper.Openers)
			require.ErrorIs(t, err, one.want)
			require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
			assert.Contains(t, err.Error(), prefix)
			assert.NotContains(t, err.Error(), one.not)
			assert.Less(t, time.Since(began), 3*time.Second)
		}
	}
}

func TestProveTLS(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	certs := lab.NewCerts(t)
	z := lab.StartZooKeeper(t, lab.WithTLS(certs))
	c, err := locker.Open(within(t, soon), "zookeepers://"+z.TLSAddr()+"/locks?ttl=20s&ca="+certs.CAFile, nil, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	warm(t, c, "a")

	for what, one := range map[string]struct{ url, want string }{
		"plain to TLS":      {"zookeeper://" + z.TLSAddr() + "/locks?ttl=20s", "write zookeepers://"},
		"TLS to plain":      {"zookeepers://" + z.Addr() + "/locks?ttl=20s&ca=" + certs.CAFile, "write zookeeper://"},
		"unknown authority": {"zookeepers://" + z.TLSAddr() + "/locks?ttl=20s", "unknown authority"},
		"another name": {"zookeepers://" + z.TLSAddr() + "/locks?ttl=20s&ca=" + certs.CAFile +
			"&server_name=other.example", "other.example"},
	} {
		began := time.Now()
		_, err := locker.Open(within(t, soon), one.url, nil, zookeeper.Openers)
		require.Error(t, err, what)
		assert.Equal(t, what == "TLS to plain", errors.Is(err, driver.ErrUnavailable),
			"%s: what does not get better is not called unavailable: %v", what, err)
		assert.Contains(t, err.Error(), one.want)
		assert.Less(t, time.Since(began), soon, what)
	}
}

func testTTLThatTheServersDoNotGrant(t *testing.T, z *lab.ZooKeeper) {
	_, err := locker.Open(within(t, soon), "zookeeper://"+z.Addr()+"/locks?ttl=10s", nil, zookeeper.Openers)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Contains(t, err.Error(), "3s")
	c := newImpatient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 10 * time.Second})
	_, err = c.Lock(within(t, soon), "a")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	l := locktest.Lock(t, c, "a", locker.TTL(2*time.Second))
	assert.LessOrEqual(t, time.Until(l.Until()), 3*time.Second, "what was granted counts")
	require.NoError(t, l.Unlock(within(t, soon)))
	_, err = c.Lock(within(t, soon), "a", locker.TTL(11*time.Second))
	require.Error(t, err)

	// Two ticks are the minimum: a shorter session is granted as a longer one.
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 300 * time.Millisecond})
	var g driver.Grant
	require.Eventually(t, func() bool { // a session as short as that is hard to begin on a busy machine
		g, err = locktest.Ask(within(t, soon), b, driver.Request{Name: "b", Owner: owner(),
			TTL: 300 * time.Millisecond, Lost: func() {}})
		return err == nil
	}, 3*soon, 10*time.Millisecond)
	assert.Equal(t, 400*time.Millisecond, g.Validity.TTL)
	_ = g.Hold.Release(within(t, soon), 0)
}

func TestWhatCannotWork(t *testing.T) {
	for _, opts := range []zookeeper.Options{
		{SessionTimeout: time.Millisecond},
		{SessionTimeout: 100 * 24 * time.Hour},
		{SessionTimeout: time.Second + time.Microsecond},
		{Prefix: "a"},
		{Auth: []zookeeper.Auth{{Scheme: "digest", Credentials: "nopassword"}}},
	} {
		_, err := zookeeper.New([]string{"localhost"}, &opts)
		require.ErrorIs(t, err, driver.ErrInvalid, "%+v", opts)
		assert.NotContains(t, err.Error(), "nopassword")
	}
	_, err := zookeeper.New(nil, nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
	for _, raw := range []string{
		"zookeeper://", "zookeeper://u:s3cret@localhost", "zookeeper://localhost?auth=digest:s3cret",
		"zookeeper://localhost?auth=s3cret",
		"zookeeper://localhost?nosuch=1", "zookeeper://localhost/a//b", "zookeeper://localhost?ca=x",
		"zookeepers://localhost?ca=/no/such",
		"zookeepers://localhost?cert=x", "zookeeper://localhost?ttl=x",
		"zookeeper://localhost?auth=digest:u:p&s3cret=1",
	} {
		_, err := locker.Open(within(t, soon), raw, nil, zookeeper.Openers)
		require.ErrorIs(t, err, driver.ErrInvalid, raw)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}
