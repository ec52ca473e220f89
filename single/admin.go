package single

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisconn"
)

// What people ask of a Redis with locks in it: who holds, which names are there,
// free this one, is it set up as it should be.

// Inspect implements [driver.Operator]. How many wait is not known to Redis. A key that is no lock is an error, as
// it is to those who ask for the lock; List leaves it out, and Break does not touch it.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := b.server.inspect(ctx, name)
	switch {
	case err != nil:
		return driver.State{}, failure(err)
	case s.Foreign:
		return driver.State{}, b.foreign(name)
	}
	return stateOf(name, s), nil
}

func stateOf(name string, s status) driver.State {
	state := driver.State{Name: name, Held: s.Held, Waiters: -1}
	if s.Held {
		state.Holder = s.Value
		state.Remaining, state.Token = max(s.Left, 0), s.Token
		_, state.Label, _ = strings.Cut(s.Value, labelMark)
		if s.shared {
			state.Holder = sharersMark + strconv.FormatUint(s.Token, 10)
			s.sharing(&state)
		}
	}
	return state
}

// sharersMark stands before the token of those who share a lock, in State.Holder: no owner begins with it.
const sharersMark = "sharers "

// List implements [driver.Operator]: it walks through the keys of the server, on a
// Cluster of all masters, a few hundred at a time, and yields what it finds as it goes.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		var failed error
		stopped := false
		err := b.server.Names(ctx, prefix, func(name string) (more bool) {
			var s status
			if s, failed = b.server.inspect(ctx, name); failed == nil && (s.Held || s.Waited) {
				stopped = !yield(stateOf(name, s), nil)
			}
			return failed == nil && !stopped
		})
		if err = cmp.Or(failed, err); err != nil && !stopped {
			yield(driver.State{}, failure(err))
		}
	}
}

// Break implements [driver.Operator]. A copy of the holder's acquire that is still under way finds itself void.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	k := redisconn.KeysOf(st.Name, st.Holder, "", "")
	var err error
	if of, shared := strings.CutPrefix(st.Holder, sharersMark); shared {
		var token uint64
		if token, err = strconv.ParseUint(of, 10, 64); err != nil {
			return invalid("%q is no Holder of this backend", st.Holder)
		}
		err = b.server.dissolve(ctx, &k, token)
	} else if st.Holder != "" {
		_, err = b.server.release(ctx, &k, false, voidTime)
	}
	return failure(err)
}

// Check implements [driver.Checker]. On a Cluster it looks at every master. It asks for the rights to a name
// that begins with the prefix of the URL, or with none for a Backend that New has made.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	name := b.prefix + "locker-check"
	set := redisconn.LockKey(name) + ":shared"
	needs := append(b.server.Needs(name), redisconn.Need{
		Commands: [][]string{{"set", fmt.Sprint(b.server.tokens(name)), ""}},
		Severity: driver.SeverityProblem, Advice: "locks have no tokens, and so cannot be had",
	}, redisconn.Need{
		Commands: [][]string{{"zadd", set, "0", ""}, {"zrem", set, ""}, {"zrange", set, "0", "-1"}, {"zscore", set, ""},
			{"zcount", set, "0", "1"}, {"zremrangebyscore", set, "0", "1"}},
		Severity: driver.SeverityInfo, Advice: "locks cannot be shared",
	})
	found, servers, err := b.server.Check(ctx, needs, driver.SeverityWarning)
	if err != nil {
		return nil, failure(err)
	}
	for _, s := range servers {
		f := driver.Finding{What: "replicas of " + s.Addr, Found: fmt.Sprintf("%d connected", s.Replicas)}
		if s.Replicas > 0 {
			f.Severity = driver.SeverityWarning
			f.Advice = "replication is asynchronous: a fail-over can lose locks; redlock, etcd and zookeeper avoid it"
		}
		found = append(found, f)
	}
	return found, nil
}
