package redisnode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
)

// What a [driver.Checker] finds at a master beyond what INFO says: whether the user has the rights that the scripts
// need, and whether one server answers at the address.

var rightsText = read(files, "rights.lua")

// Need is a right that the user of a Node has to have: to run some commands, each with its arguments.
type Need struct {
	Commands [][]string
	Severity driver.Severity // of a finding that one is missing
	Advice   string          // what that leads to
}

// Needs are those of every lock with this name: to lock it, and to be woken by its release.
func (n *Node) Needs(name string) []Need {
	key := LockKey(name)
	publish, subscribe := "publish", "subscribe"
	if n.IsCluster() {
		publish, subscribe = "spublish", "ssubscribe"
	}
	return []Need{{
		Commands: [][]string{{"evalsha", "", "0"}, {"mget", key}, {"set", key, "", "PX", "1"}, {"del", key},
			{"exists", key}, {"pexpire", key, "1"}, {"pttl", key}, {"time"}},
		Severity: driver.SeverityProblem, Advice: "locks cannot be had, or not be kept",
	}, {
		Commands: [][]string{{publish, WakeChannel(name), ""}, {subscribe, WakeChannel(name)}, {"un" + subscribe}},
		Severity: driver.SeverityWarning,
		Advice: "waiters are not woken by a release, they ask again and again (since Redis 7, new users have no " +
			"right to any channel)",
	}}
}

// Check returns what INFO, the user's rights and several connections say of each master. forgets is how much it
// matters that a restart forgets locks.
func (n *Node) Check(ctx context.Context, needs []Need, forgets driver.Severity) (
	found []driver.Finding, servers []Server, err error,
) {
	servers, err = n.Servers(ctx)
	barred := Barred(err)
	switch {
	case barred:
		found = append(found, driver.Finding{Severity: driver.SeverityInfo, What: "INFO of " + n.Addr,
			Found: err.Error(), Advice: "requests are not sent again on another connection, and neither the settings of the " +
				"server can be looked at nor whether there is only one at this address: allow the user +info and +config|get"})
	case err != nil:
		return nil, nil, err
	}
	for _, s := range servers {
		found = append(found, s.Findings(forgets)...)
		if n.Single(ctx, s) != nil {
			found = append(found, driver.Finding{Severity: driver.SeverityProblem, What: "kind of " + s.Addr,
				Found: errClusterNode.Error(), Advice: adviceCluster})
		}
	}
	var mu sync.Mutex
	add := func(f driver.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}
	err = n.eachMaster(ctx, "check", func(client *redis.Client, addr string) error {
		if err := n.rights(ctx, client, addr, needs, add); err != nil {
			return err
		}
		if !barred {
			add(n.alone(ctx, client, addr))
		}
		return nil
	})
	return found, servers, err
}

// rights finds out whether the user has each need.
func (n *Node) rights(ctx context.Context, client *redis.Client, addr string, needs []Need,
	add func(driver.Finding),
) error {
	var all [][]string
	for _, need := range needs {
		all = append(all, need.Commands...)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	reply, err := Ask(ctx, n, "check", client, func(ctx context.Context, c *redis.Client) (any, error) {
		return c.Eval(ctx, rightsText, nil, text).Result()
	})
	what := "rights of the user at " + addr
	missing, tells := reply.([]any)
	switch {
	case Barred(err):
		add(driver.Finding{Severity: needs[0].Severity, What: what, Found: err.Error(),
			Advice: needs[0].Advice + ": allow the user +eval and +evalsha"})
		return nil
	case err != nil:
		return err
	case !tells:
		add(driver.Finding{Severity: driver.SeverityInfo, What: what, Found: "this server does not tell",
			Advice: "see that the user may run the commands that the documentation names"})
		return nil
	}
	first := 0
	for _, need := range needs {
		var lacks, allow []string
		for j, command := range need.Commands {
			if slices.Contains(missing, any(int64(first+j))) {
				lacks = append(lacks, strings.Join(command[:min(2, len(command))], " "))
				allow = append(allow, "+"+command[0])
			}
		}
		first += len(need.Commands)
		if len(lacks) > 0 {
			add(driver.Finding{Severity: need.Severity, What: what, Found: "it may not run: " + strings.Join(lacks, ", "),
				Advice: fmt.Sprintf("%s: allow the user %s, with the keys ~locker:2:* and the channels &locker:2:*",
					need.Advice, strings.Join(allow, " "))})
		}
	}
	if len(missing) == 0 {
		add(driver.Finding{What: what, Found: "enough"})
	}
	return nil
}

// atOnce is to how many connections alone compares the answers. A balancer that sends each to one of two servers at
// random sends all to the same once in 32,768 times.
const atOnce = 16

// alone finds out whether one server answers at an address: behind a balancer there may be several, and then two
// clients hold the same lock. The connections are new, and open at the same time.
func (n *Node) alone(ctx context.Context, client *redis.Client, addr string) driver.Finding {
	f := driver.Finding{What: "server behind " + addr}
	said, err := Ask(ctx, n, "info", client, func(ctx context.Context, _ *redis.Client) ([atOnce]string, error) {
		fresh := redis.NewClient(n.freshOptions(client, atOnce))
		defer func() { _ = fresh.Close() }()
		var said [atOnce]string
		var errs [atOnce]error
		var answered, left sync.WaitGroup
		answered.Add(atOnce)
		for i := range said {
			left.Go(func() {
				conn := fresh.Conn()
				defer func() { _ = conn.Close() }()
				errs[i] = Recovered(func() error {
					text, err := conn.Info(ctx, "server").Result()
					said[i] = ParseInfo(addr, text).RunID
					return err
				})
				answered.Done()
				answered.Wait()
			})
		}
		left.Wait()
		if !slices.Contains(errs[:], nil) {
			return said, errs[0]
		}
		return said, nil
	})
	runs := slices.DeleteFunc(said[:], func(id string) bool { return id == "" })
	connections := len(runs)
	slices.Sort(runs)
	runs = slices.Compact(runs)
	switch {
	case len(runs) > 1:
		f.Severity = driver.SeverityProblem
		f.Found = fmt.Sprintf("%d connections lead to %d servers, which call themselves %s", connections, len(runs),
			strings.Join(runs, ", "))
		f.Advice = "two clients can hold a lock at the same time: connect to one server, not to a balancer in front " +
			"of several (if a fail-over is under way, check again)"
	case connections < 2:
		f.Severity, f.Found = driver.SeverityInfo, "it does not tell its run_id"
		if err != nil {
			f.Found = err.Error()
		}
		f.Advice = "whether there is only one server at this address cannot be checked"
	default:
		f.Found = fmt.Sprintf("the same on %d connections", connections)
	}
	return f
}
