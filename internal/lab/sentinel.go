package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
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
	downAfter = "2000"
	// failoverTimeout is also how long Sentinel waits, twice, before it tries again.
	failoverTimeout = "3000"
)

// StartSentinel starts a primary, replicas and three Sentinels, and returns once the Sentinels know them all and each
// other. A fail-over takes 3 to 4 s.
func StartSentinel(t TB, replicas int) *Sentinel {
	t.Helper()
	primary := StartRedis(t)
	s := &Sentinel{Name: "primary", Servers: []*Redis{primary}}
	for range replicas {
		s.Servers = append(s.Servers, StartRedis(t, ReplicaOf(primary.Addr())))
	}
	watch := []Option{
		func(c *config) { c.sentinel = true },
		WithConfig("sentinel", "monitor", s.Name, "127.0.0.1", strconv.Itoa(primary.Port()),
			strconv.Itoa(sentinelQuorum)),
		WithConfig("sentinel", "down-after-milliseconds", s.Name, downAfter),
		WithConfig("sentinel", "failover-timeout", s.Name, failoverTimeout),
		WithConfig("sentinel", "parallel-syncs", s.Name, "1"),
	}
	for i := range sentinels {
		s.Sentinels = append(s.Sentinels, launchRedis(t, fmt.Sprintf("sentinel-%d", i+1), watch))
	}
	await(t, func() (err error) {
		for _, sentinel := range s.Sentinels {
			if err == nil {
				err = s.knowsAll(sentinel, replicas)
			}
		}
		return err
	}, processes(s.Sentinels)...)
	return s
}

// Addrs returns the host:port of each Sentinel.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// KillPrimary kills the primary and returns the server that has taken over, once all running Sentinels agree on it.
func (s *Sentinel) KillPrimary(t TB) (primary *Redis) {
	t.Helper()
	agreed := func() (err error) {
		primary, err = s.primary()
		return err
	}
	await(t, agreed, processes(s.Sentinels)...)
	primary.Kill()
	await(t, agreed, processes(s.Sentinels)...)
	return primary
}

// primary returns the server that all running Sentinels take for the primary, and that does serve as one.
func (s *Sentinel) primary() (*Redis, error) {
	var named string
	for _, sentinel := range s.Sentinels {
		if !sentinel.Running() {
			continue
		}
		reply, err := sentinel.do(probe, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
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
	i := slices.Index(addrs(s.Servers), named)
	if i < 0 {
		return nil, fmt.Errorf("lab: %q is named the primary, which is none of the servers", named)
	}
	return s.Servers[i], s.Servers[i].says(map[string]string{"role": "master"}, "INFO", "replication")
}

// knowsAll returns nil once a Sentinel can take part in a fail-over.
func (s *Sentinel) knowsAll(sentinel *Redis, replicas int) error {
	if err := sentinel.says(map[string]string{
		"flags":               "master", // and not s_down
		"num-slaves":          strconv.Itoa(replicas),
		"num-other-sentinels": strconv.Itoa(sentinels - 1),
	}, "SENTINEL", "MASTER", s.Name); err != nil {
		return err
	}
	// A replica counts as a candidate only after it has told about itself.
	reply, err := sentinel.do(probe, "SENTINEL", "REPLICAS", s.Name)
	known, _ := reply.([]any)
	for _, replica := range known {
		err = differ(fields(replica), map[string]string{"flags": "slave", "master-link-status": "ok"}, err)
	}
	if err == nil && len(known) != replicas {
		err = errors.New("lab: it has not yet heard from every replica")
	}
	return err
}

// LeftBySentinels are functions of go-redis whose goroutines nothing ends: a question to a Sentinel that is
// answered after the client was closed begins to listen to it.
var LeftBySentinels = []string{
	"github.com/redis/go-redis/v9.(*sentinelFailover).listen",
	"github.com/redis/go-redis/v9.(*channel).initMsgChan.func1",
	"github.com/redis/go-redis/v9.(*channel).initHealthCheck.func1",
}
