package conformance_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
)

// store is a client of the simulated service that uses it as a store with compare-and-swap.
type store struct{ *client }

var beats = regexp.MustCompile(`"b":[0-9]+`)

func (s store) Load(ctx context.Context, key string) (e cas.Entry, err error) {
	sent := time.Now()
	e, err = ask(ctx, s.client, key, func(l *lock) cas.Entry {
		if s.kind.ages {
			l.entry.Age = time.Since(l.written)
		}
		return l.entry
	})
	switch s.flaw {
	case observesEarly:
		e.Age += time.Since(sent)
	case forgetsSights: // each beat looks new
		e.Value = beats.ReplaceAll(e.Value, fmt.Appendf(nil, `"b":%d`, time.Now().UnixNano()))
	}
	return e, err
}

func (s store) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	next, err := ask(ctx, s.client, key, func(l *lock) string {
		if l.entry.Version != version {
			return ""
		}
		s.writes++
		l.entry, l.written = cas.Entry{Value: value, Version: strconv.Itoa(s.writes)}, time.Now()
		s.tell(l)
		return l.entry.Version
	})
	if err == nil && next == "" {
		err = cas.ErrConflict
	}
	return next, err
}

func (s store) List(ctx context.Context, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all, err := ask(ctx, s.client, "", func(*lock) []string { return slices.Collect(maps.Keys(s.names)) })
		for _, key := range all {
			if !yield(key, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

func (s store) Promises() cas.Promises {
	return cas.Promises{Backend: "sim", Scope: locker.ScopeNetwork, Exclusion: locker.ExclusionServer,
		Fencing: locker.FencingWhileKept, Ages: s.kind.ages, RestsOn: "a map in the memory of this test"}
}

// swapping is a backend over a store, with the abilities of every such one.
type swapping struct {
	driver.Backend
	driver.Operator
	c *client
}

func newSwapping(c *client) driver.Backend {
	b, err := cas.New(store{c}, nil)
	if err != nil {
		panic(err)
	}
	return swapping{b, b.(driver.Operator), c}
}

func (b swapping) Guarantees() locker.Guarantees {
	g := b.Backend.Guarantees()
	if b.c.flaw == claimsUnwatched {
		g.DeadHolder = locker.RecoveryAfterTTL
	}
	return g
}
