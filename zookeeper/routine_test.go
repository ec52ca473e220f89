package zookeeper_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// versions are the oldest and the newest ZooKeeper that are tested.
var versions = map[string][]lab.Option{"oldest": nil, "newest": {lab.WithTool(lab.ToolNewZooJar)}}

// What happens in production again and again is no outage, and costs no lease, on the oldest server and the newest.
func TestProveRoutineEvents(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for name, version := range versions {
		for what, test := range map[string]func(t *testing.T, version []lab.Option){
			"a connection is closed":            testEndedConnection(func(p *lab.Proxy) { p.Set(lab.Reset); p.Set(lab.Pass) }),
			"a connection is forgotten":         testEndedConnection(func(p *lab.Proxy) { p.Set(lab.Drop); p.PassNew() }),
			"an address moves, and is gone":     testMovedAddress(false),
			"an address moves, and is silent":   testMovedAddress(true),
			"a client's certificate is renewed": testReplacedCertificate,
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				test(t, version)
			})
		}
	}
}

func testEndedConnection(end func(*lab.Proxy)) func(t *testing.T, version []lab.Option) {
	return func(t *testing.T, version []lab.Option) {
		z := lab.StartZooKeeper(t, version...)
		road := lab.StartProxy(t, z.Addr())
		c := newClient(t, []string{road.Addr()}, zookeeper.Options{SessionTimeout: 20 * time.Second})
		held := locktest.Lock(t, c, "held")
		end(road)
		l := locktest.Lock(t, c, "n")
		require.NoError(t, l.Unlock(t.Context()))
		for until := held.Until(); held.Err() == nil && !held.Until().After(until.Add(time.Second)); {
			time.Sleep(10 * time.Millisecond) // it goes on being renewed
		}
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
	}
}

// A child asks, since who looks up names belongs to the whole process.
func testMovedAddress(silent bool) func(t *testing.T, version []lab.Option) {
	return func(t *testing.T, version []lab.Option) {
		z := lab.StartZooKeeper(t, version...)
		_, port, err := net.SplitHostPort(z.Addr())
		require.NoError(t, err)
		var at atomic.Value
		names := lab.StartNames(t, &at)
		at.Store(net.IPv4(127, 0, 0, 2))
		end := lab.Forward(t, "127.0.0.2:"+port, z.Addr())
		child := lab.StartChild(t, "moved", names, "zookeeper://server.test:"+port+"?ttl=20s")
		child.Expect(t, "held", time.Minute)
		lab.Forward(t, "127.0.0.3:"+port, z.Addr())
		at.Store(net.IPv4(127, 0, 0, 3))
		end(silent)
		child.Send(t, "moved")
		child.Expect(t, "works, and nothing was lost", time.Minute)
	}
}

// movedRole is the child. Its arguments: where to look up names, a URL.
func movedRole(p *lab.Parent) {
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", p.Args[0])
		},
	}
	ctx := context.Background()
	c, err := locker.Open(ctx, p.Args[1], nil, zookeeper.Openers)
	if err != nil {
		p.Say("error %v", err)
		return
	}
	held, err := c.Lock(ctx, "n")
	p.Say("held %v", err)
	p.Hear()
	until := held.Until()
	if l, lockErr := c.Lock(ctx, "m"); lockErr != nil {
		err = lockErr
	} else {
		err = l.Unlock(ctx)
	}
	time.Sleep(time.Until(until))
	if err = errors.Join(err, held.Err(), held.Unlock(ctx)); err != nil {
		p.Say("error %v", err)
		return
	}
	p.Say("works, and nothing was lost")
}

func testReplacedCertificate(t *testing.T, version []lab.Option) {
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
