package lab

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// doTimeout bounds Do: a paused server must not hang a test.
const doTimeout = 5 * time.Second

// Do sends one command to the server, on a connection of its own that no [Proxy] is in the way of, and
// as a user with all rights. It waits 5 s at most. Each call has another connection: for what depends on
// earlier commands (WAIT counts the replicas that have what its own connection wrote) see [Redis.Conn].
//
// The reply is nil, an int64, a string, or a []any of these and of [ReplyError]. An error that the
// server answered is a ReplyError. Arguments are sent as fmt.Sprint prints them, a []byte as it is.
func (r *Redis) Do(args ...any) (any, error) {
	return r.do(doTimeout, args...)
}

func (r *Redis) do(timeout time.Duration, args ...any) (any, error) {
	c, err := r.dial(timeout)
	if err == nil {
		defer func() { _ = c.Close() }()
		var reply any
		if reply, err = c.do(timeout, args...); err == nil {
			return reply, nil
		}
	}
	// The command only: what follows may be a password.
	return nil, fmt.Errorf("lab: %v on %s at %s: %w", args[0], r.name, r.Addr(), err)
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
	info, err := r.info(doTimeout, section)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return info
}

func (r *Redis) info(timeout time.Duration, section string) (map[string]string, error) {
	reply, err := r.do(timeout, "INFO", section)
	if err != nil {
		return nil, err
	}
	return infoFields(reply), nil
}

func infoFields(reply any) map[string]string {
	text, _ := reply.(string)
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields
}

// Commands counts what a server has executed. A script counts as one command and each command that it
// calls as one more, which is how Redis itself counts.
type Commands struct {
	// Total is the number of commands of all kinds.
	Total int64
	// ByName has the number of calls by lower-case name: "set", "evalsha", "script|load". Names that
	// were never called are absent.
	ByName map[string]int64
}

// Since returns what was executed between before and c.
func (c Commands) Since(before Commands) Commands {
	diff := Commands{Total: c.Total - before.Total, ByName: map[string]int64{}}
	for name, n := range c.ByName {
		if n -= before.ByName[name]; n != 0 {
			diff.ByName[name] = n
		}
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
	c, err := r.dial(doTimeout)
	if err != nil {
		t.Fatalf("lab: count the commands of %s: %v", r.name, err)
	}
	defer func() { _ = c.Close() }()
	if r.conf.auth {
		r.cost.add("auth")
	}
	// One INFO, so that both counts are of the same moment.
	reply, err := c.do(doTimeout, "INFO", "all")
	if err != nil {
		t.Fatalf("lab: count the commands of %s: %v", r.name, err)
	}
	count := parseCommands(infoFields(reply)).Since(r.cost)
	// This INFO is counted by the server after it has answered: it is for the next call to subtract.
	r.cost.add("info")
	return count
}

func (c *Commands) add(name string) {
	// A copy, since what was returned earlier must not change.
	byName := maps.Clone(c.ByName)
	if byName == nil {
		byName = map[string]int64{}
	}
	byName[name]++
	c.Total, c.ByName = c.Total+1, byName
}

func parseCommands(info map[string]string) Commands {
	c := Commands{ByName: map[string]int64{}}
	c.Total, _ = strconv.ParseInt(info["total_commands_processed"], 10, 64)
	for field, value := range info {
		name, found := strings.CutPrefix(field, "cmdstat_")
		if !found {
			continue
		}
		// calls=3,usec=120,…
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		c.ByName[name], _ = strconv.ParseInt(calls, 10, 64)
	}
	return c
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
	used := r.Commands(t).Since(before).ByName
	return int(used["evalsha"] + used["eval"])
}
