package single_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/single"
)

func TestMain(m *testing.M) {
	var known []goleak.Option
	for _, f := range lab.LeftBySentinels {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	goleak.VerifyTestMain(m, known...)
}

var openers = driver.Openers{
	"redis": single.Open, "rediss": single.Open, "unix": single.Open,
	"redis+sentinel": single.Open, "redis+cluster": single.Open,
}

const (
	ttl  = 30 * time.Second
	soon = 30 * time.Second
)

// newClient returns a client that is closed with the test.
func newClient(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// client returns a Client on one Redis that ends with the test.
func client(t *testing.T, addr string, opts *single.Options) *locker.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	b, err := single.New(rdb, opts)
	require.NoError(t, err)
	c := locktest.Must(locker.New(b, &locker.Options{TTL: 5 * time.Second}))
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, b.Close())
		require.NoError(t, rdb.Ping(context.Background()).Err(), "New was given the client: its user closes it")
		assert.NoError(t, rdb.Close())
	})
	return c
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	certs := lab.NewCerts(t)
	plain := lab.StartRedis(t, lab.WithPassword("sesame"))
	secure := lab.StartRedis(t, lab.WithTLS(certs))
	down := "127.0.0.1:1"
	node := lab.StartRedis(t, lab.WithConfig("cluster-enabled", "yes"))
	full := lab.StartRedis(t, lab.WithConfig("maxclients", "1"))
	locktest.Eventually(t, soon, "the only client that it may have is this one", func() bool {
		last, err := net.Dial("tcp", full.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = last.Close() })
		var said [5]byte
		_, _ = last.Write([]byte("PING\r\n"))
		_, _ = io.ReadFull(last, said[:])
		return string(said[:]) == "+PONG"
	})
	sentinel := func(command, answer string) string {
		s := lab.StartFakeRedis(t, "")
		s.Answer(command, answer)
		return s.Addr() + "?master_name=m"
	}
	refuses := sentinel("sentinel", "-NOAUTH Authentication required.\r\n")
	for name, tc := range map[string]struct {
		url, want string
		is        error
	}{
		"no host":               {"redis://", "it has no host: write redis://host:6379", driver.ErrInvalid},
		"two hosts":             {"redis://a,b", "use redis+cluster or redis+sentinel", driver.ErrInvalid},
		"database is a word":    {"redis://a/x", "the database is not a number", driver.ErrInvalid},
		"database twice":        {"redis://a/1?db=2", "given twice", driver.ErrInvalid},
		"database of a Cluster": {"redis+cluster://a/1", "only database 0", driver.ErrInvalid},
		"socket without path":   {"unix://", "three slashes", driver.ErrInvalid},
		"socket with host":      {"unix://run/redis.sock", "three slashes", driver.ErrInvalid},
		"no master":             {"redis+sentinel://a", "?master_name=", driver.ErrInvalid},
		"certificate of none":   {"rediss://a?cert=x", "give both or none", driver.ErrInvalid},
		"authority of none":     {"rediss://a?ca=/nonexistent", "no such file", driver.ErrInvalid},
		"TLS without TLS":       {"redis://a?ca=/x", `unknown parameter`, driver.ErrInvalid},
		"unknown parameter":     {"redis://a?ttl=1s&pool=3", `unknown parameter`, driver.ErrInvalid},
		"TTL too short": {"redis://:sesame@" + plain.Addr() + "?ttl=50ms", "from 100ms to 720h0m0s",
			driver.ErrInvalid},
		"nobody there": {"redis://:sesame@" + down, "connection refused", driver.ErrUnavailable},
		"no socket there": {"unix://" + filepath.Join(t.TempDir(), "s"), "no such file",
			driver.ErrUnavailable},
		"no password": {"redis://" + plain.Addr(), "NOAUTH Authentication required. (check user and password: in a URL",
			nil},
		"wrong password": {"redis://:sesami@" + plain.Addr(), "user:password@ before the host", nil},
		"TLS where there is none": {"rediss://:sesame@" + plain.Addr(),
			"if the server does not speak TLS, write redis", nil},
		"no TLS where there is": {"redis://" + secure.Addr(), "if the server wants TLS, write rediss", nil},
		"unknown authority":     {"rediss://" + secure.Addr(), "certificate", nil},
		"a node of a Cluster":   {"redis://" + node.Addr(), "write redis+cluster://", nil},
		"too many clients":      {"redis://" + full.Addr(), "max number of clients reached", driver.ErrUnavailable},
		"protected mode":        {"redis://" + farewell(t, protected), "protected mode is enabled and no password", nil},
		"hung up on":            {"redis://" + farewell(t, ""), "if the server wants TLS, write rediss", driver.ErrUnavailable},
		"no Sentinel password":  {"redis+sentinel://:sesame@" + refuses, "parameters sentinel_username and sentinel_password", nil},
		"wrong Sentinel password": {"redis+sentinel://:sesame@" +
			sentinel("auth", "-WRONGPASS invalid username-password pair\r\n") + "&sentinel_password=sesami",
			"sentinel_password", nil},
		"no way to the master": {"redis+sentinel://" + sentinel("sentinel", "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n"),
			"cannot connect to 127.0.0.1:1: connect: connection refused", driver.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := locker.Open(ctx, tc.url, nil, openers)
			if err == nil {
				_ = c.Close()
			}
			require.ErrorContains(t, err, tc.want)
			t.Log(err)
			assert.NotContains(t, err.Error(), "sesam")
			for _, kind := range []error{driver.ErrInvalid, driver.ErrUnavailable} {
				if errors.Is(tc.is, kind) {
					assert.ErrorIs(t, err, kind)
				} else if tc.is != nil {
					assert.NotErrorIs(t, err, kind)
				}
			}
		})
	}
}

// What a Redis says before it hangs up, and goes on about for a page.
const protected = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set " +
	"for the default user. In this mode connections are only accepted from the loopback interface.\r\n"

// farewell returns the address of a server that says what it says and hangs up.
func farewell(t *testing.T, words string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = conn.Write([]byte(words))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestNewRefuses(t *testing.T) {
	_, err := single.New(nil, nil)
	require.ErrorIs(t, err, driver.ErrInvalid)
	rdb := newClient(t, &redis.Options{Addr: "127.0.0.1:1"})
	_, err = single.New(struct{ redis.UniversalClient }{rdb}, nil) // a Ring may be inside
	require.ErrorIs(t, err, driver.ErrInvalid)
	_, err = single.New(rdb, &single.Options{Timeout: -1})
	require.ErrorContains(t, err, "Timeout is -1ns")
	assert.ErrorIs(t, err, driver.ErrInvalid)
}

func TestKeyInTheWayIsNamed(t *testing.T) {
	s := lab.StartRedis(t)
	c := client(t, s.Addr(), nil)
	s.MustDo(t, "LPUSH", redisnode.LockKey("job"), "x")
	_, locked := c.Lock(t.Context(), "job")
	_, inspected := c.Inspect(t.Context(), "job")
	for _, err := range []error{locked, inspected} {
		require.ErrorContains(t, err, "locker:2:{job}")
		assert.ErrorContains(t, err, "delete it")
		assert.NotErrorIs(t, err, driver.ErrHeld)
		assert.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	all, err := locktest.List(t.Context(), c, "")
	require.NoError(t, err)
	assert.Empty(t, all)
	require.NoError(t, c.Break(t.Context(), driver.State{Name: "job", Held: true, Holder: "x"}))
	assert.Equal(t, int64(1), s.MustDo(t, "EXISTS", redisnode.LockKey("job")))
}

func TestEvictionIsWarnedOf(t *testing.T) {
	s := lab.StartRedis(t, lab.WithConfig("maxmemory", "100mb"))
	for policy, warns := range map[string]bool{"allkeys-lru": true, "noeviction": false} {
		s.MustDo(t, "CONFIG", "SET", "maxmemory-policy", policy)
		var log bytes.Buffer
		c, err := locker.Open(t.Context(), "redis://"+s.Addr(),
			&locker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, openers)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		assert.Equal(t, warns, strings.Contains(log.String(), policy), log.String())
	}
}

// Uncontended, a lock costs two commands, and they are those of the scripts.
func TestUncontendedLockIsTwoRoundTrips(t *testing.T) {
	s := lab.StartRedis(t)
	c := client(t, s.Addr(), nil)
	once := func() {
		l := locktest.Lock(t, c, "job")
		require.NoError(t, l.Unlock(t.Context()))
	}
	once()                     // loads the scripts
	lab.Again(t, func() bool { // on a busy machine copies are sent, too
		before := s.Commands(t)
		for range 100 {
			once()
		}
		sent := s.Commands(t).Since(before)
		assert.Zero(t, sent["publish"], "nobody waits")
		return sent["evalsha"] == 200 && sent["eval"] == 0
	})
}

// A request that hangs ends with the client, where that is the backend's own: Close neither waits
// for it nor fails.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	lab.NeedPause(t)
	s := lab.StartRedis(t)
	u, err := driver.ParseURL("redis://" + s.Addr())
	require.NoError(t, err)
	b, err := single.Open(t.Context(), u, driver.Settings{})
	require.NoError(t, err)
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	_, err = locktest.Ask(ctx, b, driver.Request{Name: "n", Owner: "me", TTL: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, b.Close())
}
