package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Redis is a redis-server on 127.0.0.1 that belongs to a test. Its methods may be called from any
// goroutine, except those that take a TB.
type Redis struct {
	*Process
	conf   redisConfig
	binary string
	clock  *clock // nil: the machine's
	dir    string
	file   string // redis.conf
	port   int
	certs  atomic.Pointer[Certs]

	mu   sync.Mutex
	cost Commands // what Commands itself has cost since the start
}

// StartRedis starts a Redis without persistence, without authentication and without TLS, changed by
// opts, and returns once it answers. It is killed when the test ends. Without redis-server the test is
// skipped; see [Need].
func StartRedis(t TB, opts ...RedisOption) *Redis {
	t.Helper()
	r := launchRedis(t, "redis", opts)
	if r.conf.primary != nil {
		r.waitForPrimary(t)
	}
	return r
}

// launchRedis starts a server on a free port and waits until it answers.
func launchRedis(t TB, name string, opts []RedisOption) *Redis {
	t.Helper()
	r := &Redis{binary: Need(t, ToolRedis), dir: t.TempDir()}
	for _, opt := range opts {
		opt(&r.conf)
	}
	r.file = filepath.Join(r.dir, "redis.conf")
	r.certs.Store(r.conf.certs)
	if r.conf.clock {
		r.clock = newClock(t, r.dir)
	}
	if r.conf.socket {
		r.conf.socketPath = shortSocketPath(t)
	}
	t.Cleanup(func() { // after the process is killed: a child that rewrites its log may live for a moment longer
		for deadline := time.Now().Add(stopTimeout); os.RemoveAll(r.dir) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	r.Process = newProcess(t, name, r.dir, r.newCommand)

	r.answers = r.isUp
	onFreePorts(t, func() (err error) {
		if r.port, err = freePort(t, r.portOffsets()...); err != nil {
			return err
		}
		// Written once per port and not by Restart: a Sentinel keeps its state in this very file.
		if err := os.WriteFile(r.file, []byte(r.conf.file(r.dir, r.port)), 0o600); err != nil {
			return fmt.Errorf("lab: configuration of %s: %w", name, err)
		}
		return serve(r.Process)
	})
	return r
}

func (r *Redis) portOffsets() []int {
	if r.conf.cluster {
		return []int{busOffset}
	}
	return nil
}

func (r *Redis) newCommand() (*exec.Cmd, error) {
	r.mu.Lock()
	r.cost = Commands{}
	r.mu.Unlock()
	args := []string{r.file}
	if r.conf.sentinel {
		args = append(args, "--sentinel")
	}
	// Not the test's context: it ends before the clean-up, which may still need the server.
	cmd := exec.CommandContext(context.Background(), r.binary, args...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), readAlways), r.clock.environment()...)
	return cmd, nil
}

// isUp returns nil once this very process serves on the port. Asking for its process ID matters:
// if the port was taken between the choice and the bind, somebody else's server answers there.
func (r *Redis) isUp() error {
	c, err := r.dial(time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	reply, err := c.do(time.Second, "INFO", "server")
	if err != nil {
		return err
	}
	info := infoFields(reply)
	if got, want := info["process_id"], fmt.Sprint(r.Pid()); got != want {
		return fmt.Errorf("lab: process %s answers on port %d instead of %s", got, r.port, want)
	}
	// INFO is answered even while data is loaded; PING is not.
	_, err = c.do(time.Second, "PING")
	return err
}

// Addr returns the host:port of the server. It speaks TLS there if it was started [WithTLS].
func (r *Redis) Addr() string { return loopback(r.port) }

// Port returns the port of the server. It stays the same over restarts.
func (r *Redis) Port() int { return r.port }

// Socket returns the path of the server's unix socket, and "" without [WithSocket].
func (r *Redis) Socket() string { return r.conf.socketPath }

// Dir returns the data directory, which is removed when the test ends.
func (r *Redis) Dir() string { return r.dir }

// Certs returns the certificates given by [WithTLS], and nil without.
func (r *Redis) Certs() *Certs { return r.certs.Load() }

// SetCerts replaces the certificates of a server that was started [WithTLS], for new connections.
// It needs Redis 7.
func (r *Redis) SetCerts(t TB, certs *Certs) {
	t.Helper()
	r.MustDo(t, "CONFIG", "SET", "tls-ca-cert-file", certs.CAFile, "tls-cert-file", certs.CertFile,
		"tls-key-file", certs.KeyFile)
	r.certs.Store(certs)
}

// dial connects straight to the server, with every right.
func (r *Redis) dial(timeout time.Duration) (*Conn, error) {
	raw, err := (&net.Dialer{Timeout: timeout}).DialContext(context.Background(), "tcp", r.Addr())
	if err != nil {
		return nil, err
	}
	if certs := r.Certs(); certs != nil {
		raw = tls.Client(raw, certs.ClientConfig())
	}
	c := newConn(raw)
	if r.conf.auth {
		if _, err := c.do(timeout, "AUTH", adminUser, adminPassword); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Conn connects straight to the server as [Redis.Do] does, for commands that depend on earlier ones of
// the same connection: WAIT, MULTI. It is closed when the test ends.
func (r *Redis) Conn(t TB) *Conn {
	t.Helper()
	c, err := r.dial(doTimeout)
	if err != nil {
		t.Fatalf("lab: connect to %s at %s: %v", r.name, r.Addr(), err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// waitForPrimary returns once the replica is in step with its primary.
func (r *Redis) waitForPrimary(t TB) {
	t.Helper()
	err := r.ready(func() error {
		info, err := r.info(time.Second, "replication")
		if err == nil && info["master_link_status"] != "up" {
			err = errors.New("the link to its primary is not up")
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// shortSocketPath returns a path that fits into a socket address (104 bytes on macOS), which the
// test's own directory, named after the test, may not.
func shortSocketPath(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ls")
	if err != nil {
		t.Fatalf("lab: directory for a unix socket: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
