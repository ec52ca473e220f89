package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Redis is a redis-server on 127.0.0.1 that belongs to a test. Its methods may be called from any
// goroutine, except those that take a TB.
type Redis struct {
	*Process
	binary string

	mu    sync.Mutex
	looks int64 // calls of Commands since the start
}

// Every server with authentication also has this user, so that tests can look at it whatever rights the users under
// test have. It protects nothing.
const (
	adminUser     = "lab"
	adminPassword = "lab"
)

// StartRedis starts a Redis without persistence, without authentication and without TLS, changed by
// opts, and returns once it answers. It is killed when the test ends. Without redis-server the test is
// skipped; see [Need].
func StartRedis(t TB, opts ...Option) *Redis {
	t.Helper()
	r := launchRedis(t, "redis", opts)
	if r.primary != "" {
		await(t, func() error { return r.says(map[string]string{"master_link_status": "up"}, "INFO", "replication") },
			r.Process)
	}
	return r
}

func launchRedis(t TB, name string, opts []Option) *Redis {
	t.Helper()
	r := &Redis{binary: Need(t, ToolRedis)}
	launch(t, func() []*Process {
		r.Process = newProcess(t, name, of(opts), 1)
		r.command, r.answers, r.tells = r.newCommand, r.isUp, r.Time
		return []*Process{r.Process}
	})
	return r
}

func (r *Redis) newCommand() (*exec.Cmd, error) {
	file := filepath.Join(r.dir, "redis.conf")
	if _, err := os.Stat(file); err != nil { // once: a Sentinel keeps its state in this very file
		if err := os.WriteFile(file, []byte(r.file()), 0o600); err != nil {
			return nil, err
		}
	}
	if r.sentinel {
		return r.program(r.binary, file, "--sentinel"), nil
	}
	return r.program(r.binary, file), nil
}

// file returns the text of redis.conf.
func (r *Redis) file() string {
	var ours config
	line := func(name string, values ...string) { WithConfig(name, values...)(&ours) }
	port := strconv.Itoa(r.Port())
	line("bind", "127.0.0.1")
	line("protected-mode", "no")
	line("dir", r.dir)
	if c := r.certs; c == nil {
		line("port", port)
	} else {
		line("port", "0")
		line("tls-port", port)
		line("tls-ca-cert-file", c.CAFile)
		line("tls-cert-file", c.CertFile)
		line("tls-key-file", c.KeyFile)
		line("tls-auth-clients", "optional")
	}
	if r.asksWho() {
		line("user", adminUser, "on", ">"+adminPassword, "~*", "&*", "+@all")
	}
	if !r.sentinel { // to which the rest is unknown
		line("save", "")
		line("repl-diskless-sync-delay", "0") // the default waits 5 s for more replicas to come
		if host, port, err := net.SplitHostPort(r.primary); err == nil {
			line("replicaof", host, port)
		}
	}
	var b strings.Builder
	for _, s := range append(ours.settings, r.settings...) {
		b.WriteString(s.name)
		for _, value := range s.values {
			b.WriteString(" " + strconv.Quote(value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// isUp returns nil once this very process serves on the port. Asking for its process ID matters:
// if the port was taken between the choice and the bind, somebody else's server answers there.
func (r *Redis) isUp() error {
	if err := r.says(map[string]string{"process_id": fmt.Sprint(r.Pid())}, "INFO", "server"); err != nil {
		return err
	}
	// INFO is answered even while data is loaded; PING is not.
	_, err := r.do(probe, "PING")
	if err == nil && !r.sentinel {
		_, err = r.do(probe, "CONFIG", "RESETSTAT") // this is not to be counted
		r.mu.Lock()
		r.looks = 0
		r.mu.Unlock()
	}
	return err
}

// says returns nil if the fields of an answer are what they should be.
func (r *Redis) says(want map[string]string, command ...any) error {
	reply, err := r.do(probe, command...)
	return differ(fields(reply), want, err)
}

// differ returns what is not as it should be.
func differ(is, want map[string]string, err error) error {
	for field, value := range want {
		if err == nil && is[field] != value {
			err = fmt.Errorf("lab: its %s is %q instead of %q", field, is[field], value)
		}
	}
	return err
}

// fields makes a map of lines of name:value, or of a list of names and values in turn.
func fields(reply any) map[string]string {
	m := map[string]string{}
	switch reply := reply.(type) {
	case string:
		for line := range strings.Lines(reply) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
				m[name] = value
			}
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return m
}

// SetCerts replaces the certificates of a server that was started [WithTLS], for new connections, while nobody else
// asks it. It needs Redis 7.
func (r *Redis) SetCerts(t TB, certs *Certs) {
	t.Helper()
	r.MustDo(t, "CONFIG", "SET", "tls-ca-cert-file", certs.CAFile, "tls-cert-file", certs.CertFile,
		"tls-key-file", certs.KeyFile)
	r.certs = certs
}

// Do sends one command to the server, on a connection of its own that no [Proxy] is in the way of, and
// as a user with all rights. It waits two minutes at most. What depends on earlier commands of a connection
// (WAIT counts the replicas that have what its own connection wrote) needs a client of the test's own.
//
// The reply is nil, an int64, a string, or a []any of these and of errors.
func (r *Redis) Do(args ...any) (any, error) {
	return r.do(patience, args...)
}

func (r *Redis) do(timeout time.Duration, args ...any) (reply any, err error) {
	if reply, err = r.ask(timeout, args); err != nil { // the command only: what follows may be a password
		return nil, fmt.Errorf("lab: %v on %s at %s: %w", args[0], r.name, r.Addr(), err)
	}
	return reply, nil
}

func (r *Redis) ask(timeout time.Duration, command []any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if r.certs != nil {
		conn = tls.Client(conn, r.certs.ClientConfig())
	}
	answers := bufio.NewReader(conn)
	if r.asksWho() {
		if err := writeCommand(conn, "AUTH", adminUser, adminPassword); err != nil {
			return nil, err
		}
		if _, err := readReply(answers); err != nil {
			return nil, err
		}
	}
	if err := writeCommand(conn, command...); err != nil {
		return nil, err
	}
	return readReply(answers)
}

// MustDo is [Redis.Do] for a command that has to succeed.
func (r *Redis) MustDo(t TB, args ...any) any {
	t.Helper()
	reply, err := r.Do(args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return reply
}

// TTL returns how long a key is kept; negative: it never expires, or there is none.
func (r *Redis) TTL(t TB, key string) time.Duration {
	t.Helper()
	ms, _ := r.MustDo(t, "PTTL", []byte(key)).(int64)
	return time.Duration(ms) * time.Millisecond
}

// HangUp ends the connections of all clients, as an idle limit of a server or of a load balancer does.
// Subscriptions are left alone.
func (r *Redis) HangUp(t TB) {
	t.Helper()
	r.MustDo(t, "CLIENT", "KILL", "TYPE", "normal")
}

// Info returns one section of INFO as its fields.
func (r *Redis) Info(t TB, section string) map[string]string {
	t.Helper()
	return fields(r.MustDo(t, "INFO", section))
}

// Time returns the server's wall clock.
func (r *Redis) Time() (time.Time, error) {
	reply, err := r.Do("TIME")
	if err != nil {
		return time.Time{}, err
	}
	var seconds, micros int64
	if _, err := fmt.Sscan(strings.Trim(fmt.Sprint(reply), "[]"), &seconds, &micros); err != nil {
		return time.Time{}, fmt.Errorf("lab: TIME answered %v", reply)
	}
	return time.Unix(seconds, micros*1000), nil
}

// Commands counts what a server has executed, by lower-case name: "set", "evalsha", "script|load". A script counts as
// one command and each command that it calls as one more, which is how Redis itself counts.
type Commands map[string]int64

// add leaves out what was never called.
func (c Commands) add(name string, n int64) {
	if c[name] += n; c[name] == 0 {
		delete(c, name)
	}
}

// Since returns what was executed between before and c.
func (c Commands) Since(before Commands) Commands {
	diff := maps.Clone(c)
	for name, n := range before {
		diff.add(name, -n)
	}
	return diff
}

// Commands returns what the server has executed since it was started, except for what calling Commands
// costs: the difference of two calls is what others did, [Redis.Do] and a replica's own chatter included.
func (r *Redis) Commands(t TB) Commands {
	t.Helper()
	// One at a time, so that the cost of one is not counted by another.
	r.mu.Lock()
	defer r.mu.Unlock()
	count := Commands{}
	for field, value := range r.Info(t, "commandstats") {
		if name, found := strings.CutPrefix(field, "cmdstat_"); found { // calls=3,usec=120,…
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			count.add(name, n)
		}
	}
	count.add("info", -r.looks) // this one is counted by the server when it has answered
	r.looks++
	if r.asksWho() {
		count.add("auth", -r.looks)
	}
	return count
}

// AllAtOnce has n callers ask while the server is paused, so that their questions come together,
// and returns in how many script calls they were answered.
func (r *Redis) AllAtOnce(t TB, n int, ask func(i int)) (calls int) {
	t.Helper()
	NeedPause(t)
	before := r.Commands(t)
	r.Pause()
	var all sync.WaitGroup
	var begun atomic.Int64
	for i := range n {
		all.Go(func() {
			begun.Add(1)
			ask(i)
		})
	}
	for begun.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // all are in a queue, or a few more script calls are made
	r.Resume()
	all.Wait()
	used := r.Commands(t).Since(before)
	return int(used["evalsha"] + used["eval"])
}
