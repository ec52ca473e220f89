package zookeeper_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// versions are the oldest and the newest ZooKeeper that are tested.
var versions = map[string][]lab.Option{"oldest": nil, "newest": {lab.WithTool(lab.ToolNewZooJar)}}

// Routine events in production are no outage and cost no lease, on the oldest server and on the newest.
func TestProveRoutineEvents(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for name, version := range versions {
		for what, end := range map[string]func(old *lab.Proxy, move func()){
			"a connection is closed":          func(old *lab.Proxy, _ func()) { old.Set(lab.Reset); old.Set(lab.Pass) },
			"a connection is forgotten":       func(old *lab.Proxy, _ func()) { old.Set(lab.Drop); old.PassNew() },
			"an address moves, and is gone":   func(old *lab.Proxy, move func()) { move(); old.Set(lab.Reset) },
			"an address moves, and is silent": func(old *lab.Proxy, move func()) { move(); old.Set(lab.Drop) },
		} {
			t.Run(what+", "+name, func(t *testing.T) { testEndedConnection(t, version, end) })
		}
		t.Run("a client's certificate is renewed, "+name, func(t *testing.T) { testReplacedCertificate(t, version) })
	}
}

// The server has a name, whose address is looked up for each connection, as the default Dial does.
func testEndedConnection(t *testing.T, version []lab.Option, end func(old *lab.Proxy, move func())) {
	t.Parallel()
	const name = "server.test:2181"
	z := lab.StartZooKeeper(t, version...)
	old, moved := lab.StartProxy(t, z.Addr()), lab.StartProxy(t, z.Addr())
	var at atomic.Value
	at.Store(old.Addr())
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		assert.Equal(t, name, address)
		return new(net.Dialer).DialContext(ctx, "tcp", at.Load().(string))
	}
	c := newClient(t, []string{name}, zookeeper.Options{SessionTimeout: 40 * time.Second, Dial: dial})
	held := locktest.Lock(t, c, "held")
	began := time.Now()
	end(old, func() { at.Store(moved.Addr()) })
	l := locktest.Lock(t, c, "n")
	assert.Less(t, time.Since(began), 20*time.Second, "a silent connection is given up after 5 s, not the driver's 27")
	require.NoError(t, l.Unlock(t.Context()))
	for until := held.Until(); held.Err() == nil && !held.Until().After(until.Add(time.Second)); {
		time.Sleep(10 * time.Millisecond) // it goes on being renewed
	}
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

func testReplacedCertificate(t *testing.T, version []lab.Option) {
	t.Parallel()
	certs, strangers := lab.NewCerts(t), lab.NewCerts(t)
	z := lab.StartZooKeeper(t, append([]lab.Option{lab.WithTLS(certs), lab.WithConfig("ssl.clientAuth", "need")}, version...)...)
	road := lab.StartProxy(t, z.TLSAddr())
	dir := t.TempDir()
	replace := func(cert, key string) {
		for to, from := range map[string]string{"cert": cert, "key": key} {
			pem, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, to), pem, 0o600))
		}
		road.Set(lab.Reset) // all connections end
		road.Set(lab.Pass)
	}
	replace(certs.ClientCertFile, certs.ClientKeyFile)
	q := url.QueryEscape
	c, err := locker.Open(within(t, soon), "zookeepers://"+road.Addr()+"?ttl=30s&ca="+q(certs.CAFile)+
		"&cert="+q(filepath.Join(dir, "cert"))+"&key="+q(filepath.Join(dir, "key")), &locker.Options{OutageTimeout: -1}, zookeeper.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	held := locktest.Lock(t, c, "n")
	try := func() bool {
		l, err := c.TryLock(within(t, 2*time.Second), "m")
		return err == nil && l.Unlock(t.Context()) == nil
	}
	replace(strangers.ClientCertFile, strangers.ClientKeyFile)
	require.Eventually(t, func() bool { return !try() }, soon, 10*time.Millisecond, "a stranger's certificate is refused")
	replace(certs.CertFile, certs.KeyFile) // also good for clients
	require.Eventually(t, try, soon, 10*time.Millisecond, "the new one is used")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}
