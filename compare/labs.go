package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// labService is a service that the lab can start.
type labService struct {
	scheme string
	start  func(b *bench) service
}

// labServices are started where their programs are installed.
var labServices = []labService{
	{"file", startFile},
	{"redis", startRedis},
	{"redlock", startRedlock},
	{"etcd", startEtcd},
	{"zookeeper", startZooKeeper},
	{"postgres", startPostgres},
}

// address of a service that the lab has started itself.
func (b *bench) labAddress(url string) address {
	a, err := parseAddress(url)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func startFile(b *bench) service {
	dir := filepath.Join(b.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	s := service{address: b.labAddress("file://" + dir), version: "kernel file locks",
		untried: map[string]string{}}
	for _, f := range labFaults {
		s.untried[f.ID] = "it has no server"
	}
	return s
}

// server is one of the servers of a service.
type server interface {
	Pause()
	Resume()
	Kill()
	Running() bool
	Pid() int
	Waits() map[int]time.Duration
	Restart(t lab.TB)
	Addr() string
}

// paused is the fault of a server that stands still past the TTL.
func paused(which func(b *bench) server) serverFault {
	var s server
	return serverFault{fault: serversPaused, long: true,
		before: func(b *bench) { lab.NeedPause(b.stage) },
		inject: func(b *bench) string {
			s = which(b)
			s.Pause()
			return fmt.Sprintf("process %d stands still", s.Pid())
		},
		heal: func(*bench) { s.Resume() },
	}
}

// killed is the fault of servers that are killed, lose what wipe takes from them, and are started again:
// later where the fault is that they are away, else at once.
func killed(f history.Fault, n int, which func(b *bench) []server, wipe func(b *bench, s server),
	restart func(b *bench, killed []server),
) serverFault {
	var all []server
	return serverFault{fault: f, takes: n, long: f.Class == history.Down,
		inject: func(b *bench) string {
			all = which(b)
			proof := "gone: process"
			for _, s := range all {
				proof += fmt.Sprintf(" %d", s.Pid())
				s.Kill()
				if wipe != nil {
					wipe(b, s)
				}
			}
			if wipe != nil {
				proof += ", and what it had on disk"
			}
			return proof
		},
		heal: func(b *bench) { restart(b, all) },
	}
}

func restartEach(b *bench, killed []server) {
	for _, s := range killed {
		s.Restart(b.stage)
	}
}

// every is which servers: these.
func every(all ...server) func(*bench) []server { return func(*bench) []server { return all } }

// forget removes what a Redis has on disk.
func forget(b *bench, s server) {
	dir := s.(*lab.Redis).Dir()
	for _, name := range []string{"appendonlydir", "appendonly.aof", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			b.Fatal(err)
		}
	}
}

// clocked is a server whose wall clock can be moved.
type clocked interface {
	Addr() string
	JumpClock(t lab.TB, d time.Duration)
}

// stepped puts a server whose clock can be moved in the place of the one at index i; it is started once.
func stepped(i int, settle time.Duration, start func(b *bench) clocked) serverFault {
	var s clocked
	var old string
	return serverFault{fault: clockStepped,
		before: func(b *bench) {
			old = b.a.proxies[i].Target()
			if s == nil {
				s = start(b)
				defer b.sleep(settle) // until it votes
			}
			b.lead(i, s.Addr())
		},
		inject: func(b *bench) string {
			s.JumpClock(b.stage, time.Minute) // which waits until the server tells the new time
			return "the server tells a time that is a minute ahead of what it was"
		},
		after: func(b *bench) { b.lead(i, old) },
	}
}

func clockedRedis(b *bench) clocked { return lab.StartRedis(b.stage, lab.WithClock()) }

func startRedis(b *bench) service {
	primary := lab.StartRedis(b.stage, lab.WithAppendOnly())
	link := lab.StartProxy(b.stage, primary.Addr())
	replica := lab.StartRedis(b.stage, lab.WithAppendOnly(), lab.ReplicaThrough(primary, link.Addr()))
	all := []server{primary}
	one := func(*bench) server { return primary }
	return service{
		address: b.labAddress("redis://" + primary.Addr()),
		watched: all, version: "Redis " + primary.Info(b.stage, "server")["redis_version"],
		faults: []serverFault{
			paused(one),
			killed(restarted, len(all), every(all...), nil, restartEach),
			killed(restartedEmpty, 1, every(primary), forget, restartEach),
			failOver(primary, replica, link),
			stepped(0, 0, clockedRedis),
			killed(majorityDown, 1, every(primary), nil, restartEach),
		},
		untried: map[string]string{
			leaderKilled.ID: "it has one server that decides: see the fail-over",
			memberAlone.ID:  "it has one server",
			minorityDown.ID: "it can spare none of one server",
		},
	}
}

// failOver has a replica that lags take the place of its primary, at the primary's address.
func failOver(primary, replica *lab.Redis, link *lab.Proxy) serverFault {
	return serverFault{fault: failedOver, takes: 1,
		before: func(*bench) { link.Replies(lab.Hold) },
		inject: func(b *bench) string {
			primary.Kill()
			link.Set(lab.Reset)
			replica.MustDo(b.stage, "REPLICAOF", "NO", "ONE")
			b.lead(0, replica.Addr())
			return "the replica is " + replica.Info(b.stage, "replication")["role"] + " now"
		},
		after: func(b *bench) {
			forget(b, primary)
			primary.Restart(b.stage)
			link.Set(lab.Pass)
			host, port, _ := strings.Cut(link.Addr(), ":")
			replica.MustDo(b.stage, "REPLICAOF", host, port)
			b.lead(0, primary.Addr())
			b.wait(10*time.Second, func() bool {
				return replica.Info(b.stage, "replication")["master_link_status"] == "up"
			})
		},
	}
}

func startRedlock(b *bench) service {
	return redlockWith(b, fmt.Sprintf("fencing=on&restart_guard=%v", 2*b.ttl), lab.WithAppendOnly())
}

// redlockWith starts five Redis for a redlock with these parameters.
func redlockWith(b *bench, parameters string, opts ...lab.RedisOption) service {
	guard := 2 * b.ttl
	var all []server
	var addrs []string
	var version string
	for range 5 {
		r := lab.StartRedis(b.stage, opts...)
		all, addrs = append(all, r), append(addrs, r.Addr())
		version = r.Info(b.stage, "server")["redis_version"]
	}
	settled := func(f serverFault) serverFault {
		// Those that were restarted have to vote again before the next round.
		f.after = func(b *bench) { b.sleep(guard + time.Second) }
		return f
	}
	return service{
		address: b.labAddress("redlock://" + strings.Join(addrs, ",") + "?" + parameters),
		watched: all, version: "Redis " + version,
		faults: []serverFault{
			paused(func(*bench) server { return all[0] }),
			settled(killed(minorityDown, 2, every(all[:2]...), nil, restartEach)),
			settled(killed(majorityDown, 3, every(all[:3]...), nil, restartEach)),
			settled(killed(restarted, len(all), every(all...), nil, restartEach)),
			settled(forgetful(killed(restartedEmpty, 1, every(all[2]), forget, restartEach))),
			stepped(4, guard+time.Second, clockedRedis),
		},
		untried: map[string]string{
			leaderKilled.ID: "its servers have no leader",
			memberAlone.ID:  "its servers do not talk to each other",
			failedOver.ID:   "no server takes another's place",
		},
	}
}

// forgetful has the holder reach only a majority, of which the server that forgets is one: another needs only
// that one vote more.
func forgetful(f serverFault) serverFault {
	f.before = func(b *bench) {
		for _, p := range b.a.proxies[3:] {
			p.Set(lab.Reset)
		}
	}
	return f
}

func startEtcd(b *bench) service {
	c := lab.StartEtcd(b.stage, 3, lab.WithPeerProxies())
	s := service{address: b.labAddress("etcd://" + strings.Join(c.Addrs(), ",")), version: "etcd 3",
		untried: map[string]string{
			restartedEmpty.ID: "a member without its data cannot join its cluster again: it has to be replaced",
			clockStepped.ID:   "libfaketime cannot move the clock of a static Go program",
		}}
	for _, n := range c.Nodes {
		s.watched = append(s.watched, n)
	}
	var cut *lab.Etcd
	var undo func()
	return s.led(func(b *bench) server { return c.Leader(b.stage) }, c.Start, func(b *bench) server {
		cut = c.Leader(b.stage)
		undo = c.Isolate(cut)
		return c.Leader(b.stage, cut)
	}, func() { undo() })
}

func startZooKeeper(b *bench) service {
	e := lab.StartZooKeeperEnsemble(b.stage, 3)
	s := service{address: b.labAddress("zookeeper://" + strings.Join(e.Addrs(), ",")), version: "ZooKeeper",
		untried: map[string]string{
			restartedEmpty.ID: "a member without its data is given it by the others: what is lost is no lock",
			clockStepped.ID: "ZooKeeper counts sessions on the monotonic clock: stepping the other one is " +
				"tried in its tests",
		}}
	for _, z := range e.Servers {
		s.watched = append(s.watched, z)
	}
	if text, err := e.Servers[0].FourLetters("srvr"); err == nil {
		if _, rest, ok := strings.Cut(text, "Zookeeper version: "); ok {
			s.version += " " + strings.FieldsFunc(rest,
				func(r rune) bool { return r == '-' || r == ',' || r == ' ' })[0]
		}
	}
	var cut *lab.ZooKeeper
	return s.led(func(b *bench) server { return e.Leader(b.stage) }, e.Restart, func(b *bench) server {
		cut = e.Leader(b.stage)
		e.Isolate(cut, lab.Drop)
		return e.Leader(b.stage, e.Others(cut)...)
	}, func() { e.Isolate(cut, lab.Pass) })
}

// led adds what can be done to three servers of which one leads. revive starts those that do not run; isolate
// cuts the leader off from the others, and returns whom these follow then.
func (s service) led(leader func(b *bench) server, revive func(t lab.TB), isolate func(b *bench) server,
	undo func()) service {
	restart := func(b *bench, _ []server) { revive(b.stage) }
	// The leader goes last, so that a majority is there as long as can be.
	some := func(n int) func(b *bench) []server {
		return func(b *bench) []server {
			l := leader(b)
			return slices.DeleteFunc(slices.Clone(s.watched), func(o server) bool { return o == l })[:n]
		}
	}
	s.faults = []serverFault{
		paused(leader),
		killed(leaderKilled, 1, func(b *bench) []server { return []server{leader(b)} }, nil, restart),
		{
			fault: memberAlone, long: true,
			inject: func(b *bench) string { return "cut off from its peers; they follow " + isolate(b).Addr() },
			heal:   func(*bench) { undo() },
		},
		killed(minorityDown, 1, some(1), nil, restart),
		killed(majorityDown, 2, some(2), nil, restart),
		killed(restarted, len(s.watched), every(s.watched...), nil, restart),
	}
	s.untried[failedOver.ID] = "see the leader killed"
	return s
}

func startPostgres(b *bench) service {
	const params = "sslmode=disable"
	primary := lab.StartPostgres(b.stage)
	link := lab.StartProxy(b.stage, primary.Addr())
	all := []server{primary}
	var standby *lab.Postgres
	failOver := serverFault{fault: failedOver, takes: 1,
		before: func(b *bench) {
			standby = lab.StartPostgres(b.stage, lab.StandbyThrough(primary, link.Addr()))
			link.Replies(lab.Hold)
		},
		inject: func(b *bench) string {
			primary.Kill()
			link.Set(lab.Reset)
			standby.Promote(b.stage)
			b.lead(0, standby.Addr())
			return "the standby takes writes"
		},
		after: func(b *bench) {
			link.Set(lab.Pass)
			primary.Restart(b.stage)
			b.lead(0, primary.Addr())
			standby.StopFast()
			_ = os.RemoveAll(standby.Dir()) // the next one begins anew
		},
	}
	return service{
		address: b.labAddress(primary.URL(primary.Addr(), params)),
		watched: all, version: "PostgreSQL " + primary.Query(b.stage, "SHOW server_version"),
		faults: []serverFault{
			paused(func(*bench) server { return primary }),
			killed(restarted, len(all), every(all...), nil, restartEach),
			failOver,
			stepped(0, 0, func(b *bench) clocked { return lab.StartPostgres(b.stage, lab.WithPostgresClock()) }),
			killed(majorityDown, 1, every(primary), nil, restartEach),
		},
		untried: map[string]string{
			restartedEmpty.ID: "a database that has lost its files is no database: what a backup brings " +
				"back is in the documentation of package postgres",
			leaderKilled.ID: "it has one server that decides: see the fail-over",
			memberAlone.ID:  "it has one server",
			minorityDown.ID: "it can spare none of one server",
		},
	}
}
