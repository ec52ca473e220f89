package lab

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// ZooKeeperEnsemble is a ZooKeeper service of several servers, with a proxy on each way from one server
// to another. The fields are not to be changed.
type ZooKeeperEnsemble struct {
	Servers []*ZooKeeper

	// between[i][j] are the ways that server i takes to server j: for data, and for elections.
	between [][][2]*Proxy
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
	e := &ZooKeeperEnsemble{between: make([][][2]*Proxy, n)}
	for i := range n {
		e.Servers = append(e.Servers, newZooKeeper(t, fmt.Sprintf("zookeeper-%d", i+1), opts))
	}
	for i, s := range e.Servers {
		s.id = i + 1
		e.between[i] = make([][2]*Proxy, n)
		for j, to := range e.Servers {
			data, election := to.ports[2], to.ports[3]
			if i != j {
				way := [2]*Proxy{StartProxy(t, loopback(data)), StartProxy(t, loopback(election))}
				e.between[i][j] = way
				data, election = way[0].Port(), way[1].Port()
			}
			s.peers = append(s.peers, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", j+1, data, election))
		}
	}
	for i, s := range e.Servers {
		for j := range n {
			if i != j {
				e.between[i][j][1].Rewrite(announce(s.ports[3], e.between[j][i][1].Port()))
			}
		}
	}
	return e
}

// announce changes the port at which a server says that it can be called back for elections, which
// those with a higher ID do. It would be its own one, past the way between the two, and one that is
// isolated would go on voting: an election then took half a minute now and then.
func announce(own, way int) func(first []byte) {
	from, to := []byte(loopback(own)), []byte(loopback(way))
	return func(first []byte) {
		if at := bytes.Index(first, from); at >= 0 && len(from) == len(to) {
			copy(first[at:], to)
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

// Leader returns the server that leads, and waits for one if there is none. Servers that are not among
// candidates are not asked: none given means all.
func (e *ZooKeeperEnsemble) Leader(t TB, candidates ...*ZooKeeper) (leader *ZooKeeper) {
	t.Helper()
	if candidates == nil {
		candidates = e.Servers
	}
	await(t, func() error {
		for _, leader = range candidates {
			if mode, err := leader.Mode(); err == nil && mode == "leader" {
				return nil
			}
		}
		return errors.New("lab: no server leads")
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
			if i == j || e.Servers[i] != s && e.Servers[j] != s {
				continue
			}
			for _, p := range e.between[i][j] {
				p.Set(m)
			}
		}
	}
}
