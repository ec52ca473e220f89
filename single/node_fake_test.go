package single_test

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/single"
)

// fakeClient returns a client of f.
func fakeClient(t *testing.T, f *lab.FakeRedis) *redis.Client {
	return newClient(t, &redis.Options{Addr: f.Addr(), Protocol: 2})
}

// newNode returns a Node that is closed with the test.
func newNode(t testing.TB, client redis.UniversalClient, opts *single.NodeOptions) *single.Node {
	t.Helper()
	node, err := single.NewNode(client, opts)
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

// awkward are names that a careless key layout confuses.
var awkward = []string{
	"", "a", "%", "%25", "%7D", "{", "}", "{}", "{}a", "a{b}c", "a}:fence", "}:void:x", "{{a}}",
	"a:fence", "a:void:x", "locker:1:{a}", "\x00", "\xff\xfe", "a\r\nb", "*", "[a-z]?",
}
