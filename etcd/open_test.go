package etcd_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

var openers = driver.Openers{"etcd": etcd.Open, "etcds": etcd.Open}

// refusal opens a URL that cannot work, and returns the error.
func refusal(t *testing.T, rawURL string) error {
	t.Helper()
	began := time.Now()
	c, err := locker.Open(t.Context(), rawURL, nil, openers)
	if err == nil {
		_ = c.Close()
	}
	require.Error(t, err)
	assert.Less(t, time.Since(began), 20*time.Second, "told in time")
	assert.NotContains(t, err.Error(), "sesame", "the password is not repeated")
	assert.NotContains(t, err.Error(), "\n")
	t.Logf("%v: %v", time.Since(began).Round(time.Millisecond), err)
	return err
}

func works(t *testing.T, rawURL string) driver.Guarantees {
	t.Helper()
	c, err := locker.Open(t.Context(), rawURL, nil, openers)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	l := locktest.Lock(t, c, "opened")
	require.NoError(t, l.Unlock(t.Context()))
	return c.Guarantees()
}

func TestOpenTellsWhatIsWrongWithTheURL(t *testing.T) {
	for rawURL, says := range map[string]string{
		"etcd://":                        "no host",
		"etcd://h:1/p?nonsense=1":        "unknown parameter",
		"etcd://u@h:1":                   "user and a password",
		"etcd://h:1/a//b":                "Prefix",
		"etcd://h:1/a/1/lock":            "Prefix",
		"etcd://h:1/a/1/lock/b":          "Prefix",
		"etcd://h:1/a%2F1%2Flock":        "Prefix",
		"etcd://h:1?ca=x":                "unknown parameter",
		"etcds://h:1?ca=/no/such/file":   "no such file",
		"etcds://h:1?cert=/no/such/file": "go together",
		"etcd://h:1?timeout=never":       "timeout",
		"etcd://u:sesame@h:1/p?ttl=10ms": "",
		"etcd://h:1?members=x":           "members",
	} {
		err := refusal(t, rawURL)
		if says != "" {
			require.ErrorIs(t, err, driver.ErrInvalid, rawURL)
			require.ErrorContains(t, err, says, rawURL)
		}
	}
}

func TestOpenTellsThatNobodyIsThere(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	silent := l.Addr().String()
	t.Cleanup(func() { _ = l.Close() })
	err = refusal(t, "etcd://u:sesame@127.0.0.1:1,127.0.0.1:2/p")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "connection refused")
	err = refusal(t, "etcd://"+silent)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	err = refusal(t, "etcd://no-such-host.invalid:2379")
	require.ErrorIs(t, err, driver.ErrUnavailable)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = locker.Open(ctx, "etcd://"+silent, nil, openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.Less(t, time.Since(began), 2*time.Second)
}

// HTTPS_PROXY names a proxy for the web, and is not for lock services. A child opens, since a process reads
// the variable once.
func TestOpenAsksNoHTTPProxy(t *testing.T) {
	t.Parallel()
	child := lab.StartChild(t, "proxied")
	child.Expect(t, "the proxy was not asked", time.Minute)
}

func proxied(p *lab.Parent) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.Say("error %v", err)
		return
	}
	var asked atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Store(true)
			_ = c.Close()
		}
	}()
	_ = os.Setenv("HTTPS_PROXY", "http://"+l.Addr().String())
	for _, scheme := range []string{"etcd", "etcds"} {
		_, err = locker.Open(context.Background(), scheme+"://etcd.invalid:2379", nil, openers)
		p.Say("%s: %v", scheme, err)
	}
	if !asked.Load() {
		p.Say("the proxy was not asked")
	}
}

func TestProveOpenNeedsAMajority(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartEtcd(t, 3)
	u := "etcd://" + strings.Join(s.Addrs(), ",") + "/p"
	g := works(t, u)
	assert.Equal(t, 1, g.ServerCrashes, "it has counted the members")
	assert.True(t, g.SurvivesFailover)
	assert.Equal(t, 2, works(t, u+"?members=5").ServerCrashes)
	assert.Zero(t, g.MaxTTL)
	strict := works(t, u+"?strict_expiry=true")
	assert.Equal(t, 30*time.Second, strict.MaxTTL)
	assert.Equal(t, g.DeadHolderSlack+strict.MaxTTL, strict.DeadHolderSlack)
	strict = works(t, u+"?strict_expiry=true&ttl=90s")
	assert.Equal(t, g.DeadHolderSlack+90*time.Second, strict.DeadHolderSlack)
	s.Leader(t).Kill()
	s.Leader(t).Kill()
	require.ErrorIs(t, refusal(t, u), driver.ErrUnavailable)
}

func TestProveOpenWithAuthentication(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartEtcd(t, 1, lab.WithConfig("bcrypt-cost", "4"))
	withAuth(t, dial(t, s.Addrs()))
	at := s.Nodes[0].Addr()
	works(t, "etcd://locker:pass@"+at)
	for rawURL, says := range map[string]string{
		"etcd://locker:sesame@" + at:           "authentication failed",
		"etcd://" + at:                         "asks for a user",
		"etcd://stranger:pass@" + at:           "permission denied",
		"etcd://locker:pass@" + at + "/theirs": "permission denied",
	} {
		err := refusal(t, rawURL)
		require.ErrorContains(t, err, says)
		require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
	}
}

func TestProveOpenWithTLS(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	certs, strangers := lab.NewCerts(t), lab.NewCerts(t)
	q := url.QueryEscape
	s := lab.StartEtcd(t, 1, lab.WithTLS(certs))
	at := s.Nodes[0].Addr()
	works(t, "etcds://"+at+"?ca="+q(certs.CAFile))
	works(t, "etcds://"+at+"?ca="+q(certs.CAFile)+"&server_name=localhost")
	for _, rawURL := range []string{
		"etcd://" + at,
		"etcds://" + at,
		"etcds://" + at + "?ca=" + q(strangers.CAFile),
		"etcds://" + at + "?ca=" + q(certs.CAFile) + "&server_name=elsewhere",
	} {
		err := refusal(t, rawURL)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		if strings.HasPrefix(rawURL, "etcd:") {
			require.ErrorContains(t, err, "it speaks TLS: write etcds://")
		}
	}
	s = lab.StartEtcd(t, 1)
	err := refusal(t, "etcds://"+s.Nodes[0].Addr())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "write etcd://")
}

// The certificates of the server and of the client are replaced, in their files, while a lock is held.
func TestProveCertificatesThatAreReplacedCountForTheNextConnection(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testReplacedCertificates(t, version...)
		})
	}
}

func testReplacedCertificates(t *testing.T, version ...lab.Option) {
	certs, strangers := lab.NewCerts(t), lab.NewCerts(t)
	s := lab.StartEtcd(t, 1, append([]lab.Option{lab.WithTLS(certs), lab.WithConfig("client-cert-auth", "true"),
		lab.WithConfig("trusted-ca-file", certs.CAFile)}, version...)...)
	road := lab.StartProxy(t, s.Nodes[0].Addr())
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
	u := "etcds://" + road.Addr() + "?ca=" + q(certs.CAFile)
	require.ErrorIs(t, refusal(t, u), driver.ErrUnavailable, "it has to show one")
	c, err := locker.Open(t.Context(), u+
		"&cert="+q(filepath.Join(dir, "cert"))+"&key="+q(filepath.Join(dir, "key")),
		&locker.Options{TTL: 10 * time.Second, OutageTimeout: -1}, openers)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	held := locktest.Lock(t, c, "n")
	try := func() error {
		l, err := c.TryLock(within(t, 2*time.Second), "m")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		return err
	}
	replace(strangers.ClientCertFile, strangers.ClientKeyFile)
	eventually(t, 30*time.Second, "a stranger's certificate is shown, and refused",
		func() bool { return try() != nil })
	require.NoError(t, certs.Renew()) // the server's, which is also good for clients
	replace(certs.CertFile, certs.KeyFile)
	eventually(t, 30*time.Second, "the new certificates are used", func() bool { return try() == nil })
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	_, err := etcd.New(nil, nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = etcd.New(clientv3.NewCtxClient(t.Context()), nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, "clientv3.New")
	c := dial(t, []string{"127.0.0.1:1"})
	for _, o := range []*etcd.Options{
		{Timeout: -1}, {Members: -1}, {Prefix: "/a"}, {Prefix: "a//b"}, {Prefix: "a/1/lock"},
		{Prefix: "a/1/lock/1"}, {Prefix: strings.Repeat("a", 300)},
	} {
		_, err = etcd.New(c, o)
		require.ErrorIs(t, err, driver.ErrInvalid)
	}
	// Without a server, a quick answer that says why.
	b, err := etcd.New(c, nil)
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	for range 3 {
		began := time.Now()
		_, err = locktest.Ask(t.Context(), b, request("n", time.Second, true))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		t.Log(time.Since(began), err)
		require.Less(t, time.Since(began), 2*time.Second)
	}
	require.ErrorContains(t, err, "connection refused")
}

// What the options promise is known before there is a server, and is what a Backend with them declares.
func TestGuaranteesAreThoseOfTheOptions(t *testing.T) {
	c := dial(t, []string{"127.0.0.1:1"})
	for _, o := range []*etcd.Options{nil, {Members: 3}, {StrictExpiry: true}, {StrictExpiry: true, MaxTTL: time.Minute}} {
		b, err := etcd.New(c, o)
		require.NoError(t, err)
		assert.Equal(t, etcd.Guarantees(o), b.Guarantees())
		assert.Equal(t, o != nil && o.StrictExpiry, b.Guarantees().SurvivesPause)
		require.NoError(t, b.Close())
	}
}
