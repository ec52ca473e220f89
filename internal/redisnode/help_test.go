package redisnode_test

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

func TestMain(m *testing.M) { lab.Main(leakFree{m}, nil) }

// leakFree runs the tests, and then fails if any of them has left a goroutine.
type leakFree struct{ m *testing.M }

func (l leakFree) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		println(err.Error())
		return 1
	}
	return code
}

// newNode returns a Node that is closed with the test.
func newNode(t testing.TB, client redis.UniversalClient, opts *redisnode.Options) *redisnode.Node {
	t.Helper()
	node, err := redisnode.New(client, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}

// newClient returns a client that is closed with the test.
func newClient(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const soon = 5 * time.Second

// owner returns a value that nobody else has.
func owner() string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
