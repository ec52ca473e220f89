package lab

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Sentinel is a primary with replicas, watched by three Redis Sentinels that let a replica take over
// when the primary is gone. The fields are not to be changed.
type Sentinel struct {
	// Servers are the data servers, in the order in which they were started: the first primary first.
	Servers []*Redis
	// Sentinels are those who watch.
	Sentinels []*Redis
	// Name is what the primary is called by the Sentinels.
	Name string
}

const (
	sentinels = 3
	// sentinelQuorum is how many have to find the primary gone. Another majority elects who acts.
	sentinelQuorum = 2
	// downAfter has room for the hiccups of a busy machine: a fail-over that no test asked for is worse
	// than one that takes longer.
	downAfter = time.Second
	// failoverTimeout is also how long Sentinel waits, twice, before it tries again.
	failoverTimeout = 3 * time.Second
)

// StartSentinel starts a primary, replicas and three Sentinels, and returns once the Sentinels know
// them all and each other. opts hold for the primary and the replicas. A fail-over takes 2 to 3 s.
func StartSentinel(t TB, replicas int, opts ...RedisOption) *Sentinel {
	t.Helper()
	s := &Sentinel{Name: "primary"}
	primary := StartRedis(t, opts...)
	s.Servers = append(s.Servers, primary)
	for range replicas {
		s.Servers = append(s.Servers, StartRedis(t, append(opts[:len(opts):len(opts)], ReplicaOf(primary))...))
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	watch := []RedisOption{
		func(c *redisConfig) { c.sentinel, c.certs = true, primary.Certs() },
		WithConfig("sentinel", "monitor", s.Name, "127.0.0.1", strconv.Itoa(primary.Port()),
			strconv.Itoa(sentinelQuorum)),
		WithConfig("sentinel", "down-after-milliseconds", s.Name, ms(downAfter)),
		WithConfig("sentinel", "failover-timeout", s.Name, ms(failoverTimeout)),
		WithConfig("sentinel", "parallel-syncs", s.Name, "1"),
	}
	if primary.conf.auth {
		watch = append(watch,
			WithConfig("sentinel", "auth-user", s.Name, adminUser),
			WithConfig("sentinel", "auth-pass", s.Name, adminPassword))
	}
	for i := range sentinels {
		s.Sentinels = append(s.Sentinels, launchRedis(t, fmt.Sprintf("sentinel-%d", i+1), watch))
	}
	for _, sentinel := range s.Sentinels {
		if err := sentinel.ready(func() error { return s.knowsAll(sentinel, replicas) }); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return s
}

// Addrs returns the host:port of each Sentinel.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Primary returns the server that all running Sentinels take for the primary, and that does serve as
// one. It waits until they agree.
func (s *Sentinel) Primary(t TB) *Redis {
	t.Helper()
	return s.agreed(t, nil)
}

// KillPrimary kills the primary and returns the server that has taken over, once all running Sentinels
// agree on it. If the old primary is restarted, the Sentinels make it a replica after 10 s or so, and
// until then it is a second primary to whoever asks it directly.
func (s *Sentinel) KillPrimary(t TB) *Redis {
	t.Helper()
	old := s.Primary(t)
	old.Kill()
	return s.agreed(t, old)
}

// WaitForFailover returns the server that has taken over from old, once all running Sentinels agree on
// it: for a primary that a test has made unavailable by other means than KillPrimary.
func (s *Sentinel) WaitForFailover(t TB, old *Redis) *Redis {
	t.Helper()
	return s.agreed(t, old)
}

// agreed waits until all running Sentinels name the same primary, which is not old.
func (s *Sentinel) agreed(t TB, old *Redis) *Redis {
	t.Helper()
	var primary *Redis
	if err := poll(func() (err error) {
		if primary, err = s.primary(); err == nil && primary == old {
			err = fmt.Errorf("lab: the primary still is %s", old.Addr())
		}
		return err
	}, nil, s.Sentinels...); err != nil {
		t.Fatalf("lab: the Sentinels do not agree within %v: %v", readyTimeout, err)
	}
	return primary
}

func (s *Sentinel) primary() (*Redis, error) {
	var named string
	for _, sentinel := range s.Sentinels {
		if !sentinel.Running() {
			continue
		}
		reply, err := sentinel.do(time.Second, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
		if err != nil {
			return nil, err
		}
		addr, _ := reply.([]any)
		if len(addr) != 2 {
			return nil, fmt.Errorf("lab: %s knows no primary", sentinel.Addr())
		}
		next := net.JoinHostPort(fmt.Sprint(addr[0]), fmt.Sprint(addr[1]))
		if named != "" && next != named {
			return nil, fmt.Errorf("lab: one names %s, another %s", named, next)
		}
		named = next
	}
	for _, server := range s.Servers {
		if server.Addr() != named {
			continue
		}
		info, err := server.info(time.Second, "replication")
		if err != nil {
			return nil, err
		}
		if info["role"] != "master" {
			return nil, fmt.Errorf("lab: %s is named the primary and does not know it", named)
		}
		return server, nil
	}
	return nil, fmt.Errorf("lab: %q is named the primary, which is none of the servers", named)
}

// knowsAll returns nil once a Sentinel can take part in a fail-over.
func (s *Sentinel) knowsAll(sentinel *Redis, replicas int) error {
	reply, err := sentinel.do(time.Second, "SENTINEL", "MASTER", s.Name)
	if err != nil {
		return err
	}
	state := pairs(reply)
	for field, want := range map[string]string{
		"flags":               "master", // and not s_down
		"num-slaves":          strconv.Itoa(replicas),
		"num-other-sentinels": strconv.Itoa(sentinels - 1),
	} {
		if state[field] != want {
			return fmt.Errorf("lab: its %s is %q instead of %q", field, state[field], want)
		}
	}
	// A replica counts as a candidate only after it has told about itself.
	if reply, err = sentinel.do(time.Second, "SENTINEL", "REPLICAS", s.Name); err != nil {
		return err
	}
	known, _ := reply.([]any)
	for _, replica := range known {
		if state := pairs(replica); state["flags"] != "slave" || state["master-link-status"] != "ok" {
			return errors.New("lab: it has not yet heard from every replica")
		}
	}
	return nil
}

// pairs makes a map of a reply that lists names and values in turn.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// LeftBySentinels are functions of go-redis whose goroutines nothing ends: a question to a Sentinel that is
// answered after the client was closed begins to listen to it.
var LeftBySentinels = []string{
	"github.com/redis/go-redis/v9.(*sentinelFailover).listen",
	"github.com/redis/go-redis/v9.(*channel).initMsgChan.func1",
	"github.com/redis/go-redis/v9.(*channel).initHealthCheck.func1",
}
