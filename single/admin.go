package single

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisconn"
)

// What people ask of a Redis with locks in it: who holds, which names are there,
// free this one, is it set up as it should be.

// Inspect implements [locker.Inspector]. How many wait is not known to Redis.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	s, err := b.server.inspect(ctx, name)
	if err != nil {
		return locker.State{}, failure(err)
	}
	return stateOf(s), nil
}

func stateOf(s status) locker.State {
	state := locker.State{Held: s.Held, Waiters: -1}
	if s.Held {
		state.Remaining, state.Token = max(s.Left, 0), s.Token
		_, state.Label, _ = strings.Cut(s.Value, labelMark)
		if s.shared {
			s.sharing(&state)
		}
	}
	return state
}

// List implements [locker.Lister]: it walks through the keys of the server, on a
// Cluster of all masters, a few hundred at a time.
func (b *Backend) List(ctx context.Context, prefix string,
	found func(name string, st locker.State) error) error {
	names, err := b.server.Names(ctx, prefix)
	if err != nil {
		return failure(err)
	}
	for _, name := range names {
		s, err := b.server.inspect(ctx, name)
		if err != nil {
			return failure(err)
		}
		if s.Held || s.Waited {
			if err := found(name, stateOf(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Break implements [locker.Breaker]. It names the holder that it has seen: if that one is gone by then, or the
// request arrives twice, it finds nobody, whoever has the lock now.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	s, err := b.server.inspect(ctx, name)
	switch {
	case err != nil:
		return locker.State{}, failure(err)
	case s.Foreign:
		return locker.State{}, b.foreign(name)
	case !s.Held:
		return stateOf(s), nil
	}
	k := redisconn.KeysOf(name, s.Value, "", "")
	var state redisconn.State
	if s.shared {
		state, err = b.server.dissolve(ctx, &k, s.Token)
	} else {
		state, err = b.server.release(ctx, &k)
	}
	switch {
	case err != nil:
		return locker.State{}, failure(err)
	case state != redisconn.Mine:
		return stateOf(status{}), nil
	}
	return stateOf(s), nil
}

// lookAtEviction warns if the server may throw lock keys away. It asks in the
// background: no lock waits for it.
func (b *Backend) lookAtEviction() {
	b.looking.Go(func() {
		servers, err := b.server.Servers(b.closing)
		if err != nil {
			return // not allowed to look, or not now
		}
		for _, s := range servers {
			if s.MayEvict() {
				b.opts.Logger.Warn("single: the server may evict locks when its memory is full: set "+
					"maxmemory-policy noeviction",
					"server", s.Addr, "maxmemory-policy", s.Eviction)
			}
		}
	})
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
		found = append(found, b.checkReplicas(s))
	}
	return found, nil
}

// checkReplicas compares what a fail-over could lose with what was asked for.
func (b *Backend) checkReplicas(s redisconn.Server) locker.Finding {
	f := locker.Finding{What: "replicas of " + s.Addr,
		Found: fmt.Sprintf("%d connected, %d asked for", s.Replicas, b.opts.Replicas)}
	switch {
	case s.Replicas < b.opts.Replicas:
		f.Severity = locker.SeverityProblem
		f.Advice = "no lock can be had: connect more replicas, or ask for fewer with Options.Replicas " +
			"(replicas= in the URL)"
	case s.Replicas > 0 && b.opts.Replicas == 0:
		f.Severity = locker.SeverityWarning
		f.Advice = "replication is asynchronous: a fail-over can lose locks; Options.Replicas (replicas=1 in " +
			"the URL) narrows that, redlock, etcd and zookeeper avoid it"
	}
	return f
}
