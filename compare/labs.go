package compare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
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
	start  func(b *bench)
}

// labServices are started if their programs are installed.
var labServices = []labService{
	{"file", startFile},
	{"redis", startRedis},
	{"redlock", startRedlock},
	{"etcd", startEtcd},
	{"zookeeper", startZooKeeper},
	{"postgres", startPostgres},
}

// at records the address of a service that the lab has started, and why some faults are not possible.
func (b *bench) at(url string, untried map[string]string) {
	var err error
	if b.address, err = parseAddress(url); err != nil {
		b.Fatal(err)
	}
	maps.Copy(b.untried, untried)
}

func startFile(b *bench) {
	dir := filepath.Join(b.TempDir(), "locks")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	b.at("file://"+dir, nil)
	b.version = "kernel file locks"
	for _, f := range labFaults {
		b.untried[f.ID] = "it has no server"
	}
}

// Server faults, caused by the lab or by the user's own commands.
var (
	serverPause = history.Fault{ID: "server-pause", Class: history.Pause, When: "after a pause of a server",
		What: "The server, or the leader of several, is paused for longer than a TTL, and resumes."}
	leaderKilled = history.Fault{ID: "leader-killed", Class: history.Down, When: "after its leader was killed",
		What: "The server that leads is killed, and another takes over."}
	memberAlone = history.Fault{ID: "member-isolated", Class: history.Server, When: "while a member was cut off",
		What: "The leader reaches its clients but none of the other members."}
	minorityDown = history.Fault{ID: "minority-down", Class: history.Down, When: "while a minority was down",
		What: "As many servers as the service can spare are killed, and started again later."}
	majorityDown = history.Fault{ID: "majority-down", Class: history.Down, When: "while a majority was down",
		What: "One server more than the service can spare is killed, and started again later."}
	restarted = history.Fault{ID: "restart", Class: history.Restart, When: "after a restart",
		What: "All servers of the service are killed (SIGKILL) and started again with what they had on disk."}
	restartedEmpty = history.Fault{ID: "restart-empty", Class: history.DataLost, When: "after a restart without its data",
		What: "A server is killed and started again with an empty disk."}
	failedOver = history.Fault{ID: "fail-over", Class: history.Failover, When: "after a fail-over",
		What: "The primary is killed before its replica has the last writes; the replica takes its place."}
	clockJump = history.Fault{ID: "clock-jump", Class: history.Clock, When: "after a jump of a clock",
		What: "A server's wall clock jumps forward by a minute."}

	labFaults = []history.Fault{serverPause, leaderKilled, memberAlone, minorityDown, majorityDown, restarted,
		restartedEmpty, failedOver, clockJump}
)

// allFaults are all faults, tried or not.
func allFaults() (all []history.Fault) {
	for _, f := range clientFaults {
		all = append(all, f.Fault)
	}
	return append(all, labFaults...)
}

// which selects the servers of a fault.
type which func(b *bench) []*lab.Process

func these(all ...*lab.Process) which { return func(*bench) []*lab.Process { return all } }

// paused is the fault of a server that is paused past the TTL.
func paused(which which) serverFault {
	return serverFault{Fault: serverPause,
		before: func(b *bench) { lab.NeedPause(b) },
		inject: func(b *bench) (proof string, heal func()) {
			s := which(b)[0]
			s.Pause()
			return fmt.Sprintf("process %d is paused", s.Pid()), s.Resume
		},
	}
}

// killed is the fault of n servers that are killed and started again: later if the fault is their
// absence, else at once. It is restartedEmpty for a Redis that has lost what it had on disk.
func killed(f history.Fault, n int, which which) serverFault {
	return serverFault{Fault: f, takes: n, inject: func(b *bench) (string, func()) {
		all, proof := which(b), "gone: process"
		for _, s := range all {
			proof += fmt.Sprintf(" %d", s.Pid())
			s.Kill()
			for _, name := range []string{"appendonlydir", "appendonly.aof", "dump.rdb"} {
				if f.ID != restartedEmpty.ID {
					break
				}
				if err := os.RemoveAll(filepath.Join(s.Dir(), name)); err != nil {
					b.Fatal(err)
				}
			}
		}
		return proof, func() { lab.Restart(b, all...) }
	}}
}

// failover is the fault that a standby, started for it, replaces its primary at the primary's address,
// and lags: what the primary sends it over link is held first.
func failover(primary *lab.Process, link *lab.Proxy,
	start func(b *bench) (standby *lab.Process, promote func() (proof string))) serverFault {
	var standby *lab.Process
	var promote func() string
	return serverFault{
		Fault: failedOver, takes: 1,
		before: func(b *bench) {
			standby, promote = start(b)
			link.Replies(lab.Hold)
		},
		inject: func(b *bench) (proof string, heal func()) {
			primary.Kill()
			link.Set(lab.Reset)
			proof = promote()
			b.lead(0, standby.Addr())
			return proof, func() {}
		},
		after: func(b *bench) {
			link.Set(lab.Pass)
			primary.Restart(b)
			b.lead(0, primary.Addr())
			standby.Stop()
			_ = os.RemoveAll(standby.Dir())
		},
	}
}

// stepped replaces the server at index i by one whose clock can be moved; it is started once.
func stepped(i int, settle time.Duration, start func(b *bench) *lab.Process) serverFault {
	var s *lab.Process
	var old string
	return serverFault{Fault: clockJump,
		before: func(b *bench) {
			old = b.a.proxies[i].Target()
			if s == nil {
				s = start(b)
				defer b.sleep(settle) // until it votes
			}
			b.lead(i, s.Addr())
		},
		inject: func(b *bench) (string, func()) {
			s.JumpClock(b, time.Minute) // which waits until the server reports the new time
			return "the server's clock is a minute ahead of what it was", func() {}
		},
		after: func(b *bench) { b.lead(i, old) },
	}
}

func clockedRedis(b *bench) *lab.Process { return lab.StartRedis(b, lab.WithClock()).Process }

// For services with one server that decides.
var alone = map[string]string{
	leaderKilled.ID: "one server decides: see the fail-over",
	memberAlone.ID:  "it has one server",
	minorityDown.ID: "it has only one server",
}

func startRedis(b *bench) {
	primary := lab.StartRedis(b, lab.WithAppendOnly())
	link := lab.StartProxy(b, primary.Addr())
	b.at("redis://"+primary.Addr(), alone)
	b.version = "Redis " + primary.Info(b, "server")["redis_version"]
	b.faults = []serverFault{
		paused(these(primary.Process)),
		killed(restarted, 1, these(primary.Process)),
		killed(restartedEmpty, 1, these(primary.Process)),
		failover(primary.Process, link, func(b *bench) (*lab.Process, func() string) {
			r := lab.StartRedis(b, lab.ReplicaOf(link.Addr()))
			b.wait(10*time.Second, func() bool { return r.Info(b, "replication")["master_link_status"] == "up" })
			return r.Process, func() string {
				r.MustDo(b, "REPLICAOF", "NO", "ONE")
				return "the replica is " + r.Info(b, "replication")["role"] + " now"
			}
		}),
		stepped(0, 0, clockedRedis),
		killed(majorityDown, 1, these(primary.Process)),
	}
}

func startRedlock(b *bench) {
	redlockWith(b, fmt.Sprintf("fencing=on&restart_guard=%v", b.guard()), lab.WithAppendOnly())
}

// guard is at least as long as any TTL that may be chosen.
func (b *bench) guard() time.Duration {
	if b.run.ttl == 0 {
		return longest * b.ttl
	}
	return 2 * b.ttl
}

// redlockWith starts five Redis for a redlock with these parameters.
func redlockWith(b *bench, parameters string, opts ...lab.Option) {
	guard := b.guard()
	var all []*lab.Process
	var addrs []string
	for range 5 {
		r := lab.StartRedis(b, opts...)
		all, addrs = append(all, r.Process), append(addrs, r.Addr())
		b.version = "Redis " + r.Info(b, "server")["redis_version"]
	}
	b.at("redlock://"+strings.Join(addrs, ",")+"?"+parameters, map[string]string{
		leaderKilled.ID: "its servers have no leader",
		memberAlone.ID:  "its servers do not talk to each other",
		failedOver.ID:   "no server takes another's place",
	})
	b.faults = []serverFault{
		paused(these(all[0])),
		killed(minorityDown, 2, these(all[:2]...)),
		killed(majorityDown, 3, these(all[:3]...)),
		killed(restarted, len(all), these(all...)),
		killed(restartedEmpty, 1, these(all[2])),
	}
	for i := range b.faults[1:] {
		// Restarted servers must vote again before the next round.
		b.faults[i+1].after = func(b *bench) { b.sleep(guard + time.Second) }
	}
	// The holder reaches only a majority, including the server that forgets: another holder needs only
	// that vote.
	b.faults[4].before = func(b *bench) {
		for _, p := range b.a.proxies[3:] {
			p.Set(lab.Reset)
		}
	}
	b.faults = append(b.faults, stepped(4, guard+time.Second, clockedRedis))
}

func startEtcd(b *bench) {
	c := lab.StartEtcd(b, 3, lab.WithPeerProxies())
	b.at("etcd://"+strings.Join(c.Addrs(), ","), map[string]string{
		restartedEmpty.ID: "a member without its data cannot rejoin its cluster: it must be replaced",
		clockJump.ID:      "libfaketime cannot move the clock of a static Go program",
	})
	b.version = "etcd 3"
	var all []*lab.Process
	for _, n := range c.Nodes {
		all = append(all, n.Process)
	}
	b.led(all, func(b *bench) *lab.Process { return c.Leader(b).Process }, func(b *bench) (string, func()) {
		cut := c.Leader(b)
		undo := c.Isolate(cut)
		return c.Leader(b, cut).Addr(), undo
	})
}

func startZooKeeper(b *bench) {
	e := lab.StartZooKeeperEnsemble(b, 3)
	b.at("zookeeper://"+strings.Join(e.Addrs(), ","), map[string]string{
		restartedEmpty.ID: "a member without its data gets it from the others: no lock is lost",
		clockJump.ID:      "ZooKeeper counts sessions on the monotonic clock: its tests step the other one",
	})
	var all []*lab.Process
	for _, z := range e.Servers {
		all = append(all, z.Process)
	}
	b.version = "ZooKeeper 3"
	b.led(all, func(b *bench) *lab.Process { return e.Leader(b).Process }, func(b *bench) (string, func()) {
		cut := e.Leader(b)
		e.Isolate(cut, lab.Drop)
		return e.Leader(b, e.Others(cut)...).Addr(), func() { e.Isolate(cut, lab.Pass) }
	})
}

// led sets the faults of three servers with a leader. isolate cuts the leader off from the others, and
// returns the address of the server that these follow then.
func (b *bench) led(all []*lab.Process, leader func(b *bench) *lab.Process,
	isolate func(b *bench) (follow string, undo func())) {
	one := func(b *bench) []*lab.Process { return []*lab.Process{leader(b)} }
	// The leader goes last, so that a majority exists as long as possible.
	others := func(n int) which {
		return func(b *bench) []*lab.Process {
			l := leader(b)
			return slices.DeleteFunc(slices.Clone(all), func(o *lab.Process) bool { return o == l })[:n]
		}
	}
	b.faults = []serverFault{
		killed(leaderKilled, 1, one),
		killed(minorityDown, 1, others(1)),
		killed(majorityDown, 2, others(2)),
		killed(restarted, len(all), these(all...)),
		paused(one),
		{Fault: memberAlone, inject: func(b *bench) (string, func()) {
			follow, undo := isolate(b)
			return "cut off from its peers; they follow " + follow, undo
		}},
	}
	b.untried[failedOver.ID] = "see leader-killed"
}

func startPostgres(b *bench) {
	primary := lab.StartPostgres(b)
	link := lab.StartProxy(b, primary.Addr())
	b.at(primary.URL(primary.Addr(), "sslmode=disable"), alone)
	b.untried[restartedEmpty.ID] = "a database without its files does not start; for backups, see the " +
		"documentation of package postgres"
	b.version = "PostgreSQL " + primary.Query(b, "SHOW server_version")
	b.faults = []serverFault{
		paused(these(primary.Process)),
		killed(restarted, 1, these(primary.Process)),
		failover(primary.Process, link, func(b *bench) (*lab.Process, func() string) {
			p := lab.StartPostgres(b, lab.ReplicaOf(link.Addr()))
			return p.Process, func() string { p.Promote(b); return "the standby takes writes" }
		}),
		stepped(0, 0, func(b *bench) *lab.Process { // a copy: a client that has found its table does not create it again
			p := lab.StartPostgres(b, lab.WithClock(), lab.ReplicaOf(primary.Addr()))
			p.Promote(b)
			return p.Process
		}),
		killed(majorityDown, 1, these(primary.Process)),
	}
}

// ownFault is a fault of an existing service, caused by the user's own commands.
type ownFault struct{ inject, heal string }

// staged is an existing service. Its servers are left alone except for the user's own faults.
func (b *bench) staged(a address) {
	b.address = a
	for _, f := range labFaults {
		own, has := b.run.faults[f.ID]
		if !has {
			b.untried[f.ID] = "only the lab's own servers are broken: give a command for it (--fault)"
			continue
		}
		f.What += " Done by: " + own.inject
		heal := func() {
			ctx := context.WithoutCancel(b.ctx) // even if the run was interrupted
			_, err := b.run.within(ctx, 2*time.Minute, own.heal)
			if err != nil && b.ctx.Err() != nil {
				_, err = b.run.within(ctx, 2*time.Minute, own.heal) // Ctrl-C also reaches the command
			}
			if err != nil {
				b.run.say("fault %s COULD NOT BE HEALED by %q: %v", f.ID, own.heal, err)
				b.Fatalf("fault %s could not be healed: %v", f.ID, err)
			}
		}
		b.faults = append(b.faults, serverFault{Fault: f, own: true, inject: func(b *bench) (string, func()) {
			out, err := b.run.within(b.ctx, 10*time.Minute, own.inject)
			if err != nil {
				heal()
				b.Fatalf("fault %s: %v", f.ID, err)
			}
			return cmp.Or(out, "its command ended with status 0"), heal
		}})
	}
}

// within runs a command for at most that long, and returns the last line that it wrote.
func (r *run) within(ctx context.Context, limit time.Duration, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.shell(ctx, command)
}

// shell runs a command, and returns the last line that it wrote.
func shell(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil {
		return last, fmt.Errorf("%q: %w: %s", command, err, last)
	}
	return last, nil
}
