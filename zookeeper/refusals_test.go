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

// unused returns an address that nobody listens on.
func unused(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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

func openURL(t testing.TB, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(within(t, time.Minute), url, nil, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Credentials are replaced while locks are held: clients with both give their nodes to
// both, an operator gives both what has lasted, and then the old ones are not needed.
func testCredentialsAreReplaced(t *testing.T, z *lab.ZooKeeper) {
	client := func(auth string) *locker.Client {
		return openURL(t, "zookeeper://"+z.Addr()+"/replaced?ttl=10s"+auth)
	}
	lock := func(c *locker.Client, name string) *locker.Lease {
		l := locktest.Lock(t, c, name)
		return l
	}
	const before, after = "&auth=digest:user:before", "&auth2=digest:user:after"
	first := lock(client(before), "a")
	require.NoError(t, first.RaiseToken(within(t, soon), 1<<50)) // makes a node that lasts
	both := client(before + after)
	next := make(chan *locker.Lease, 1)
	go func() {
		l, err := both.Lock(within(t, soon), "a")
		assert.NoError(t, err)
		next <- l
	}()
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	for _, password := range []string{"before", "after"} {
		require.NoError(t, admin.AddAuth("digest", []byte("user:"+password)))
	}
	for _, node := range []string{"/replaced", "/replaced/a", "/replaced/a/%tokens"} {
		_, err := admin.SetACL(node, zk.AuthACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
	require.NoError(t, first.Unlock(within(t, soon)))
	second := <-next
	require.NotNil(t, second)
	alone := client(after)
	_, err := alone.TryLock(within(t, soon), "a")
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, second.Unlock(within(t, soon)))
	third := lock(alone, "a")
	was, _ := second.Token()
	is, _ := third.Token()
	assert.Greater(t, is, was)
	require.NoError(t, third.Unlock(within(t, soon)))
	require.NoError(t, lock(alone, "b").Unlock(within(t, soon)))
}

func testCredentials(t *testing.T, z *lab.ZooKeeper) {
	const secret = "s3cr:t&%"
	url := func(password string) string {
		return fmt.Sprintf("zookeeper://%s/app/locks?ttl=4s&auth=digest:user:%s", z.Addr(), password)
	}
	c, err := locker.Open(within(t, soon), url("s3cr:t%26%25"), nil, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	l := locktest.Lock(t, c, "a")
	var node zookeeper.Node
	require.True(t, l.As(&node))
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	require.ErrorIs(t, admin.Delete(node.Path, -1), zk.ErrNoAuth)
	_, _, err = admin.Get(node.Path)
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
	require.NoError(t, l.Unlock(within(t, soon)))

	// As an Options value is printed.
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v",
		zookeeper.Auth{Scheme: "digest", Credentials: "user:" + secret},
		zookeeper.Options{Auth: []zookeeper.Auth{{Scheme: "digest",
			Credentials: "user:" + secret}}}, zookeeper.Auth{Scheme: "digest", Credentials: "user:" + secret}), secret)
}

func testCredentialsSurviveAReconnection(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	c := newImpatient(t, []string{p.Addr()}, zookeeper.Options{Prefix: "/reconnects",
		Auth: []zookeeper.Auth{{Scheme: "digest", Credentials: "u:p"}}})
	for range 4 {
		l := lockWhenBack(t, c, "a")
		p.Set(lab.Reset)
		p.Set(lab.Pass)
		if err := l.Unlock(within(t, soon)); err != nil { // the engine goes on with it
			require.ErrorIs(t, err, driver.ErrUnavailable)
		}
	}
	useWhenBack(t, c, "a")
}

func testPrefixThatMayNotBeWritten(t *testing.T, z *lab.ZooKeeper) {
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	_, err := admin.Create("/closed", nil, 0, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	for _, prefix := range []string{"/closed", "/closed/locks"} {
		c := newImpatient(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix})
		began := time.Now()
		_, err = c.Lock(within(t, soon), "a")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrHeld)
		assert.Contains(t, err.Error(), prefix)
		assert.Less(t, time.Since(began), 3*time.Second)
	}
}

func testPrefixThatCannotHaveChildren(t *testing.T, z *lab.ZooKeeper) {
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	_, err := admin.Create("/mayfly", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, prefix := range []string{"/mayfly", "/mayfly/locks"} {
		began := time.Now()
		_, err = locker.Open(within(t, soon), "zookeeper://"+z.Addr()+prefix+"?ttl=4s", nil, zookeeper.Openers)
		require.ErrorIs(t, err, zk.ErrNoChildrenForEphemerals)
		require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
		assert.Contains(t, err.Error(), prefix)
		assert.NotContains(t, err.Error(), "credentials", "it is not for want of a right")
		assert.Less(t, time.Since(began), 3*time.Second)
	}
}

func TestProveTLS(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	certs := lab.NewCerts(t)
	z := lab.StartZooKeeper(t, lab.WithTLS(certs))
	c, err := locker.Open(within(t, soon), "zookeepers://"+z.TLSAddr()+"/locks?ttl=4s&ca="+certs.CAFile, nil, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	warm(t, c, "a")

	wants := map[string]string{
		"plain to TLS": "write zookeepers://", "TLS to plain": "write zookeeper://",
		"unknown authority": "unknown authority", "another name": "other.example",
	}
	for what, raw := range map[string]string{
		"plain to TLS":      "zookeeper://" + z.TLSAddr() + "/locks?ttl=20s",
		"TLS to plain":      "zookeepers://" + z.Addr() + "/locks?ttl=20s&ca=" + certs.CAFile,
		"unknown authority": "zookeepers://" + z.TLSAddr() + "/locks?ttl=20s",
		"another name": "zookeepers://" + z.TLSAddr() + "/locks?ttl=20s&ca=" + certs.CAFile +
			"&server_name=other.example",
	} {
		began := time.Now()
		_, err := locker.Open(within(t, soon), raw, nil, zookeeper.Openers)
		require.Error(t, err, what)
		assert.Equal(t, what == "TLS to plain", errors.Is(err, driver.ErrUnavailable),
			"%s: what does not get better is not called unavailable: %v", what, err)
		assert.Contains(t, err.Error(), wants[what])
		assert.Less(t, time.Since(began), soon, what)
	}
}

func TestTTLThatTheServersDoNotGrant(t *testing.T) {
	t.Parallel()
	z := lab.StartZooKeeper(t, lab.WithConfig("maxSessionTimeout", "3000"))
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

	// Two ticks are the least: what was asked for less is granted for more.
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
		{Prefix: "/"}, {Prefix: "a"}, {Prefix: "/a/"}, {Prefix: "/a//b"}, {Prefix: "/a/../b"},
		{Prefix: "/zookeeper/a"}, {Prefix: "/a\x00"},
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
