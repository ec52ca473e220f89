//go:build unix

package main_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// services start a lock service each, and return its URL.
var services = map[string]func(*testing.T) string{
	"file":  func(t *testing.T) string { return "file://" + t.TempDir() },
	"redis": func(t *testing.T) string { return "redis://" + lab.StartRedis(t).Addr() },
	"redlock": func(t *testing.T) string {
		var addrs []string
		for range 3 {
			addrs = append(addrs, lab.StartRedis(t).Addr())
		}
		return "redlock://" + strings.Join(addrs, ",") + "?restart_guard=off"
	},
	"etcd": func(t *testing.T) string { return "etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() },
	"postgres": func(t *testing.T) string {
		s := lab.StartPostgres(t)
		return s.URL(s.Addr(), "sslmode=disable")
	},
	"zookeeper": func(t *testing.T) string { return "zookeeper://" + lab.StartZooKeeper(t).Addr() },
}

func TestEveryService(t *testing.T) {
	t.Parallel()
	for name, startService := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := []with{withEnv("LOCKER_BACKEND=" + startService(t))}
			ttl := []string{"--ttl", "4s"}
			p := holding(t, backend, ttl...)
			r := do(t, backend, "run", "--ttl", "4s", "--try", "a", "--", "echo", "ran")
			assert.Equal(t, 75, r.status, r.stderr)
			assert.Regexp(t, `\Alocker: [^\n]*\n\z`, r.stderr)
			assert.Contains(t, do(t, backend, "inspect", "a").stdout, `"a": held by `)
			another := withEnv("LOCKER_TOKEN=another lock's")
			next := start(t, append(backend, another), "run", "--ttl", "4s", "--wait", patience.String(), "a", "--",
				"sh", "-c", "echo ran with ${LOCKER_TOKEN-none}")
			p.end()
			assert.Empty(t, p.said())
			assert.Regexp(t, map[bool]string{true: `^none$`, false: `^\d+$`}[name == "redlock"], next.expect("ran with"))
			assert.Equal(t, 0, next.wait())
			assert.Empty(t, next.complaints())
			assert.Equal(t, `"a": free`, do(t, backend, "inspect", "a").stdout)

			p = start(t, backend, locked(ttl, "a", "listen")...)
			child := number(t, p.expect("pid"))
			p.signal(syscall.SIGKILL)
			if name == "file" {
				// The lock is the command's own, and free when that has ended.
				next = start(t, backend, "run", "a", "--", "true")
				assert.Equal(t, 0, next.wait())
				assert.True(t, gone(child))
				return
			}
			r = do(t, backend, "run", "--ttl", "4s", "--try", "a", "--", "true")
			assert.Equal(t, 75, r.status, "a killed holder's lock is not free before its TTL is over: %s",
				r.stderr)
			require.Eventually(t, func() bool { return gone(child) }, patience, time.Millisecond)
		})
	}
}
