package lab

import (
	"bytes"
	"fmt"
	"net"
	"slices"
)

// ZooKeeperEnsemble is a ZooKeeper service of several servers, with a proxy on each way from one server
// to another. The fields are not to be changed.
type ZooKeeperEnsemble struct {
	Servers []*ZooKeeper

	ways [][]*Proxy // [i][j] leads from server i to server j, for data and for elections
}

// StartZooKeeperEnsemble starts n servers, and returns once all of them serve. They are killed when the
// test ends.
func StartZooKeeperEnsemble(t TB, n int, opts ...Option) (e *ZooKeeperEnsemble) {
	t.Helper()
	launch(t, func() []*Process {
		e = newEnsemble(t, n, opts)
		return processes(e.Servers)
	})
	return e
}

func newEnsemble(t TB, n int, opts []Option) *ZooKeeperEnsemble {
	t.Helper()
	e := &ZooKeeperEnsemble{ways: make([][]*Proxy, n)}
	for i := range n {
		e.Servers = append(e.Servers, newZooKeeper(t, fmt.Sprintf("zookeeper-%d", i+1), opts))
	}
	for i, s := range e.Servers {
		s.id = i + 1
		for j, to := range e.Servers {
			p := StartProxy(t)
			e.ways[i] = append(e.ways[i], p)
			at := []string{loopback(to.ports[2]), loopback(to.ports[3])}
			if i != j {
				at = p.Through(at...)
			}
			_, election, _ := net.SplitHostPort(at[1])
			s.peers = append(s.peers, fmt.Sprintf("server.%d=%s:%s", j+1, at[0], election))
		}
	}
	for i, s := range e.Servers {
		for j := range e.Servers {
			own := loopback(s.ports[3])
			e.ways[i][j].Watch(announce(own, e.ways[j][i].Through(own)[0]))
		}
	}
	return e
}

// announce changes the port at which a server says that it can be called back for elections, which
// those with a higher ID do. It would be its own one, past the way between the two, and one that is
// isolated would go on voting: an election then took half a minute now and then.
func announce(own, way string) func(*Link, bool, []byte, bool) {
	return func(_ *Link, reply bool, data []byte, _ bool) {
		if at := bytes.Index(data, []byte(own)); at >= 0 && !reply && len(own) == len(way) {
			copy(data[at:], way)
		}
	}
}

// Addrs returns the host:port of each server.
func (e *ZooKeeperEnsemble) Addrs() []string { return addrs(e.Servers) }

// Restart starts all servers that do not run, and returns when all serve: none does before it has a majority.
func (e *ZooKeeperEnsemble) Restart(t TB) {
	t.Helper()
	Restart(t, processes(e.Servers)...)
}

// Leader returns the one of candidates that leads once all others of them follow; none given means all servers. A
// leader that has been paused says for some 100 ms that it still leads, and so can its former followers.
func (e *ZooKeeperEnsemble) Leader(t TB, candidates ...*ZooKeeper) (leader *ZooKeeper) {
	t.Helper()
	if candidates == nil {
		candidates = e.Servers
	}
	all := append(slices.Repeat([]string{"follower"}, len(candidates)-1), "leader")
	await(t, func() error {
		var modes []string
		for _, s := range candidates {
			mode, err := s.Mode()
			if err != nil {
				return err
			}
			if mode == "leader" {
				leader = s
			}
			modes = append(modes, mode)
		}
		if slices.Sort(modes); !slices.Equal(modes, all) {
			return fmt.Errorf("lab: no server leads and has all others follow: %q", modes)
		}
		return nil
	}, processes(e.Servers)...)
	return leader
}

// Others returns the servers other than s.
func (e *ZooKeeperEnsemble) Others(s *ZooKeeper) []*ZooKeeper {
	return slices.DeleteFunc(slices.Clone(e.Servers), func(o *ZooKeeper) bool { return o == s })
}

// Isolate sets what happens on all ways between s and the other servers, in both directions. Its
// clients still reach it. [Pass] ends it.
func (e *ZooKeeperEnsemble) Isolate(s *ZooKeeper, m Mode) {
	for i := range e.Servers {
		for j := range e.Servers {
			if i != j && (e.Servers[i] == s || e.Servers[j] == s) {
				e.ways[i][j].Set(m)
			}
		}
	}
}
