package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/nats"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	conformance.Run(t, harness(t, lab.StartNATS(t, 1)))
}

func TestProveThreeServers(t *testing.T) {
	lab.NeedProve(t)
	conformance.Run(t, harness(t, lab.StartNATS(t, 3)))
}

func TestProveStore(t *testing.T) {
	lab.NeedProve(t)
	servers := lab.StartNATS(t, 1)
	makeBucket(t, addrs(servers), 1, jetstream.KeyValueConfig{Bucket: "locks"})
	on := func(t *testing.T, addrs string) cas.Store {
		s, err := nats.New(t.Context(), dial(t, addrs), "locks")
		check(t, err)
		return s
	}
	castest.Run(t, castest.Harness{
		New: func(t *testing.T) cas.Store { return on(t, addrs(servers)) },
		Cut: func(t *testing.T) (cas.Store, conformance.Fault) {
			w := lab.StartProxy(t, servers[0].Addr())
			return on(t, w.Addr()), w
		},
	})
}

// A request without an answer ends its connection only after a silence; the others on it are then ended, too, and what
// those have written is not known.
func TestProveARequestThatAnotherEndsIsUnknown(t *testing.T) {
	lab.NeedProve(t)
	servers := lab.StartNATS(t, 1)
	makeBucket(t, addrs(servers), 1, jetstream.KeyValueConfig{Bucket: "locks"})
	w := lab.StartProxy(t, servers[0].Addr())
	s, err := nats.New(t.Context(), dial(t, w.Addr()), "locks")
	require.NoError(t, err)
	nats.Own(s)
	for name, is := range map[string]struct {
		deadline time.Duration
		other    error
	}{
		"short":  {50 * time.Millisecond, nil},
		"silent": {2500 * time.Millisecond, natsgo.ErrConnectionClosed},
	} {
		w.Replies(conformance.Hold)
		before, other := w.Sent(), make(chan error)
		go func() {
			_, err := s.Swap(t.Context(), name, "", []byte("1"))
			other <- err
		}()
		require.Eventually(t, func() bool { return w.Sent() > before }, 30*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), is.deadline)
		_, err = s.Load(ctx, "one")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if is.other == nil {
			w.Replies(conformance.Pass)
		}
		err = <-other
		w.Replies(conformance.Pass)
		require.ErrorIs(t, err, is.other, name)
		require.NotErrorIs(t, err, cas.ErrUnwritten)
		direct, err := nats.New(t.Context(), dial(t, addrs(servers)), "locks")
		require.NoError(t, err)
		e, err := direct.Load(t.Context(), name)
		require.NoError(t, err)
		require.NotEmpty(t, e.Version, "it was written")
		require.Eventually(t, func() bool { _, err := s.Load(t.Context(), name); return err == nil },
			30*time.Second, time.Millisecond)
	}
}

// makeBucket makes a bucket, on as many servers as there are.
func makeBucket(t *testing.T, url string, servers int, config jetstream.KeyValueConfig, opts ...natsgo.Option) {
	t.Helper()
	conn, err := natsgo.Connect(url, opts...)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	config.Replicas = servers
	require.Eventually(t, func() bool { // a cluster that has just started may lack servers to place it on
		_, err = js.CreateKeyValue(t.Context(), config)
		return err == nil
	}, time.Minute, 50*time.Millisecond, "%v", err)
}

func addrs(servers []*lab.NATS) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

func dial(t conformance.T, addrs string) *natsgo.Conn {
	conn, err := natsgo.Connect(addrs, natsgo.MaxReconnects(-1), natsgo.ReconnectBufSize(-1),
		natsgo.ReconnectWait(10*time.Millisecond), natsgo.ReconnectJitter(0, 0), natsgo.Timeout(30*time.Second),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	check(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func stream(t conformance.T, conn *natsgo.Conn) jetstream.Stream {
	js, err := jetstream.New(conn)
	check(t, err)
	s, err := js.Stream(t.Context(), "KV_locks")
	check(t, err)
	return s
}

func check(t conformance.T, err error) {
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
}

func harness(t *testing.T, servers []*lab.NATS) conformance.Harness {
	makeBucket(t, addrs(servers), len(servers), jetstream.KeyValueConfig{Bucket: "locks"})
	all := addrs(servers)
	open := func(ct conformance.T, addrs string) driver.Backend {
		u, err := driver.ParseURL("nats://" + addrs + "/locks")
		check(ct, err)
		b, err := nats.Open(ct.Context(), u, driver.Settings{})
		check(ct, err)
		return b
	}
	h := conformance.Harness{
		TTL: time.Second,
		New: func(ct conformance.T) driver.Backend { return open(ct, all) },
		Pair: func(ct conformance.T) (a, b driver.Backend) {
			s, err := nats.New(ct.Context(), dial(ct, all), "locks")
			check(ct, err)
			a, err = cas.New(s, nil)
			check(ct, err)
			b, err = cas.New(s, nil)
			check(ct, err)
			return a, b
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct, strings.Split(all, ",")...)
			return open(ct, strings.Join(w.Through(strings.Split(all, ",")...), ",")), w
		},
		Delete: func(ct conformance.T, name string) {
			conn := dial(ct, all)
			defer conn.Close()
			check(ct, stream(ct, conn).Purge(ct.Context(), jetstream.WithPurgeSubject(nats.Subject("locks", name))))
		},
		Restart: func(conformance.T) {
			for _, s := range servers {
				s.Kill()
			}
			restart(t, servers)
		},
		Names: []string{".", "*", ">", "a.*", "a=2Eb", "=", "$KV.locks.a", "\x00", "a b", "a\r\n", "é"},
		URL:   "nats://" + all + "/locks",
		Open:  conformance.OpenWith(nats.Openers),
		Unproven: map[string]string{
			"clock-jump":   "the clock of a static Go program is the system's own; no time of the server is asked for",
			"many-sharers": "each that comes writes the record of all, and collides with others",
		},
		KnownGoroutines: []string{"github.com/golockers/locker/internal/lab.(*Process).start.func1"}, // restarted
	}
	if len(servers) > 1 {
		elected := func(ct conformance.T) { // which takes some seconds
			conn := dial(ct, all)
			defer conn.Close()
			serves(t, conn)
		}
		for _, s := range servers { // each knows who leads the bucket that was just made
			conn := dial(t, s.Addr())
			serves(t, conn)
			conn.Close()
		}
		h.Crash = func(ct conformance.T, n int) func() {
			down := servers[:n]
			for _, s := range down {
				s.Kill()
			}
			elected(ct)
			return func() { restart(t, down) }
		}
		h.Failover = func(ct conformance.T) {
			conn := dial(ct, all)
			defer conn.Close()
			is := stream(ct, conn).CachedInfo()
			leader := servers[is.Cluster.Leader[len("nats-")]-'1']
			leader.Kill()
			elected(ct)
			ct.Cleanup(func() { restart(t, []*lab.NATS{leader}) })
		}
	}
	return h
}

// serves returns once a server answers for the bucket.
func serves(t *testing.T, conn *natsgo.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := nats.New(ctx, conn, "locks")
		return err == nil
	}, time.Minute, time.Millisecond)
}

func restart(t *testing.T, servers []*lab.NATS) {
	var all []*lab.Process
	for _, s := range servers {
		all = append(all, s.Process)
	}
	lab.Restart(t, all...)
}
