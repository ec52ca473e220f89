package zookeeper_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"hold": holdRole})
	// The driver's Close waits up to a second for an answer that may not come: see closeDriver.
	// Which function is on top depends on what the compiler inlines.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-zookeeper/zk.(*Conn).Close"),
		goleak.IgnoreAnyFunction("github.com/go-zookeeper/zk.(*Conn).Close.func1"))
}

const soon = 30 * time.Second

// newBackend returns a backend that is closed with the test. Its sessions are long by default, because a server that is
// silent for a quarter of the timeout is an outage, and a machine may stall for seconds.
func newBackend(t testing.TB, servers []string, opts zookeeper.Options) *zookeeper.Backend {
	t.Helper()
	if opts.SessionTimeout == 0 {
		opts.SessionTimeout = 12 * time.Second
	}
	b, err := zookeeper.New(servers, &opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// newClient returns a client that waits out what a busy machine does to its connection.
func newClient(t testing.TB, servers []string, opts zookeeper.Options) *locker.Client {
	t.Helper()
	return newClientOf(t, newBackend(t, servers, opts), soon)
}

// newImpatient returns a client that reports an outage at once.
func newImpatient(t testing.TB, servers []string, opts zookeeper.Options) *locker.Client {
	t.Helper()
	return newClientOf(t, newBackend(t, servers, opts), -1)
}

func newClientOf(t testing.TB, b *zookeeper.Backend, patience time.Duration) *locker.Client {
	t.Helper()
	c := locktest.Must(locker.New(b, &locker.Options{OutageTimeout: patience}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// warm makes sure that a client has a session, which can take several tries on a busy machine.
func warm(t testing.TB, c *locker.Client, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err := c.Lock(t.Context(), name)
		return err == nil && l.Unlock(t.Context()) == nil
	}, 3*soon, 10*time.Millisecond)
}

func owner() string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// asking returns a request such as the engine makes.
func asking(name string, wait bool) driver.Request {
	return driver.Request{Name: name, Owner: owner(), TTL: time.Second, Wait: wait, Queued: func() {}, Lost: func() {}}
}

// lock and ask wait for a lock in the background.
func lock(t testing.TB, c *locker.Client, name string, opts ...locker.Option) <-chan *locker.Lease {
	return later(t, func() (*locker.Lease, error) { return c.Lock(within(t, soon), name, opts...) })
}

func ask(t testing.TB, b driver.Backend, req driver.Request) <-chan driver.Grant {
	return later(t, func() (driver.Grant, error) { return sitOut(within(t, 2*soon), b, req) })
}

// acquire takes a lock that is free.
func acquire(t testing.TB, b driver.Backend, req driver.Request) driver.Grant {
	t.Helper()
	g, err := sitOut(within(t, 2*soon), b, req)
	require.NoError(t, err)
	return g
}

// sitOut asks until it gets an answer, as the engine would: on a busy machine, connections break.
func sitOut(ctx context.Context, b driver.Backend, req driver.Request) (driver.Grant, error) {
	for {
		g, err := locktest.Ask(ctx, b, req)
		if !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
			return g, err
		}
		time.Sleep(10 * time.Millisecond)
		for g.Hold != nil && g.Hold.Undo(ctx) != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func later[T any](t testing.TB, f func() (T, error)) <-chan T {
	in := make(chan T, 1)
	go func() {
		v, err := f()
		assert.NoError(t, err)
		in <- v
	}()
	return in
}

// entrance is a lease, and when it was granted.
type entrance struct {
	*locker.Lease
	at time.Time
}

func nodeOf(t testing.TB, l driver.Aser) (n zookeeper.Node) {
	t.Helper()
	require.True(t, l.As(&n))
	return n
}

var within = locktest.Within

// adminOf returns a connection of the driver, for what an operator does by hand.
func adminOf(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	c, done := dial(t, []string{addr})
	t.Cleanup(done)
	return c
}

// create makes a node in a queue, with that owner and mark, in the session of c.
func create(t testing.TB, c *zk.Conn, name, id string) string {
	t.Helper()
	path, err := c.Create("/locker/"+name+"/"+id, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// beatsOf returns the sessions' own nodes under a prefix.
func beatsOf(t testing.TB, c *zk.Conn, prefix string) (paths []string) {
	t.Helper()
	children, _, err := c.Children(prefix)
	require.NoError(t, err)
	for _, child := range children {
		if strings.HasPrefix(child, "%beat-") {
			paths = append(paths, prefix+"/"+child)
		}
	}
	require.NotEmpty(t, paths)
	return paths
}

// holdRole takes a lock and keeps it: servers, name, session timeout.
func holdRole(p *lab.Parent) {
	timeout, err := time.ParseDuration(p.Args[2])
	if err != nil {
		panic(err)
	}
	b, err := zookeeper.New(strings.Split(p.Args[0], ","), &zookeeper.Options{SessionTimeout: timeout})
	if err != nil {
		panic(err)
	}
	l, err := locktest.Must(locker.New(b, nil)).Lock(context.Background(), p.Args[1])
	if err != nil {
		panic(err)
	}
	p.Say("holding")
	<-l.Done()
	p.Say("over %v %v", time.Now().UnixNano(), l.Err())
	select {}
}
