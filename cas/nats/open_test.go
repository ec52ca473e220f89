package nats_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas/nats"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

func TestProveOpenTellsWhatIsWrong(t *testing.T) {
	lab.NeedProve(t)
	down := lab.StartNATS(t, 1)
	down[0].Stop()
	const reads = `"$JS.API.STREAM.INFO.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks"`
	user := func(name, publish string) string {
		return `{ user: ` + name + `, password: "sesame", permissions: { publish: [` + publish + `], subscribe: "_INBOX.>" } }`
	}
	s := lab.StartNATS(t, 1, lab.WithConfig("authorization", `{ users: [{ user: "admin", password: "sesame" }, `+
		user("app", reads+`, "$KV.locks.>"`)+`, `+user("reader", reads)+`] }`)) // app has what doc.go says
	host := s[0].Addr()
	admin := "admin:sesame@" + host
	for _, c := range []jetstream.KeyValueConfig{
		{Bucket: "locks"},
		{Bucket: "ends", TTL: time.Hour},
		{Bucket: "small", MaxValueSize: 100},
		{Bucket: "copy", Mirror: &jetstream.StreamSource{Name: "locks"}},
		{Bucket: "gathers", Sources: []*jetstream.StreamSource{{Name: "locks"}}},
	} {
		makeBucket(t, "nats://"+admin, 1, c)
	}
	certs := lab.NewCerts(t)
	secure := lab.StartNATS(t, 1, lab.WithTLS(certs))[0].Addr()
	makeBucket(t, "tls://"+secure, 1, jetstream.KeyValueConfig{Bucket: "locks"}, natsgo.RootCAs(certs.CAFile))
	for _, url := range []string{"natss://" + secure + "/locks?ca=" + certs.CAFile, "nats://app:sesame@" + host + "/locks"} {
		c, err := locker.Open(t.Context(), url, nil, nats.Openers)
		require.NoError(t, err)
		l, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, l.Renew(t.Context()))
		var names []string
		for st, err := range c.List(t.Context(), "") {
			require.NoError(t, err)
			names = append(names, st.Name)
		}
		require.Equal(t, []string{"a"}, names)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	}
	for url, is := range map[string]struct {
		error
		says string
	}{
		"nats:///locks":                            {driver.ErrInvalid, "nats://host:4222/bucket"},
		"nats://" + host:                           {driver.ErrInvalid, "nats://host:4222/bucket"},
		"nats://" + admin + "/a.b":                 {driver.ErrInvalid, "name of a bucket"},
		"nats://" + host + "/locks?nonsense=1":     {driver.ErrInvalid, "credentials"},
		"nats://" + down[0].Addr() + "/locks":      {driver.ErrUnavailable, "no servers"},
		"natss://" + secure + "/locks":             {driver.ErrUnavailable, "certificate"},
		"nats://" + secure + "/locks":              {driver.ErrUnavailable, "certificate"},
		"natss://" + admin + "/locks":              {driver.ErrUnavailable, "secure"},
		"nats://" + host + "/locks":                {driver.ErrRefused, "Authorization"},
		"nats://admin:wrong@" + host + "/locks":    {driver.ErrRefused, "Authorization"},
		"nats://" + admin + "/none":                {driver.ErrRefused, "nats kv add none"},
		"nats://" + admin + "/ends":                {driver.ErrRefused, "end after a time"},
		"nats://" + admin + "/small":               {driver.ErrRefused, "4096 bytes"},
		"nats://" + admin + "/copy":                {driver.ErrRefused, "mirror"},
		"nats://" + admin + "/gathers":             {driver.ErrRefused, "sources"},
		"nats://app:sesame@" + host + "/elsewhere": {driver.ErrRefused, "$JS.API.STREAM.INFO.KV_elsewhere"},
		"nats://reader:sesame@" + host + "/locks":  {nil, ""},
	} {
		c, err := locker.Open(t.Context(), url, nil, nats.Openers)
		if is.error != nil {
			require.ErrorIs(t, err, is.error, url)
			require.ErrorContains(t, err, is.says, url)
			assert.NotContains(t, err.Error(), "sesame")
			continue
		}
		require.NoError(t, err)
		_, err = c.Lock(t.Context(), "a")
		require.ErrorIs(t, err, driver.ErrRefused, "a right to write")
		require.ErrorContains(t, err, "$KV.locks.a")
		require.NoError(t, c.Close())
	}
}

// hung returns the addresses of servers that accept connections and say nothing.
func hung(t *testing.T, servers int) (addrs []string) {
	for range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := locker.Open(ctx, "nats://"+hung(t, 1)[0]+"/locks", nil, nats.Openers)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

// The driver asks the servers in any order, one after another.
func TestProveOpenPassesServersThatHang(t *testing.T) {
	lab.NeedProve(t)
	good := lab.StartNATS(t, 1)
	makeBucket(t, addrs(good), 1, jetstream.KeyValueConfig{Bucket: "locks"})
	all := append(hung(t, 4), addrs(good))
	c, err := locker.Open(t.Context(), "nats://"+strings.Join(all, ",")+"/locks", nil, nats.Openers)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// A server that refuses the client is not the end of its connection, since its rights may come back; and one that
// cannot serve, such as one that is cut off from its cluster, is left again.
func TestProveAClientComesBack(t *testing.T) {
	lab.NeedProve(t)
	auth := func(password string) lab.Option {
		return lab.WithConfig("authorization", `{ user: "app", password: "`+password+`" }`)
	}
	for name, opts := range map[string][]lab.Option{
		"from one that refuses it":    {auth("other")},
		"from one that serves no one": {auth("sesame"), lab.WithConfig("jetstream", "disabled")},
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := lab.StartNATS(t, 1, auth("sesame")), lab.StartNATS(t, 1, opts...)
			makeBucket(t, "nats://app:sesame@"+good[0].Addr(), 1, jetstream.KeyValueConfig{Bucket: "locks"})
			var c *locker.Client
			require.Eventually(t, func() (opened bool) { // it begins with any of them
				var err error
				c, err = locker.Open(t.Context(), "nats://app:sesame@"+good[0].Addr()+","+bad[0].Addr()+"/locks", nil, nats.Openers)
				return err == nil
			}, 30*time.Second, time.Millisecond)
			good[0].Kill()
			time.Sleep(2 * time.Second) // in which it is refused again and again
			restart(t, good)
			require.Eventually(t, func() bool {
				l, err := c.TryLock(t.Context(), "a")
				return err == nil && l.Unlock(t.Context()) == nil
			}, 30*time.Second, 100*time.Millisecond)
			require.NoError(t, c.Close())
		})
	}
}
