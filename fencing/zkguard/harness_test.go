package zkguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	goleak.VerifyTestMain(m)
}

const soon = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect returns a connection of the driver's, closed with the test.
func connect(t testing.TB, servers ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(servers, 4*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { // the channel is closed when the driver's goroutines are through
		for range events {
		}
		close(ended)
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn
}

// scene is a server, somebody who looks at it, and a guard.
type scene struct {
	server *lab.ZooKeeper
	admin  *zk.Conn
	guard  *zkguard.Guard
}

func newScene(t testing.TB) scene {
	t.Helper()
	server := lab.StartZooKeeper(t)
	admin := connect(t, server.Addr())
	return scene{server, admin, newGuard(t, admin, nil)}
}

func newGuard(t testing.TB, conn *zk.Conn, opts *zkguard.Options) *zkguard.Guard {
	t.Helper()
	g, err := zkguard.New(conn, opts)
	require.NoError(t, err)
	return g
}

// put makes a node, or sets its data.
func put(t testing.TB, conn *zk.Conn, path, data string) {
	t.Helper()
	_, err := conn.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		require.ErrorIs(t, err, zk.ErrNodeExists)
		_, err = conn.Set(path, []byte(data), -1)
		require.NoError(t, err)
	}
}

// look returns the data of a node and the number of the transaction that set it.
func look(t testing.TB, conn *zk.Conn, path string) (data string, mzxid int64) {
	t.Helper()
	b, stat, err := conn.Get(path)
	require.NoError(t, err)
	return string(b), stat.Mzxid
}

func set(path, data string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: path, Data: []byte(data), Version: -1}
}
