package single

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisconn"
)

// What people ask of a Redis with locks in it: who holds, which names are there,
// free this one, is it set up as it should be.

// Inspect implements [locker.Operator]. How many wait is not known to Redis. A key that is no lock is an error, as
// it is to those who ask for the lock; List leaves it out, and Break does not touch it.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	s, err := b.server.inspect(ctx, name)
	switch {
	case err != nil:
		return locker.State{}, failure(err)
	case s.Foreign:
		return locker.State{}, b.foreign(name)
	}
	return stateOf(name, s), nil
}

func stateOf(name string, s status) locker.State {
	state := locker.State{Name: name, Held: s.Held, Waiters: -1}
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

// List implements [locker.Operator]: it walks through the keys of the server, on a
// Cluster of all masters, a few hundred at a time.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		names, err := b.server.Names(ctx, prefix)
		for _, name := range names {
			var s status
			if s, err = b.server.inspect(ctx, name); err != nil {
				break
			}
			if (s.Held || s.Waited) && !yield(stateOf(name, s), nil) {
				return
			}
		}
		if err != nil {
			yield(locker.State{}, failure(err))
		}
	}
}

// Break implements [locker.Operator]. A copy of the holder's acquire that is still under way finds itself void.
func (b *Backend) Break(ctx context.Context, st locker.State) error {
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

// Check implements [locker.Checker]. On a Cluster it looks at every master.
func (b *Backend) Check(ctx context.Context) ([]locker.Finding, error) {
	servers, err := b.server.Servers(ctx)
	var e *redisconn.Error
	if errors.As(err, &e) && e.Refused && redis.HasErrorPrefix(e.Err, "NOPERM") {
		return []locker.Finding{{Severity: locker.SeverityInfo, What: "INFO of " + b.server.Addr(),
			Found:  e.Err.Error(),
			Advice: "the settings of the server cannot be looked at: allow the user +info and +config|get"}}, nil
	}
	if err != nil {
		return nil, failure(err)
	}
	var found []locker.Finding
	for _, s := range servers {
		found = append(found, s.Findings()...)
		f := locker.Finding{What: "replicas of " + s.Addr, Found: fmt.Sprintf("%d connected", s.Replicas)}
		if s.Replicas > 0 {
			f.Severity = locker.SeverityWarning
			f.Advice = "replication is asynchronous: a fail-over can lose locks; redlock, etcd and zookeeper avoid it"
		}
		found = append(found, f)
	}
	return found, nil
}
