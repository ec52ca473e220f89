package single

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// What people ask of a Redis with locks in it: who holds, which names are there,
// free this one, is it set up as it should be.

// Inspect implements [driver.Operator]. How many wait is not known to Redis. A key that is no lock is an error, as
// it is to those who ask for the lock; List leaves it out, and Break does not touch it.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := b.inspect(ctx, name)
	switch {
	case err != nil:
		return driver.State{}, failure(err)
	case s.Foreign:
		return driver.State{}, b.node.Foreign(name)
	}
	return stateOf(name, s), nil
}

func (b *Backend) inspect(ctx context.Context, name string) (redisnode.Status, error) {
	k := redisnode.KeysOf(name, "", "", "")
	return b.node.StatusOf(name, b.node.Do(ctx, b.node.Inspect(&k, k.Lock)))
}

func stateOf(name string, s redisnode.Status) driver.State {
	state := driver.State{Name: name, Held: s.Held, Waiters: -1}
	if !s.Held {
		return state
	}
	state.Holder, state.Remaining, state.Token = s.Owner, max(s.Left, 0), s.Digits
	_, state.Label, _ = strings.Cut(s.Owner, redisnode.LabelMark)
	state.Since = redisnode.Since(s.Digits) // tokens are the server's clock in µs
	if s.Kept {
		state.KeptUntil = time.Now().Add(state.Remaining)
	}
	if s.Shared {
		state.Holder, state.Sharers = sharersMark+strconv.FormatUint(s.Digits, 10), s.Sharers
		for _, owner := range s.Some {
			if _, label, _ := strings.Cut(owner, redisnode.LabelMark); !slices.Contains(state.Sharing, label) {
				state.Sharing = append(state.Sharing, label)
			}
		}
		state.Label = state.Sharing[0]
	}
	return state
}

// sharersMark stands before the token of those who share a lock, in State.Holder: no owner begins with it.
const sharersMark = "sharers "

// List implements [driver.Operator]: it walks through the keys of the server, on a Cluster of all masters, a few
// hundred at a time, and yields what it finds as it goes.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		var failed error
		stopped := false
		err := b.node.Names(ctx, prefix, func(names []string) (more bool) {
			for s, err := range redisnode.Each(ctx, names, b.inspect) {
				if failed = err; failed != nil {
					return false
				}
				if (s.Held || s.Waited) && !yield(stateOf(s.Name, s), nil) {
					stopped = true
					return false
				}
			}
			return true
		})
		if err = cmp.Or(failed, err); err != nil && !stopped {
			yield(driver.State{}, failure(err))
		}
	}
}

// Break implements [driver.Operator]. A copy of the holder's acquire that is still under way finds itself void.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	k := redisnode.KeysOf(st.Name, st.Holder, "", "")
	a := b.node.Release(&k, redisnode.VoidTime)
	if of, shared := strings.CutPrefix(st.Holder, sharersMark); shared {
		token, err := strconv.ParseUint(of, 10, 64)
		if err != nil {
			return invalid("%q is no Holder of this backend", st.Holder)
		}
		a = b.scripts.dissolve.Attempt("break", k.Name, nil, k.Lock, k.Wait(), redisnode.Digits(token),
			redisnode.VoidTime.Milliseconds())
	} else if st.Holder == "" {
		return nil
	}
	return ignoreLost(b.state("break", b.node.Do(ctx, a)))
}

// Check implements [driver.Checker]. On a Cluster it looks at every master. It asks for the rights to a name
// that begins with the prefix of the URL, or with none for a Backend that New has made.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	name := b.prefix + "locker-check"
	set := redisnode.LockKey(name) + ":shared"
	needs := append(b.node.Needs(name), redisnode.Need{
		Commands: [][]string{{"set", fmt.Sprint(b.tokens(name)), ""}},
		Severity: driver.SeverityProblem, Advice: "locks have no tokens, and so cannot be had",
	}, redisnode.Need{
		Commands: [][]string{{"zadd", set, "0", ""}, {"zrem", set, ""}, {"zrange", set, "0", "-1"}, {"zscore", set, ""},
			{"zcount", set, "0", "1"}, {"zremrangebyscore", set, "0", "1"}},
		Severity: driver.SeverityInfo, Advice: "locks cannot be shared",
	})
	found, servers, err := b.node.Check(ctx, needs, driver.SeverityWarning)
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
